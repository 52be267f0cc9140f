#!/usr/bin/env bash
# Builds Capstan and runs its tests, from a fresh Debian 12 machine on.
#   bash tools/test.sh                     everything, release build
#   bash tools/test.sh --filter='ps|sim'   the tests (one per folder) whose name matches
#   bash tools/test.sh --preset=asan       ASan and UBSan over the unit, contract and simulator tests
#   bash tools/test.sh --preset=tsan       ThreadSanitizer over the tests that start threads
#   bash tools/test.sh --long              the long form of the suites that have one
#   bash tools/test.sh --sim_seeds=2000    so many seeds in the simulator
# Exit status: 0 all passed, 1 a test failed or the build did, 2 the command line is wrong.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
. tools/build_env.sh

preset=release
filter=.
for argument in "$@"; do
  case "$argument" in
    --preset=*) preset=${argument#*=} ;;
    --filter=*) filter=${argument#*=} ;;
    --long) export CAPSTAN_LONG_TESTS=1 ;;
    --sim_seeds=*) export CAPSTAN_SIM_SEEDS=${argument#*=} ;;
    --help) sed -n '2,9p' tools/test.sh | cut -c3-; exit 0 ;;
    *) echo "test.sh: unknown argument '$argument'; see --help" >&2; exit 2 ;;
  esac
done
case "$preset" in
  asan) targets=(tests_unit tests_contract tests_sim) ;;
  tsan) targets=(tests_threads) ;;
  release | debug | cuda) targets=(all) ;;
  *) echo "test.sh: unknown preset '$preset'; it must be release, debug, cuda, asan or tsan" >&2; exit 2 ;;
esac
if [[ -n ${CAPSTAN_SIM_SEEDS-} && ! $CAPSTAN_SIM_SEEDS =~ ^[1-9][0-9]*$ ]]; then
  echo "test.sh: --sim_seeds='$CAPSTAN_SIM_SEEDS'; it must be a whole number above 0" >&2
  exit 2
fi

capstan_build "$preset" "${targets[@]}"

build=$root/build/$preset
rm -rf "$build/results"
runner=()
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
  # ThreadSanitizer refuses the address layout of some kernels when it is randomised.
  runner=(setarch "$(uname -m)" -R)
fi
status=0
"${runner[@]}" ctest --preset "$preset" -R "$filter" -j "$(nproc)" --no-tests=error \
  --output-junit "$build/results/ctest.xml" || status=1
bash tools/count_results.sh "$build/results" || status=1
exit "$status"
