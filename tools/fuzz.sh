#!/usr/bin/env bash
# Runs one libFuzzer target of tests/fuzz on a copy of its corpus.
#   bash tools/fuzz.sh frame_fuzz [--seconds=600] [--keep]
# --keep adds the inputs that reached new code, minimised, to the corpus in the tree (tests/fuzz/corpus/frame).
# A finding is written to build/fuzz/findings/; run the target with that file as its argument to see it again.
# Exit status: 0 no finding, 1 a finding or the build failed, 2 the command line is wrong.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/build_env.sh

target=${1-} seconds=30 keep=
if [[ ! $target =~ ^[a-z0-9_]+_fuzz$ ]]; then
  echo "fuzz.sh: the first argument names a target of tests/fuzz, for example frame_fuzz" >&2
  exit 2
fi
shift
for argument in "$@"; do
  case "$argument" in
    --seconds=*) seconds=${argument#*=} ;;
    --keep) keep=1 ;;
    *) echo "fuzz.sh: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz.sh: --seconds='$seconds'; it must be above 0" >&2; exit 2; }

capstan_build fuzz "$target"

corpus=tests/fuzz/corpus/${target%_fuzz}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
findings=build/fuzz/findings
mkdir -p "$findings" "$corpus"
export UBSAN_OPTIONS=print_stacktrace=1
# New inputs go to the first folder named, so the tree stays as it is.
if ! "build/fuzz/bin/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$findings/" "$work" "$corpus" >"$work.log" 2>&1; then
  tail -n 60 "$work.log" >&2
  echo "fuzz.sh: $target found something; the input is in $findings" >&2
  rm -f "$work.log"
  exit 1
fi
grep -E '^(Done|stat::number_of_executed_units)' "$work.log" || true
rm -f "$work.log"
if [ -n "$keep" ]; then
  "build/fuzz/bin/$target" -merge=1 "$corpus" "$work" 2>&1 | tail -n 1
fi
