#include "ps/change_tracker.h"

#include <utility>

namespace capstan {

ChangeTracker::ChangeTracker(const RowLayout& layout, uint32_t partitions, bool increments)
    : layout_(layout), increments_(increments), rows_(partitions), changes_(partitions), copies_(layout.bytes()) {}

void ChangeTracker::Touch(Key key, RowRef row) {
  RowCounters* const counters = row.counters(layout_);
  Changes& changes = ChangesOf(PartitionOf(key, partitions()));
  const bool needed = sweep_ == Sweep::kFull        ? counters->seen != parity_
                      : sweep_ == Sweep::kIncrement ? counters->list == cut_list_
                                                    : false;
  if (needed && budget_->failure.ok()) copies_.Add(&changes.copies, key, row.record(), budget_);
  if (sweep_ == Sweep::kFull) counters->seen = parity_;
  if (listing_ && counters->list != current_list_) {
    changes.touched[current_list_ - 1].push_back(key);
    counters->list = current_list_;
  }
}

void ChangeTracker::BeforeErase(Key key, RowRef row) {
  Touch(key, row);
  // A sweep may hold a pointer to the record until it is used again: the marks tell it to pass by.
  row.counters(layout_)->list = 0;
  const PartitionId partition = PartitionOf(key, partitions());
  if (listing_) ChangesOf(partition).erased[current_list_ - 1].push_back(key);
  --rows_[partition];
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

ChangeTracker::Changes& ChangeTracker::ChangesOf(PartitionId partition) {
  std::unique_ptr<Changes>& changes = changes_[partition];
  if (changes == nullptr) changes = std::make_unique<Changes>();
  return *changes;
}

std::vector<Key> ChangeTracker::TakeTouched(PartitionId partition) {
  if (cut_list_ == 0 || changes_[partition] == nullptr) return {};
  return std::exchange(changes_[partition]->touched[cut_list_ - 1], {});
}

std::vector<Key> ChangeTracker::TakeErased(PartitionId partition) {
  if (cut_list_ == 0 || changes_[partition] == nullptr) return {};
  return std::exchange(changes_[partition]->erased[cut_list_ - 1], {});
}

bool ChangeTracker::HasChanges(PartitionId partition) const {
  if (cut_list_ == 0 || changes_[partition] == nullptr) return false;
  const Changes& changes = *changes_[partition];
  return !changes.touched[cut_list_ - 1].empty() || !changes.erased[cut_list_ - 1].empty();
}

}  // namespace capstan
