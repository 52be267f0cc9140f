// The rows of one table that a cut consists of, partition by partition, a few at a time while training goes on between
// the calls: those still as they were, then the copies of those that are not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/types.h"
#include "ps/key_list.h"
#include "ps/row_store.h"

namespace capstan {

class Table;

class CutWalk {
 public:
  // record: weights, slots, counters as in the row store (the counters' marks mean nothing).
  using Emit = std::function<void(Key key, const std::byte* record)>;

  // The table's tracker has just cut.
  CutWalk(Table* table, bool full);

  // Goes on to the next partition that the cut has anything of. kLater: call again, the slice was used up.
  enum class Next { kPartition, kLater, kEnd };
  Next NextPartition();
  PartitionId partition() const { return partition_; }

  // Looks at up to n more rows of the partition and hands over those that are part of the cut. Returns how many it
  // looked at; 0 does not mean that there are no more.
  size_t Rows(size_t n, const Emit& emit) { return Advance(n, &emit); }
  // The same for a cut that is given up: marks rows as handed over, forgets copies (their memory may be gone already).
  size_t Skip(size_t n) { return Advance(n, nullptr); }
  bool PartitionDone() const { return done_; }

  // Keys erased before the cut and after the one before it: sorted, each once. For an increment, after Rows.
  std::vector<Key> TakeErased();

  // At the end: its memory, for the caller to free a block at a time.
  std::vector<MemoryBlock> TakeBlocks();

  // About how many rows' time the calls since the last one took besides rows.
  size_t TakeExtraCost();

 private:
  Next NextOfAll();
  Next NextOfChanges();
  bool SortSome();
  bool FreeSome();
  bool Fill();  // the next piece of a large partition
  void ScanRun(PartitionId first);
  size_t Advance(size_t n, const Emit* emit);
  void AdvanceRows(size_t n, const Emit* emit);
  void AdvanceChanges(size_t n, const Emit* emit);
  size_t AdvanceCopies(size_t n, const Emit* emit);

  Table* table_;
  bool full_;
  uint32_t partitions_;
  int shift_;  // hash → partition; 64: there is one partition
  PartitionId next_ = 0;
  PartitionId partition_ = 0;
  bool done_ = false;  // with the partition
  size_t extra_cost_ = 0;

  // Full: rows of a run of small partitions, or of a piece of a large one. Records stay valid: an erased one is marked
  // as handed over, and one that is used again belongs to a row made after the cut.
  std::vector<KeyedRow> scanned_;  // both are longer than what is in them
  std::vector<KeyedRow> rows_;     // by partition
  size_t rows_end_ = 0;
  std::vector<size_t> starts_;  // in rows_, of each partition of the run and the end
  PartitionId run_first_ = 0;
  PartitionId run_end_ = 0;
  uint64_t next_hash_ = 0;    // of a large partition's next piece …
  uint64_t pieces_left_ = 0;
  uint64_t piece_hashes_ = 0;
  size_t at_ = 0;
  size_t end_ = 0;

  // Increment: the lists by partition.
  std::optional<PartitionedKeys> touched_;
  std::optional<PartitionedKeys> erased_;
  std::vector<Key> keys_;  // touched ones of the partition
};

}  // namespace capstan
