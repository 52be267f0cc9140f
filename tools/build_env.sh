# Sourced by the scripts of this folder, with the root of the tree as working directory.

# capstan_build PRESET TARGET… installs what is missing, configures, and builds. Quiet when there is nothing to do;
# with CUDA not found, CMake's one line about it is shown.
capstan_build() {
  local preset=$1 log
  shift
  if [ "$preset" = fuzz ]; then bash tools/deps.sh --fuzz; else bash tools/deps.sh; fi
  log=$(mktemp)
  if ! cmake --preset "$preset" >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "configuring the preset '$preset' failed" >&2
    return 1
  fi
  grep -h -- '-- CUDA ' "$log" || true
  rm -f "$log"
  cmake --build --preset "$preset" -j "$(nproc)" --target "$@"
}
