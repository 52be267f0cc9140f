// Records kept as they were at a cut because training is about to change them, in chains that the caller holds the
// heads of. One thread. Memory comes in blocks of up to 2 MiB and is charged to a budget that the tables of a shard
// share; places given back are used again, blocks go back when the table's part of the cut is over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "ps/memory_block.h"

namespace capstan {

struct CopyBudget {
  uint64_t limit = 0;
  uint64_t used = 0;     // bytes of all blocks
  uint64_t peak = 0;
  absl::Status failure;  // not OK: the cut is lost, nothing more is kept for it
};

class RowCopies {
 public:
  using Chain = std::byte*;  // nullptr: empty

  // record_bytes: a multiple of 8.
  explicit RowCopies(size_t record_bytes) : record_bytes_(record_bytes) {}

  // Puts a copy in front of the chain. Where the budget or the memory does not allow it, budget.failure says so.
  void Add(Chain* chain, Key key, const std::byte* record, CopyBudget* budget);

  static Key KeyOf(Chain chain);
  static const std::byte* RecordOf(Chain chain) { return chain + kHeadBytes; }
  // Takes off the front of the chain, which is not empty; its bytes are then used for other copies.
  void Pop(Chain* chain);

  // Bytes of the places given back and not used again yet.
  uint64_t free_bytes() const { return free_places_ * place_bytes(); }

  // All memory; every chain is void.
  std::vector<MemoryBlock> TakeBlocks();

 private:
  static constexpr size_t kHeadBytes = 16;  // the next place of the chain, the key
  size_t place_bytes() const { return kHeadBytes + record_bytes_; }
  bool AddBlock(CopyBudget* budget);

  size_t record_bytes_;
  std::vector<MemoryBlock> blocks_;
  std::byte* next_ = nullptr;  // unused part of the newest block
  size_t left_ = 0;            // places in it
  Chain free_ = nullptr;
  uint64_t free_places_ = 0;
};

}  // namespace capstan
