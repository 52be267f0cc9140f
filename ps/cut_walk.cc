#include "ps/cut_walk.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <utility>

#include "common/partition_map.h"
#include "ps/change_tracker.h"
#include "ps/table.h"

namespace capstan {
namespace {

// An index segment (64 Ki slots) takes 0.1 ms to scan whatever part of it is asked for: several partitions a scan, but
// not so many that sorting them takes a whole slice.
constexpr uint64_t kScanRows = 2 << 10;
constexpr uint32_t kScanPartitions = 4096;
constexpr size_t kScanCost = 256;                  // in rows handed over
constexpr uint32_t kSkipsPerCall = 16 << 10;       // partitions without rows
constexpr size_t kSkipsPerRow = 16;
constexpr size_t kFreeCost = 64;
constexpr size_t kSortKeys = 1024;
constexpr size_t kSortsPerRow = 4;
constexpr size_t kSweepAhead = 12;                 // records on their way into the cache
constexpr size_t kFindBatch = 64;

}  // namespace

CutWalk::CutWalk(Table* table, bool full)
    : table_(table),
      full_(full),
      partitions_(table->tracker()->partitions()),
      shift_(64 - std::countr_zero(partitions_)) {}

CutWalk::Next CutWalk::NextPartition() { return full_ ? NextOfAll() : NextOfChanges(); }

CutWalk::Next CutWalk::NextOfAll() {
  if (FreeSome()) return Next::kLater;
  const std::vector<uint64_t>& rows = table_->tracker()->rows_at_cut();
  for (uint32_t skipped = 0; next_ < partitions_ && rows[next_] == 0; ++next_) {
    if (++skipped % kSkipsPerRow == 0) ++extra_cost_;
    if (skipped == kSkipsPerCall) {
      ++next_;
      return Next::kLater;
    }
  }
  if (next_ == partitions_) return Next::kEnd;
  partition_ = next_++;
  done_ = false;
  if (partition_ >= run_end_) ScanRun(partition_);
  at_ = starts_[partition_ - run_first_];
  end_ = starts_[partition_ - run_first_ + 1];
  return Next::kPartition;
}

// A full cut has the changes in it that were listed.
bool CutWalk::FreeSome() {
  ChangeTracker& tracker = *table_->tracker();
  if (!tracker.increments() || (tracker.touched().empty() && tracker.erased().empty())) return false;
  tracker.touched().FreeSome();
  tracker.erased().FreeSome();
  extra_cost_ += kFreeCost;
  return true;
}

// False: both lists are sorted.
bool CutWalk::SortSome() {
  ChangeTracker& tracker = *table_->tracker();
  const bool erased = tracker.touched().empty();
  KeyList& list = erased ? tracker.erased() : tracker.touched();
  if (list.empty()) return false;
  std::optional<PartitionedKeys>& sorted = erased ? erased_ : touched_;
  if (!sorted.has_value()) sorted.emplace(partitions_);
  for (const Key key : list.TakeSome(kSortKeys)) sorted->Add(key);
  extra_cost_ += kSortKeys / kSortsPerRow;
  return true;
}

CutWalk::Next CutWalk::NextOfChanges() {
  if (SortSome()) return Next::kLater;
  if (!touched_.has_value() && !erased_.has_value()) return Next::kEnd;
  const auto has = [this](PartitionId p) {
    return (touched_.has_value() && touched_->Has(p)) || (erased_.has_value() && erased_->Has(p));
  };
  for (uint32_t skipped = 0; next_ < partitions_ && !has(next_); ++next_) {
    if (++skipped % kSkipsPerRow == 0) ++extra_cost_;
    if (skipped == kSkipsPerCall) {
      ++next_;
      return Next::kLater;
    }
  }
  if (next_ == partitions_) return Next::kEnd;
  partition_ = next_++;
  done_ = false;
  keys_.clear();
  if (touched_.has_value()) keys_ = touched_->Of(partition_);
  at_ = 0;
  return Next::kPartition;
}

void CutWalk::ScanRun(PartitionId first) {
  const std::vector<uint64_t>& counts = table_->tracker()->rows_at_cut();
  uint64_t sum = counts[first];
  run_first_ = first;
  run_end_ = first + 1;
  const uint64_t first_hash = shift_ == 64 ? 0 : uint64_t{first} << shift_;
  if (sum > kScanRows) {
    const int piece_bits = std::min(static_cast<int>(std::bit_width((sum - 1) / kScanRows)), shift_);
    pieces_left_ = uint64_t{1} << piece_bits;
    piece_hashes_ = shift_ == 64 ? (~uint64_t{0} >> piece_bits) + 1 : uint64_t{1} << (shift_ - piece_bits);
    next_hash_ = first_hash;
    starts_.assign(2, 0);
    return;
  }
  const PartitionId segment_end =
      PartitionOfHash(table_->store().LastHashOfSegment(first_hash), partitions_) + 1;
  while (run_end_ < partitions_ && run_end_ - first < kScanPartitions && sum + counts[run_end_] <= kScanRows) {
    if (run_end_ == segment_end && sum > kScanRows / 4) break;  // rather than scan two segments
    sum += counts[run_end_++];
  }
  const uint64_t after = shift_ == 64 ? 0 : uint64_t{run_end_} << shift_;  // 0: beyond the largest hash
  const size_t n = table_->store().CollectRowsOfHashes(first_hash, after - 1, &scanned_);
  const std::span<const KeyedRow> scanned = std::span(scanned_).first(n);
  extra_cost_ += kScanCost;

  starts_.assign(run_end_ - first + 1, 0);
  for (const KeyedRow& row : scanned) ++starts_[PartitionOf(row.key, partitions_) - first];
  size_t start = 0;
  for (size_t& entry : starts_) start += std::exchange(entry, start);
  if (rows_.size() < n) rows_.resize(n);
  rows_end_ = n;
  for (const KeyedRow& row : scanned) rows_[starts_[PartitionOf(row.key, partitions_) - first]++] = row;
  // Each start has moved on to the next one's.
  std::copy_backward(starts_.begin(), starts_.end() - 1, starts_.end());
  starts_[0] = 0;
}

bool CutWalk::Fill() {
  if (pieces_left_ == 0) return false;
  --pieces_left_;
  rows_end_ = table_->store().CollectRowsOfHashes(next_hash_, next_hash_ + (piece_hashes_ - 1), &rows_);
  next_hash_ += piece_hashes_;
  at_ = 0;
  end_ = rows_end_;
  extra_cost_ += kScanCost;
  return true;
}

size_t CutWalk::Advance(size_t n, const Emit* emit) {
  const size_t candidates = full_ ? end_ : keys_.size();
  if (at_ == candidates) {
    if (full_ && Fill()) return 0;
    return AdvanceCopies(n, emit);
  }
  n = std::min(n, candidates - at_);
  full_ ? AdvanceRows(n, emit) : AdvanceChanges(n, emit);
  return n;
}

void CutWalk::AdvanceRows(size_t n, const Emit* emit) {
  ChangeTracker& tracker = *table_->tracker();
  const size_t bytes = table_->layout().bytes();
  const size_t stop = at_ + n;
  for (size_t i = at_; i < std::min(at_ + kSweepAhead, stop); ++i) PrefetchRecord(rows_[i].row.record(), bytes);
  for (; at_ < stop; ++at_) {
    if (at_ + kSweepAhead < rows_end_) PrefetchRecord(rows_[at_ + kSweepAhead].row.record(), bytes);
    const KeyedRow& row = rows_[at_];
    if (tracker.TakeRow(row.row) && emit != nullptr) (*emit)(row.key, row.row.record());
  }
}

void CutWalk::AdvanceChanges(size_t n, const Emit* emit) {
  ChangeTracker& tracker = *table_->tracker();
  RowRef rows[kFindBatch];
  for (const size_t stop = at_ + n; at_ < stop;) {
    const std::span<const Key> batch = std::span(keys_).subspan(at_, std::min(kFindBatch, stop - at_));
    table_->store().Find(batch, rows);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!rows[i].found() || !tracker.TakeRow(rows[i])) continue;
      if (emit != nullptr) (*emit)(batch[i], rows[i].record());
    }
    at_ += batch.size();
  }
}

// No more of them come: all rows of the partition have been looked at.
size_t CutWalk::AdvanceCopies(size_t n, const Emit* emit) {
  ChangeTracker& tracker = *table_->tracker();
  RowCopies::Chain* const chain = tracker.copies(partition_);
  size_t copies = 0;
  if (emit == nullptr) *chain = nullptr;
  for (; *chain != nullptr && copies < n; ++copies) {
    (*emit)(RowCopies::KeyOf(*chain), RowCopies::RecordOf(*chain));
    tracker.copy_store().Pop(chain);
  }
  done_ = *chain == nullptr;
  return copies;
}

std::vector<Key> CutWalk::TakeErased() {
  std::vector<Key> erased;
  if (erased_.has_value()) erased = erased_->Of(partition_);
  std::sort(erased.begin(), erased.end());
  erased.erase(std::unique(erased.begin(), erased.end()), erased.end());
  return erased;
}

std::vector<MemoryBlock> CutWalk::TakeBlocks() {
  std::vector<MemoryBlock> blocks;
  for (std::optional<PartitionedKeys>* keys : {&touched_, &erased_}) {
    if (!keys->has_value()) continue;
    std::vector<MemoryBlock> some = (*keys)->TakeBlocks();
    std::move(some.begin(), some.end(), std::back_inserter(blocks));
  }
  return blocks;
}

size_t CutWalk::TakeExtraCost() { return std::exchange(extra_cost_, 0); }

}  // namespace capstan
