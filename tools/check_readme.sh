#!/usr/bin/env bash
# Runs the commands of README.md as they stand there, in one shell, in an empty folder that shows the tree.
#   bash tools/check_readme.sh           all but what is marked slow
#   bash tools/check_readme.sh --slow    that too
# A block is marked behind its ```: sh runs, "sh slow" runs with --slow, "sh data" where CAPSTAN_DATA_DIR is set,
# "sh background" runs beside the rest, a process for each line, and must end by itself. Addresses 10.0.0.x become
# 127.0.0.1, and /shared a folder of ours.
# Exit status: 0 all commands succeeded, else that of the first that did not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
. tools/build_env.sh

kinds="run background"
[ -z "${CAPSTAN_DATA_DIR-}" ] || kinds+=" data"
case "${1-}" in
  "") ;;
  --slow) kinds+=" slow" ;;
  *) echo "check_readme.sh: unknown argument '$1'; the only one is --slow" >&2; exit 2 ;;
esac

capstan_build release capstan capstan-scheduler capstan-ps capstan-worker >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/shared"
ln -s "$root"/* "$work/"

# KIND<tab>COMMAND lines, in the order of the file.
commands() {
  awk '
    /^```sh/ { kind = $2 == "" ? "run" : $2; next }
    /^```/ { kind = ""; next }
    kind != "" && NF > 0 { print kind "\t" $0 }' README.md |
    sed -e 's/10\.0\.0\.[0-9]*/127.0.0.1/g' -e "s|/shared|$work/shared|g" -e "s|bash tools/demo.sh|bash $root/tools/demo.sh|"
}

awk '/^```textproto/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$work/readme.textproto"
script=$work/commands.sh
{
  echo "set -euo pipefail; cd '$work'; started=()"
  count=0
  while IFS=$'\t' read -r kind command; do
    case " $kinds " in *" $kind "*) ;; *) continue ;; esac
    count=$((count + 1))
    printf 'echo %q\n' "\$ $command"
    case $kind in
      background) printf '%s & started+=($!)\n' "$command" ;;
      *) printf '%s\n' "$command" ;;
    esac
  done < <(commands)
  # The job file that README.md explains is the one of the examples, comments aside.
  printf 'capstan train readme.textproto --output=runs/readme\n'
  printf '[ "$(grep -h model_sha256 runs/readme/result.json runs/second/result.json | sort -u | wc -l)" = 1 ] ||\n'
  printf '  { echo "the job file in README.md is not examples/visits.textproto any more"; exit 1; }\n'
  printf 'for pid in "${started[@]}"; do wait "$pid"; done\n'
  printf 'echo "%d commands of README.md succeeded"\n' "$count"
} >"$script"
count=$(grep -c '^echo .*\\\$' "$script") || true
[ "$count" -ge 10 ] || { echo "check_readme.sh: only $count commands found in README.md; has its form changed?" >&2; exit 1; }

log=$work/log
status=0
bash "$script" >"$log" 2>&1 || status=$?
if [ "$status" -ne 0 ]; then
  cat "$log" >&2
  echo "check_readme.sh: the last command above failed with exit status $status" >&2
  exit "$status"
fi
tail -1 "$log"
