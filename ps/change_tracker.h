// Which rows of a table changed since the last cut, and what the rows of a cut were before training went on. One
// thread: a cut is a moment between two updates, and the sweep that hands its rows over runs in slices between later
// ones. Two marks in each row's counters say where it stands:
//
//   list  0: not changed since the last cut; 1, 2: its key is in that list. The lists take turns: one gathers the
//         changes since the newest cut (the current one), the other is what an increment consists of.
//   seen  turns over with every full cut: a row that still has the old value is as it was at the cut, and the sweep
//         has not met it yet.
//
// A row about to change that the sweep still needs is copied first. Costs: 8 bytes per key in a list, 24 per partition.
#pragma once

#include <cstdint>
#include <vector>

#include "common/partition_map.h"
#include "common/types.h"
#include "ps/key_list.h"
#include "ps/memory_block.h"
#include "ps/row_copies.h"
#include "ps/row_layout.h"

namespace capstan {

class ChangeTracker {
 public:
  // increments false: no lists are kept, every cut is a full one.
  ChangeTracker(const RowLayout& layout, uint32_t partitions, bool increments);

  // ---- from the table ----
  // The rows of keys [n] are about to change. A few instructions per row where there is nothing to do.
  void BeforeUpdate(const Key* keys, const RowRef* rows, size_t n) {
    if (mask_ == 0) return;
    const size_t offset = layout_.floats() * sizeof(float);
    uint32_t differ = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto& counters = *reinterpret_cast<const RowCounters*>(rows[i].record() + offset);
      differ |= counters.marks() ^ wanted_;
    }
    if ((differ & mask_) != 0) TouchAll(keys, rows, n);
  }
  void AfterCreate(Key key, RowRef row) {
    row.counters(layout_)->seen = parity_;
    ++rows_[PartitionOf(key, partitions())];
  }
  void BeforeErase(Key key, RowRef row);

  // ---- from the sweep ----
  uint32_t partitions() const { return static_cast<uint32_t>(rows_.size()); }
  bool increments() const { return increments_; }
  // A cut happens now. No sweep is under way; an increment needs that the last cut was handed over in full. The
  // budget must outlive the sweep.
  void Cut(bool full, CopyBudget* budget);
  // The sweep has visited everything that the cut had. keep_lists: an increment can build on it.
  void EndSweep(bool keep_lists);
  // No increment will build on the last cut: nothing needs to be listed until the next one.
  void StopListing();

  // True: the row is as it was at the cut. It then counts as handed over.
  bool TakeRow(RowRef row) {
    RowCounters* const counters = row.counters(layout_);
    if (sweep_ == Sweep::kFull) {
      if (counters->seen == parity_) return false;
      counters->seen = parity_;
      if (counters->list == cut_list_) counters->list = 0;
      return true;
    }
    if (counters->list != cut_list_) return false;
    counters->list = 0;
    return true;
  }
  const std::vector<uint64_t>& rows() const { return rows_; }               // by partition, now
  const std::vector<uint64_t>& rows_at_cut() const { return rows_at_cut_; }
  // Of this cut: the keys touched, those erased since the cut before. A key may be there twice, and rows may be gone.
  KeyList& touched() { return touched_[cut_list_ == 2]; }
  KeyList& erased() { return erased_[cut_list_ == 2]; }
  RowCopies::Chain* copies(PartitionId partition) { return chains() + partition; }
  RowCopies& copy_store() { return copies_; }

 private:
  enum class Sweep : uint8_t { kNone, kFull, kIncrement };

  void TouchAll(const Key* keys, const RowRef* rows, size_t n);
  void Touch(Key key, RowRef row);
  RowCopies::Chain* chains() const { return reinterpret_cast<RowCopies::Chain*>(chains_.data()); }
  void SetMask();

  const RowLayout layout_;
  const bool increments_;
  uint32_t mask_ = 0;  // of the marks that must be `wanted_`, else a row needs Touch; nothing where it is 0
  uint32_t wanted_ = 0;
  uint32_t parity_ = 0;
  uint32_t current_list_ = 1;
  uint32_t cut_list_ = 0;  // 0: no sweep, or no lists
  bool listing_ = false;
  Sweep sweep_ = Sweep::kNone;
  CopyBudget* budget_ = nullptr;
  std::vector<uint64_t> rows_;
  std::vector<uint64_t> rows_at_cut_;
  KeyList touched_[2];  // list 1, list 2
  KeyList erased_[2];
  MemoryBlock chains_;  // of copies, by partition
  RowCopies copies_;
};

}  // namespace capstan
