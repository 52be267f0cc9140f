#include "ps/change_tracker.h"

namespace capstan {

ChangeTracker::ChangeTracker(const RowLayout& layout, uint32_t partitions, bool increments)
    : layout_(layout), increments_(increments), rows_(partitions), copies_(layout.bytes()) {}

void ChangeTracker::TouchAll(const Key* keys, const RowRef* rows, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (((rows[i].counters(layout_)->marks() ^ wanted_) & mask_) != 0) Touch(keys[i], rows[i]);
  }
}

void ChangeTracker::Touch(Key key, RowRef row) {
  RowCounters* const counters = row.counters(layout_);
  const bool needed = sweep_ == Sweep::kFull        ? counters->seen != parity_
                      : sweep_ == Sweep::kIncrement ? counters->list == cut_list_
                                                    : false;
  if (needed && budget_->failure.ok()) {
    copies_.Add(copies(PartitionOf(key, partitions())), key, row.record(), budget_);
  }
  if (sweep_ == Sweep::kFull) counters->seen = parity_;
  if (listing_ && counters->list != current_list_) {
    touched_[current_list_ - 1].Add(key);
    counters->list = current_list_;
  }
}

void ChangeTracker::BeforeErase(Key key, RowRef row) {
  Touch(key, row);
  // A sweep may hold a pointer to the record until it is used again: the marks tell it to pass by.
  row.counters(layout_)->list = 0;
  if (listing_) erased_[current_list_ - 1].Add(key);
  --rows_[PartitionOf(key, partitions())];
}

void ChangeTracker::Cut(bool full, CopyBudget* budget) {
  sweep_ = full ? Sweep::kFull : Sweep::kIncrement;
  budget_ = budget;
  if (full) parity_ ^= 1;
  if (increments_) {
    cut_list_ = current_list_;
    current_list_ = 3 - current_list_;
    listing_ = true;
  }
  rows_at_cut_ = rows_;
  if (chains_.size() == 0) chains_ = MemoryBlock(partitions() * sizeof(RowCopies::Chain));
  SetMask();
}

void ChangeTracker::EndSweep(bool keep_lists) {
  sweep_ = Sweep::kNone;
  budget_ = nullptr;
  cut_list_ = 0;
  if (!keep_lists) listing_ = false;
  SetMask();
}

void ChangeTracker::StopListing() {
  listing_ = false;
  SetMask();
}

void ChangeTracker::SetMask() {
  const uint32_t list = listing_ ? 3 : 0;
  const uint32_t seen = sweep_ == Sweep::kFull ? 4 : 0;
  mask_ = list | seen;
  wanted_ = (current_list_ | parity_ << 2) & mask_;
}

}  // namespace capstan
