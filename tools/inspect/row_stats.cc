#include "tools/inspect/row_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr int kLowestExponent = -32;  // smaller values are counted with it

bool Better(const TopRow& a, const TopRow& b) { return a.score != b.score ? a.score > b.score : a.key < b.key; }

}  // namespace

void LogHistogram::Add(double value) {
  ++total_;
  if (!(value > 0)) {
    ++counts_[0];
    return;
  }
  int exponent = 0;
  std::frexp(value, &exponent);  // value in [2^(exponent-1), 2^exponent)
  ++counts_[std::clamp(exponent - kLowestExponent, 1, kBins - 1)];
}

std::vector<LogHistogram::Bin> LogHistogram::bins() const {
  int first = 1, last = kBins - 1;
  while (first < kBins && counts_[first] == 0) ++first;
  while (last > first && counts_[last] == 0) --last;
  std::vector<Bin> bins;
  if (counts_[0] > 0) bins.push_back({0, 0, counts_[0]});
  for (int i = first; i <= last && i < kBins; ++i) {
    const double low = std::ldexp(1.0, i + kLowestExponent - 1);
    bins.push_back({i == 1 ? 0 : low, i == kBins - 1 ? std::numeric_limits<double>::infinity() : 2 * low, counts_[i]});
  }
  return bins;
}

void TopRows::Add(Key key, double score) {
  if (n_ == 0) return;
  const TopRow row = {score, key};
  if (heap_.size() == n_) {
    if (!Better(row, heap_.front())) return;
    std::pop_heap(heap_.begin(), heap_.end(), Better);
    heap_.pop_back();
  }
  heap_.push_back(row);
  std::push_heap(heap_.begin(), heap_.end(), Better);
}

std::vector<TopRow> TopRows::Sorted() const {
  std::vector<TopRow> rows = heap_;
  std::sort(rows.begin(), rows.end(), Better);
  return rows;
}

absl::StatusOr<RowMeasure> ParseMeasure(const std::string& word) {
  if (word == "norm") return RowMeasure::kNorm;
  if (word == "count") return RowMeasure::kCount;
  if (word == "age") return RowMeasure::kAge;
  return InvalidArgument(fmt::format("'{}' is none of norm, count, age", word));
}

double NormOf(const StoredRow& row, uint32_t width) {
  double squares = 0;
  for (uint32_t i = 0; i < std::min(width, row.floats); ++i) {
    const double value = row.values[i];
    if (std::isfinite(value)) squares += value * value;
  }
  return std::sqrt(squares);
}

double AgeOf(const StoredRow& row, uint64_t clock) {
  // Steps are kept modulo 2^32. A row may be a step ahead: a push is applied before its rank's clock is raised.
  const auto age = static_cast<int32_t>(static_cast<uint32_t>(clock) - row.last_step);
  return row.updates == 0 ? 0 : std::max(age, 0);
}

double MeasureOf(RowMeasure measure, const StoredRow& row, uint32_t width, uint64_t clock) {
  switch (measure) {
    case RowMeasure::kNorm:
      return NormOf(row, width);
    case RowMeasure::kCount:
      return row.updates;
    case RowMeasure::kAge:
      return AgeOf(row, clock);
  }
  return 0;
}

void TableStats::Add(const StoredRow& row, uint32_t width, uint64_t clock, RowMeasure by) {
  ++rows;
  uint64_t bad = 0;
  bool zero = true;
  for (uint32_t i = 0; i < row.floats; ++i) {
    const double value = row.values[i];
    if (i < width) zero &= value == 0;
    if (!std::isfinite(value)) {
      ++bad;
      continue;
    }
    if (i >= width) continue;
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
    squares += value * value;
    ++weights;
  }
  nonfinite_values += bad;
  nonfinite_rows += bad > 0 ? 1 : 0;
  const double norm = NormOf(row, width);
  zero_rows += zero ? 1 : 0;
  updates += row.updates;
  norms.Add(norm);
  counts.Add(row.updates);
  ages.Add(AgeOf(row, clock));
  top_rows.Add(row.key, MeasureOf(by, row, width, clock));
}

}  // namespace capstan
