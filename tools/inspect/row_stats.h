// What can be said about the rows of a table while they pass by. Memory does not grow with the table.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "storage/checkpoint_reader.h"

namespace capstan {

// Counts of values >= 0 by powers of two, and of zeros.
class LogHistogram {
 public:
  void Add(double value);
  struct Bin {
    double low = 0, high = 0;  // high excluded; both 0: exactly zero. The outermost ones: from 0, to infinity
    uint64_t count = 0;
  };
  // Zeros, if there are any, then from the first to the last that is not empty.
  std::vector<Bin> bins() const;
  uint64_t total() const { return total_; }

 private:
  static constexpr int kBins = 97;  // bin 0: zeros; bin i: [2^(i-33), 2^(i-32))
  uint64_t counts_[kBins] = {};
  uint64_t total_ = 0;
};

struct TopRow {
  double score = 0;
  Key key = 0;
};

// The n rows with the highest scores; of equal ones the lower keys.
class TopRows {
 public:
  explicit TopRows(size_t n) : n_(n) {}
  void Add(Key key, double score);
  std::vector<TopRow> Sorted() const;

 private:
  const size_t n_;
  std::vector<TopRow> heap_;  // the worst one in front
};

enum class RowMeasure { kNorm, kCount, kAge };
// kInvalidArgument for another word.
absl::StatusOr<RowMeasure> ParseMeasure(const std::string& word);

double NormOf(const StoredRow& row, uint32_t width);  // of the weights that are finite
// Steps since the row was updated last. clock: UpdateClockOf the checkpoint.
double AgeOf(const StoredRow& row, uint64_t clock);
double MeasureOf(RowMeasure measure, const StoredRow& row, uint32_t width, uint64_t clock);

struct TableStats {
  explicit TableStats(size_t top) : top_rows(top) {}
  void Add(const StoredRow& row, uint32_t width, uint64_t clock, RowMeasure by);

  // Zero rows: all weights are 0. Values that are not finite are counted in the slots too.
  uint64_t rows = 0, zero_rows = 0, nonfinite_values = 0, nonfinite_rows = 0;
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0;  // of the finite weights
  uint64_t weights = 0;
  uint64_t updates = 0;
  LogHistogram norms, counts, ages;
  TopRows top_rows;
};

}  // namespace capstan
