// Rows after parsing, transforming and hashing: what a model sees. Plain arrays, no file and no text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace capstan {

// The keys of one categorical feature (or of a whole libsvm row) for n rows, in CSR form.
struct SparseColumn {
  std::vector<uint32_t> offsets;  // n + 1; row i has keys[offsets[i] … offsets[i+1])
  std::vector<uint64_t> keys;     // hashed with the feature's salt
  std::vector<float> values;      // one per key, or empty: all are 1
};

struct Batch {
  uint32_t rows = 0;
  uint32_t numeric_width = 0;          // inputs made from numeric features, indicators included
  std::vector<float> numeric;          // [rows, numeric_width], row-major, transformed
  std::vector<SparseColumn> sparse;    // one per categorical feature, in feature order
  uint32_t tasks = 1;                  // labels per row
  std::vector<float> labels;           // [rows, tasks], row-major; 0 or 1 where the task is a classification
  std::vector<float> weights;          // rows; ≥ 0
  std::vector<uint64_t> row_ids;       // rows; number of the row over all files
  std::vector<uint64_t> groups;        // rows, or empty: a hash of the group column (grouped metrics, retrieval)
  uint64_t bad_rows = 0;               // rows of the input that were left out as bad

  double WeightSum() const {
    double sum = 0;
    for (const float w : weights) sum += w;
    return sum;
  }
};

// The chosen rows of `source`, in that order. Rows listed in `bad` (sorted) are left out and counted.
Batch GatherRows(const Batch& source, std::span<const uint32_t> rows, std::span<const uint32_t> bad);

}  // namespace capstan
