// A batch cut into blocks that a network computes one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "kernels/embedding.h"

namespace capstan {

// Blocks keep the activations of all layers in the second-level cache. The cut is by position, so it depends
// on the batch alone. Products run on whole groups of kRowGroup rows, the last group filled up with zeros:
// fewer shapes, and no product so small that oneDNN would take another code path for it.
inline constexpr size_t kBlockRows = 512;
inline constexpr size_t kRowGroup = 16;

constexpr size_t RoundUp(size_t n, size_t step) { return (n + step - 1) / step * step; }

struct Block {
  size_t first = 0;  // record of the batch
  size_t rows = 0;   // ≤ kBlockRows
  size_t padded_rows() const { return RoundUp(rows, kRowGroup); }
};

template <typename Body>
void ForEachBlock(size_t rows, const Body& body) {
  for (size_t first = 0; first < rows; first += kBlockRows) {
    body(Block{first, rows - first < kBlockRows ? rows - first : kBlockRows});
  }
}

// The categorical side of a batch as the kernels take it. Keeps its memory between batches. The batch must
// outlive the use of lookups().
class SparseView {
 public:
  void Reset(const Batch& batch);
  // The lookups, with the rows of one table's `index`.
  Lookups WithIndex(std::span<const uint32_t> index) const;

 private:
  std::vector<FeatureLookups> features_;
  size_t count_ = 0;  // lookups of the batch
  bool one_each_ = false;
};

// Appends the keys of all lookups in (record, feature, position) order.
void AppendKeys(const Batch& batch, std::vector<uint64_t>* keys);

}  // namespace capstan
