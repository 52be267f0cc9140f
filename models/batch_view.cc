#include "models/batch_view.h"

#include <glog/logging.h>

namespace capstan {

void SparseView::Reset(const Batch& batch) {
  features_.clear();
  for (const SparseColumn& column : batch.sparse) {
    CHECK_EQ(column.offsets.size(), batch.rows + size_t{1});
    features_.push_back({column.offsets.data(), column.values.empty() ? nullptr : column.values.data()});
  }
  count_ = FirstLookup(features_, batch.rows);
  one_each_ = HasOneEach(features_, batch.rows);
}

Lookups SparseView::WithIndex(std::span<const uint32_t> index) const {
  CHECK_EQ(index.size(), count_) << "the index of a sparse table must have one entry per lookup of the batch";
  return {features_, index.data(), one_each_};
}

void AppendKeys(const Batch& batch, std::vector<uint64_t>* keys) {
  size_t count = 0;
  for (const SparseColumn& column : batch.sparse) count += column.keys.size();
  size_t k = keys->size();
  keys->resize(k + count);
  uint64_t* out = keys->data();
  for (uint32_t i = 0; i < batch.rows; ++i) {
    for (const SparseColumn& column : batch.sparse) {
      for (uint32_t p = column.offsets[i]; p < column.offsets[i + 1]; ++p) out[k++] = column.keys[p];
    }
  }
}

}  // namespace capstan
