#!/usr/bin/env bash
# Installs what Capstan needs from Debian 12, by package name, and only what is missing.
#   tools/deps.sh          to build and test
#   tools/deps.sh --fuzz   to build the fuzz targets as well (clang)
# Runs as root or through sudo. With everything in place it changes nothing and needs no network.
set -euo pipefail

packages=(
  # Tools. lld and ccache make rebuilding quick; the build does without them.
  g++ cmake ninja-build ccache lld pkg-config
  # Messaging, with the encryption and hashes from libsodium
  libzmq3-dev cppzmq-dev libsodium-dev
  # Control messages and job files, result files
  protobuf-compiler libprotobuf-dev nlohmann-json3-dev
  # Checkpoints: table files, and exports of them
  librocksdb-dev libminizip-dev
  # Matrix products
  libdnnl-dev
  # Status, text, flags, logs, checksums, .gz
  libabsl-dev libfmt-dev libgflags-dev libgoogle-glog-dev libxxhash-dev zlib1g-dev
  # Tests; numpy reads the exports back
  python3-numpy
  libgtest-dev libgmock-dev
)
fuzz_packages=(clang-14 libclang-rt-14-dev)

case "${1-}" in
  "") ;;
  --fuzz) packages+=("${fuzz_packages[@]}") ;;
  *) echo "deps.sh: unknown argument '$1'; the only one is --fuzz" >&2; exit 2 ;;
esac

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

command -v dpkg-query >/dev/null || {
  echo "deps.sh: this is not a Debian system; install these by hand: ${packages[*]}" >&2; exit 1; }
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "deps.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "deps.sh: installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
for package in "${missing[@]}"; do
  installed "$package" || { echo "deps.sh: '$package' is still not installed" >&2; exit 1; }
done
