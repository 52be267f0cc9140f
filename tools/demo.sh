#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained model.
#   bash tools/demo.sh                    one million rows of a generated click log, whose best possible AUC is known
#   bash tools/demo.sh my.csv bought      a file of yours (CSV, TSV or libsvm, plain or .gz) and its label column
# Sets up and builds what it needs. Everything it writes is in build/: data and model in build/demo.
# Exit status: 0 done, 1 the build failed or the model is worse than it must be, 2 the command line is wrong; else what
# capstan says (README.md, "Exit codes").
set -euo pipefail

wanted_auc=0.797
usage() { sed -n '3,4p' "$0" | cut -c3-; }
die() { echo "demo.sh: $2" >&2; exit "$1"; }

own_file=
label=
case $# in
  0) ;;
  1)
    case $1 in -h | --help) usage; exit 0 ;; esac
    [ -f "$1" ] || die 2 "there is no file '$1'"
    case $1 in
      *.libsvm | *.svm | *.libsvm.gz | *.svm.gz) own_file=$(realpath "$1") ;;
      *) usage >&2; die 2 "say which column of '$1' is to be predicted: bash tools/demo.sh $1 COLUMN" ;;
    esac ;;
  2)
    [ -f "$1" ] || die 2 "there is no file '$1'"
    own_file=$(realpath "$1")
    label=$2 ;;
  *) usage >&2; die 2 "$# arguments; it takes a file and a column, or nothing" ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/build_env.sh
step() { printf '\n== %s\n' "$*"; }

step "setting up and building (minutes the first time)"
capstan_build release capstan capstan-scheduler capstan-ps capstan-worker
capstan=build/release/bin/capstan
mkdir -p build/demo
exec 9>build/demo/lock
flock -n 9 || die 1 "another demo is running in this folder"

# figure NAME: a number of the run's evaluation, as it stands in result.json.
figure() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$run/result.json" | tail -1; }
# The same with four decimals; a figure may be undefined, as AUC is where all labels are alike.
rounded() {
  local value
  value=$(figure "$1")
  if [ -n "$value" ]; then printf '%.4f' "$value"; else printf undefined; fi
}

train_on_own_file() {
  local ending=csv rows settings=()
  case $own_file in
    *.tsv | *.tsv.gz) ending=tsv ;;
    *.libsvm | *.svm | *.libsvm.gz | *.svm.gz) ending=libsvm ;;
  esac
  local train=build/demo/own-train.$ending test=build/demo/own-test.$ending
  run=build/demo/own-run
  step "cutting $own_file: four rows of five to train on, the fifth to test on"
  "$capstan" split --data="$own_file" --label="$label" --out_train="$train" --out_test="$test"
  rows=$(wc -l <"$train")
  # Few rows make few steps: smaller ones, and several passes.
  [ "$rows" -ge 300000 ] || settings=(--epochs=4 --set batch.global=256)
  step "training Wide & Deep"
  rm -rf "$run"
  "$capstan" train --data="$train" --eval_data="$test" --label="$label" --output="$run" "${settings[@]}" \
    --set name=demo
  cat <<END

Test AUC $(rounded auc), log loss $(rounded logloss), on $(figure rows) rows that were not trained on.

What to type next (README.md explains the job file):
  # a score for every row
  $capstan predict --model=$run --data=$test --out=scores.csv
  # the job that was guessed; copy it, and the copy is yours to edit
  $capstan train $run/job.textproto --epochs=8
  # two servers, two workers, a scheduler: five processes, the same bits
  $capstan train $run/job.textproto --servers=2 --workers=2
END
}

train_on_generated_rows() {
  local train=build/demo/train.tsv test=build/demo/test.tsv best auc
  run=build/demo/run
  step "generating one million rows to train on and 400,000 to test on"
  "$capstan" gen --rows=1000000 --seed=1 --out="$train" >build/demo/train.report
  "$capstan" gen --rows=400000 --seed=1 --start=1000000000 --out="$test" >build/demo/test.report
  best=$(sed -n 's/^ *best possible AUC *\([0-9.]*\).*/\1/p' build/demo/test.report)
  step "training Wide & Deep on them, one pass, in this one process"
  rm -rf "$run"
  "$capstan" train examples/clicks_wide_deep.textproto --data="$train" --eval_data="$test" --output="$run"
  auc=$(figure auc)
  printf '\nTest AUC %.4f; the best that any model can reach on these rows is %.4f.\n' "$auc" "$best"
  awk -v auc="$auc" -v wanted="$wanted_auc" 'BEGIN { exit !(auc >= wanted) }' ||
    die 1 "the test AUC must be at least $wanted_auc; something is wrong with this build"
  cat <<END

What to type next:
  # measure a saved model on any labelled file; score every row; see how far the scores are from the best possible
  $capstan eval --model=$run --data=$test
  $capstan predict --model=$run --data=$test --out=scores.csv
  $capstan gap --predictions=scores.csv --seed=1 --start=1000000000
  # two servers, two workers, a scheduler: five processes, the same bits
  $capstan train examples/clicks_wide_deep.textproto --data=$train --eval_data=$test --servers=2 --workers=2
  # your own file
  bash tools/demo.sh my.csv label_column
END
}

if [ -n "$own_file" ]; then train_on_own_file; else train_on_generated_rows; fi
