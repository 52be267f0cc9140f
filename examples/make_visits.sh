#!/usr/bin/env bash
# A made-up table of visits to a shop, for README.md: who buys depends on age, city and device, and some fields are
# missing. The same rows each time.
#   bash examples/make_visits.sh >visits.csv        20,000 rows
#   bash examples/make_visits.sh 500 >visits.csv    so many
set -euo pipefail
exec awk -v rows="${1-20000}" '
function draw() { state = (state * 16807) % 2147483647; return state / 2147483647 }  # Park and Miller 1988
BEGIN {
  state = 42
  split("Oslo|Lima|Cairo|Pune|Lyon|Quito|\"Washington, D.C.\"|Bonn", city, "|")
  split("phone|tablet|desktop", device, "|")
  print "age,city,device,pages,minutes,bought"
  for (i = 0; i < rows; ++i) {
    a = 18 + int(60 * draw()); c = 1 + int(8 * draw()); d = 1 + int(3 * draw())
    p = 1 + int(-4 * log(draw() + 1e-9)); m = p * (0.5 + 2 * draw())
    score = -2.6 + 0.03 * (a - 40) + (c % 3) * 0.6 + (d == 3) * 0.7 - (d == 1 && a > 60) * 1.5 + 0.12 * p + (c == 2 && d == 2) * 1.2
    yes = draw() < 1 / (1 + exp(-score))
    printf "%s,%s,%s,%d,%.1f,%s\n", draw() < 0.05 ? "" : a, draw() < 0.03 ? "?" : city[c], device[d], p, m, yes ? "yes" : "no"
  }
}' </dev/null
