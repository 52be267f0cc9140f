#!/usr/bin/env bash
# Counts test cases after a ctest run and prints one closing line: "N passed, N failed, N skipped".
#   count_results.sh FOLDER     FOLDER has ctest.xml, and NAME.xml of each GoogleTest binary that ran to its end
# A binary without a report (not GoogleTest, or it crashed) counts as one case with ctest's verdict; a failure that
# only ctest saw (a leak found at exit, a time limit) counts as one failed case more.
# Exit status: 1 if a case failed or none passed.
set -euo pipefail
folder=$1

# Value of attribute $1 in the first tag of kind $2 of file $3; 0 where there is none.
attribute() {
  sed -n "s/.*<$2 [^>]*\b$1=\"\([0-9]*\)\".*/\1/p" "$3" | head -n 1 | grep . || echo 0
}

passed=0 failed=0 skipped=0
while IFS=$'\t' read -r name verdict; do
  report=$folder/$name.xml
  if [ -f "$report" ]; then
    total=$(attribute tests testsuites "$report")
    bad=$(($(attribute failures testsuites "$report") + $(attribute errors testsuites "$report")))
    left_out=$(grep -c 'result="skipped"\|result="suppressed"\|status="notrun"' "$report" || true)
    if [ "$verdict" = fail ] && [ "$bad" -eq 0 ]; then
      bad=1
      total=$((total + 1))
    fi
    passed=$((passed + total - bad - left_out))
    failed=$((failed + bad))
    skipped=$((skipped + left_out))
  else
    case "$verdict" in
      run) passed=$((passed + 1)) ;;
      fail) failed=$((failed + 1)) ;;
      *) skipped=$((skipped + 1)) ;;
    esac
  fi
done < <(sed -n 's/.*<testcase name="\([^"]*\)".* status="\([a-z]*\)".*/\1\t\2/p' "$folder/ctest.xml")

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
