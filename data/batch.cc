#include "data/batch.h"

#include <algorithm>

namespace capstan {
namespace {

SparseColumn GatherColumn(const SparseColumn& source, std::span<const uint32_t> rows) {
  SparseColumn column;
  column.offsets.reserve(rows.size() + 1);
  column.keys.reserve(rows.size());
  column.offsets.push_back(0);
  for (const uint32_t row : rows) {
    const uint32_t begin = source.offsets[row], end = source.offsets[row + 1];
    column.keys.insert(column.keys.end(), source.keys.begin() + begin, source.keys.begin() + end);
    if (!source.values.empty()) {
      column.values.insert(column.values.end(), source.values.begin() + begin, source.values.begin() + end);
    }
    column.offsets.push_back(static_cast<uint32_t>(column.keys.size()));
  }
  return column;
}

}  // namespace

Batch GatherRows(const Batch& source, std::span<const uint32_t> rows, std::span<const uint32_t> bad) {
  std::vector<uint32_t> kept;
  if (!bad.empty()) {
    kept.reserve(rows.size());
    for (const uint32_t row : rows) {
      if (!std::binary_search(bad.begin(), bad.end(), row)) kept.push_back(row);
    }
  }
  Batch batch;
  batch.bad_rows = bad.empty() ? 0 : rows.size() - kept.size();
  if (!bad.empty()) rows = kept;
  batch.rows = static_cast<uint32_t>(rows.size());
  batch.numeric_width = source.numeric_width;
  batch.numeric.reserve(rows.size() * source.numeric_width);
  for (const uint32_t row : rows) {
    const auto first = source.numeric.begin() + size_t{row} * source.numeric_width;
    batch.numeric.insert(batch.numeric.end(), first, first + source.numeric_width);
    batch.labels.push_back(source.labels[row]);
    batch.weights.push_back(source.weights[row]);
    batch.row_ids.push_back(source.row_ids[row]);
  }
  batch.sparse.reserve(source.sparse.size());
  for (const SparseColumn& column : source.sparse) batch.sparse.push_back(GatherColumn(column, rows));
  return batch;
}

}  // namespace capstan
