#include "tools/bench/bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

namespace capstan {
namespace {

constexpr size_t kLeastPairs = 5;

double ThreadCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

void PrintFigure(const Figure& figure, bool json, std::FILE* out) {
  const bool limited = !figure.limit_name.empty();
  std::string line;
  if (json) {
    nlohmann::ordered_json object = {{"name", figure.name}, {"value", figure.value}, {"unit", figure.unit}};
    if (limited) {
      object["limit_name"] = figure.limit_name;
      object["limit"] = figure.limit;
      object["ratio"] = figure.ratio;
    }
    line = object.dump();
  } else {
    line = fmt::format("{:<32} {:>10.2f} {:<8}", figure.name, figure.value, figure.unit);
    if (limited)
      line += fmt::format(" {:>6.1f} % of {:.2f} ({})", 100 * figure.ratio, figure.limit, figure.limit_name);
  }
  std::fprintf(out, "%s\n", line.c_str());
  std::fflush(out);
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double CpuSecondsOf(const std::function<void()>& work) {
  const double begin = ThreadCpuSeconds();
  work();
  return ThreadCpuSeconds() - begin;
}

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double PercentileOf(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

SideBySide CompareInTurn(double seconds, const std::function<void(size_t i)>& ours,
                         const std::function<void(size_t i)>& limit) {
  std::vector<double> our_times, limit_times, ratios;
  double spent = 0;
  for (size_t i = 0; spent < seconds || ratios.size() < kLeastPairs; ++i) {
    const double limit_time = CpuSecondsOf([&] { limit(i); });
    const double our_time = CpuSecondsOf([&] { ours(i); });
    if (i == 0) continue;
    spent += limit_time + our_time;
    our_times.push_back(our_time);
    limit_times.push_back(limit_time);
    ratios.push_back(limit_time / our_time);
  }
  return {MedianOf(our_times), MedianOf(limit_times), MedianOf(ratios)};
}

double MemcpyBytesPerSecond() {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr int kCopies = 5;
  const std::unique_ptr<char[]> from(new char[kBytes]), to(new char[kBytes]);
  std::memset(from.get(), 1, kBytes);
  std::memset(to.get(), 2, kBytes);
  double best = 1e9;
  for (int i = 0; i < kCopies; ++i) {
    best = std::min(best, SecondsOf([&] {
                      std::memcpy(to.get(), from.get(), kBytes);
                      KeepAlive(to.get());
                    }));
  }
  return static_cast<double>(kBytes) / best;
}

}  // namespace capstan
