// Made-up batches for the tests of models/.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/random.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace capstan {

struct TestBatchShape {
  uint32_t rows = 8;
  uint32_t numeric_width = 3;
  uint32_t features = 4;
  uint32_t max_keys = 1;     // keys per record and feature: 1, or 0 … max_keys
  bool values = false;       // each key with a factor
  uint64_t vocabulary = 20;  // keys per feature
};

inline FeatureShape FeatureShapeOf(const TestBatchShape& shape) {
  FeatureShape out;
  out.numeric_width = shape.numeric_width;
  for (uint32_t f = 0; f < shape.features; ++f) out.sparse_names.push_back(fmt::format("c{}", f));
  return out;
}

inline Batch MakeTestBatch(const TestBatchShape& shape, uint64_t seed) {
  SeededRandom random(seed);
  Batch batch;
  batch.rows = shape.rows;
  batch.numeric_width = shape.numeric_width;
  for (uint32_t i = 0; i < shape.rows * shape.numeric_width; ++i) {
    batch.numeric.push_back(static_cast<float>(2.0 * random.Unit() - 1.0));
  }
  for (uint32_t f = 0; f < shape.features; ++f) {
    SparseColumn& column = batch.sparse.emplace_back();
    column.offsets.push_back(0);
    for (uint32_t i = 0; i < shape.rows; ++i) {
      const uint64_t keys = shape.max_keys == 1 ? 1 : random.Below(shape.max_keys + 1);
      for (uint64_t k = 0; k < keys; ++k) {
        column.keys.push_back(Mix64(f) ^ random.Below(shape.vocabulary));
        if (shape.values) column.values.push_back(static_cast<float>(0.5 + random.Unit()));
      }
      column.offsets.push_back(static_cast<uint32_t>(column.keys.size()));
    }
  }
  for (uint32_t i = 0; i < shape.rows; ++i) {
    batch.labels.push_back(random.Below(2) == 0 ? 0.0f : 1.0f);
    batch.weights.push_back(static_cast<float>(0.5 + random.Unit()));
    batch.row_ids.push_back(seed * 1000 + i);
  }
  return batch;
}

}  // namespace capstan
