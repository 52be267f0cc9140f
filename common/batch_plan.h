// Which rows a batch holds, as pure arithmetic: a function of (seed, epoch, split, index, batch size) alone.
// Splits are runs of rows of the input and never depend on the number of processes.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/types.h"

namespace capstan {

struct BatchId {
  uint32_t epoch = 0;
  uint32_t split = 0;
  uint32_t index = 0;  // within the split
  auto operator<=>(const BatchId&) const = default;
};

// A run of batches of one split, handed to one rank (async and ssp).
struct Lease {
  LeaseId id = 0;
  uint32_t epoch = 0;
  uint32_t split = 0;
  uint32_t first = 0;  // index of the first batch
  uint32_t count = 0;  // batches
};

class BatchPlan {
 public:
  BatchPlan() = default;
  // split_rows[i]: rows of split i; batch_rows ≥ 1: rows a rank processes in one step.
  BatchPlan(uint64_t seed, std::vector<uint32_t> split_rows, uint32_t batch_rows);

  uint32_t splits() const { return static_cast<uint32_t>(split_rows_.size()); }
  uint32_t batch_rows() const { return batch_rows_; }
  uint64_t total_rows() const { return total_rows_; }
  uint32_t RowsOfSplit(uint32_t split) const { return split_rows_[split]; }
  uint32_t BatchesOfSplit(uint32_t split) const {
    return static_cast<uint32_t>((uint64_t{split_rows_[split]} + batch_rows_ - 1) / batch_rows_);
  }
  uint32_t RowsOfBatch(uint32_t split, uint32_t index) const;

  // The splits in the order in which `epoch` visits them.
  std::vector<uint32_t> SplitOrder(uint32_t epoch) const;
  // The rows of a split in the order in which `epoch` visits them (row numbers within the split); batch i
  // takes [i·batch_rows, …). Shuffled inside the split only.
  std::vector<uint32_t> RowOrder(uint32_t epoch, uint32_t split) const;

  // Sync: the batches of one rank in one epoch, in order: the rank takes the splits at places rank,
  // rank + ranks, … of SplitOrder. May be empty. ranks ≥ 1.
  std::vector<BatchId> BatchesOfRank(uint32_t epoch, Rank rank, uint32_t ranks) const;

  // Async and ssp: cuts an epoch into leases of at most `batches_per_lease` batches, ids from first_id.
  std::vector<Lease> Leases(uint32_t epoch, uint32_t batches_per_lease, LeaseId first_id) const;

 private:
  uint64_t seed_ = 0;
  uint32_t batch_rows_ = 1;
  uint64_t total_rows_ = 0;
  std::vector<uint32_t> split_rows_;
};

}  // namespace capstan
