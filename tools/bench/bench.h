// What every benchmark shares: a figure never stands alone, but beside what the machine allows, measured in
// the same run by a loop that does nothing else. On a busy machine the times are worth little, the ratio
// still holds.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace capstan {

struct Figure {
  std::string name;  // for example "store.gather.16"
  double value = 0;
  std::string unit;        // of value and limit, for example "Mrows/s"
  std::string limit_name;  // empty: there is no limit to compare with
  double limit = 0;
  double ratio = 0;  // the share of the limit that was reached: above 1 is better than the limit, but worse where a
                     // time or a size stands beside what it is "without" or "before" something
};

// One line a figure: text in columns, or one JSON object a line.
void PrintFigure(const Figure& figure, bool json, std::FILE* out);

// Keeps the optimiser from deleting work whose result nobody reads.
inline void KeepAlive(const void* result) { asm volatile("" : : "r"(result) : "memory"); }

double SecondsOf(const std::function<void()>& work);  // as a clock on the wall sees it
double CpuSecondsOf(
    const std::function<void()>& work);  // of this thread alone: a busy machine steals nothing

double MedianOf(std::vector<double> values);                    // not empty
double PercentileOf(std::vector<double> values, double share);  // not empty; share: 0 to 1

struct SideBySide {
  double ours_seconds = 0;  // medians of one call
  double limit_seconds = 0;
  double ratio = 0;  // limit time / our time, the median over pairs
};
// Calls limit(i) and ours(i) in turn, i = 0, 1, 2, …, for about `seconds` and at least 5 pairs, after one
// pair that does not count. Times are CpuSecondsOf. A pair's two calls are neighbours, so what else the
// machine does hits both.
SideBySide CompareInTurn(double seconds, const std::function<void(size_t i)>& ours,
                         const std::function<void(size_t i)>& limit);

// Bytes copied per second by one core, best of several copies of 256 MiB.
double MemcpyBytesPerSecond();

}  // namespace capstan
