#include "ps/snapshot_sweep.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "ps/change_tracker.h"
#include "ps/table.h"

namespace capstan {
namespace {

// What a slice may cost, in rows of up to 128 bytes; measured at about 0.05 ms.
constexpr size_t kCostPerSlice = 256;
constexpr size_t kBytesPerCost = 128;
constexpr size_t kOfferCost = 16;
constexpr size_t kOfferBytesPerCost = 1024;
constexpr PartitionId kCountsPerSlice = 4096;

}  // namespace

SnapshotSweep::SnapshotSweep(std::vector<Table*> tables) : tables_(std::move(tables)) {
  emit_ = [this](Key key, const std::byte* record) { AddRow(key, record); };
}
SnapshotSweep::~SnapshotSweep() = default;

absl::Status SnapshotSweep::Begin(SnapshotOrder order, const ShardRecord& record, bool full, SnapshotSink* sink,
                                  uint64_t copy_limit) {
  if (state_ != State::kIdle) {
    return Unavailable(fmt::format("checkpoint {}: the shard is still busy with checkpoint {}", order.id, id_));
  }
  if (!full && NeedsFull()) {
    return InvalidArgument(fmt::format("checkpoint {} wants the changes since the one before, which the shard does not "
                                       "know: ask for a full one",
                                       order.id));
  }
  id_ = order.id;
  base_ = 0;
  full_ = full;
  sink_ = sink;
  record_ = std::make_unique<ShardRecord>(record);
  record_->clear_rows();
  budget_.limit = copy_limit;
  budget_.peak = budget_.used;  // blocks not freed yet count as well
  budget_.failure = absl::OkStatus();
  counts_ = Counts();
  result_.reset();
  order.tables.clear();
  uint64_t bytes = 0;
  for (Table* const table : tables_) {
    const auto floats = static_cast<uint32_t>(table->layout().floats());
    order.tables.push_back({table->shape().id, floats});
    bytes += table->store().rows() * (kStoredKeyBytes + StoredValueBytes(floats));
    table->tracker()->Cut(full, &budget_);
  }
  if (full) order.expected_bytes = std::max(order.expected_bytes, bytes);
  fill_table_ = 0;
  fill_partition_ = 0;
  finish_sent_ = false;
  table_ = 0;
  walk_.reset();
  state_ = State::kSweeping;
  sink_->Begin(order);
  NextTable();
  return absl::OkStatus();
}

uint64_t SnapshotSweep::free_copy_bytes() const {
  uint64_t bytes = 0;
  for (Table* const table : tables_) bytes += table->tracker()->copy_store().free_bytes();
  return bytes;
}

bool SnapshotSweep::Step() {
  switch (state_) {
    case State::kIdle:
      return FreeBlock();
    case State::kFinishing:
      return FinishStep();
    case State::kSweeping:
    case State::kDrying:
      return Slice();
  }
  return false;
}

bool SnapshotSweep::Slice() {
  if (state_ == State::kSweeping) LookForFailure();
  bool did = FreeBlock();
  size_t left = kCostPerSlice;
  while (left > 0 && (state_ == State::kSweeping || state_ == State::kDrying)) {
    size_t cost = kOfferCost;
    if (state_ == State::kSweeping && (place_ == Place::kEnd || buffer_full_)) {
      cost += buffer_.size() / kOfferBytesPerCost;
      if (!Offer()) return did;
    } else {
      cost = Advance(left);
    }
    did = true;
    left -= std::min(left, std::max<size_t>(cost, 1));
  }
  return did;
}

// Towards the next chunk. Returns what it cost.
size_t SnapshotSweep::Advance(size_t cost_left) {
  if (place_ == Place::kEnd) {  // dry
    walk_->TakeErased();
    place_ = Place::kBetween;
  }
  if (place_ == Place::kRows) return AdvanceRows(cost_left);
  switch (walk_->NextPartition()) {
    case CutWalk::Next::kPartition:
      place_ = Place::kRows;
      partition_rows_ = 0;
      digest_ = ContentDigest();
      break;
    case CutWalk::Next::kLater:
      break;
    case CutWalk::Next::kEnd:
      ++table_;
      NextTable();
      return 1;
  }
  return 1 + walk_->TakeExtraCost();
}

size_t SnapshotSweep::AdvanceRows(size_t cost_left) {
  const bool dry = state_ == State::kDrying;
  const size_t row_cost = dry ? 1 : std::max<size_t>(stored_bytes() / kBytesPerCost, 1);
  size_t n = std::max<size_t>(cost_left / row_cost, 1);
  if (dry) {
    n = walk_->Skip(n);
  } else {
    n = std::min(n, (buffer_limit_ - buffer_.size()) / stored_bytes());
    n = walk_->Rows(n, emit_);
    buffer_full_ = buffer_.size() == buffer_limit_;
  }
  if (walk_->PartitionDone()) EndPartition();
  return n * row_cost + walk_->TakeExtraCost();
}

void SnapshotSweep::EndPartition() {
  place_ = Place::kEnd;
  if (state_ == State::kDrying) return;
  deleted_ = walk_->TakeErased();
  deleted_sent_ = 0;
  if (!full_) return;
  const Table& table = *tables_[table_];
  const uint64_t wanted = table.tracker()->rows_at_cut()[walk_->partition()];
  if (partition_rows_ == wanted) return;
  sink_->Abort();
  GiveUp(Internal(fmt::format("checkpoint {}: {} rows of table '{}', partition {}, but there were {} at the cut: a bug",
                              id_, partition_rows_, table.shape().name, walk_->partition(), wanted)));
}

void SnapshotSweep::AddRow(Key key, const std::byte* record) {
  const size_t value_bytes = StoredValueBytes(floats_);
  const size_t at = buffer_.size();
  buffer_.resize(at + sizeof(key) + value_bytes);
  std::byte* const stored = buffer_.data() + at;
  std::memcpy(stored, &key, sizeof(key));
  std::byte* const value = stored + sizeof(key);
  std::memcpy(value, record, value_bytes);
  std::byte* const counters = value + size_t{floats_} * sizeof(float);
  RowCounters marked;
  std::memcpy(&marked, counters, sizeof(marked));
  const uint32_t updates = marked.updates;
  std::memcpy(counters + sizeof(marked.last_step), &updates, sizeof(updates));
  digest_.AddRecord(tables_[table_]->shape().id, stored, sizeof(key) + value_bytes);
  ++partition_rows_;
}

// The buffer, and at the end of a partition its deletions. False: the sink has no room.
bool SnapshotSweep::Offer() {
  SnapshotChunk chunk;
  chunk.table = tables_[table_]->shape().id;
  chunk.partition = walk_->partition();
  chunk.floats = floats_;
  chunk.rows = buffer_;
  if (place_ == Place::kEnd) {
    const size_t room = SnapshotSink::kMaxChunkBytes - std::min(buffer_.size(), SnapshotSink::kMaxChunkBytes);
    const size_t unsent = deleted_.size() - deleted_sent_;
    chunk.deleted = std::span(deleted_).subspan(deleted_sent_, std::min(unsent, room / sizeof(Key)));
    chunk.last = chunk.deleted.size() == unsent;
  }
  if (chunk.last) {
    chunk.partition_rows = partition_rows_;
    chunk.digest = digest_;
  }
  const bool nothing = chunk.last && partition_rows_ == 0 && deleted_.empty();
  if (!nothing && !sink_->Offer(chunk)) return false;
  counts_.rows += buffer_.size() / stored_bytes();
  counts_.deleted += chunk.deleted.size();
  counts_.bytes += buffer_.size() + chunk.deleted.size_bytes();
  buffer_.clear();
  buffer_full_ = false;
  deleted_sent_ += chunk.deleted.size();
  if (chunk.last) place_ = Place::kBetween;
  return true;
}

// Begins table_, and gives back the memory of the one before it, whose copies have all been handed over.
void SnapshotSweep::NextTable() {
  if (table_ > 0) {
    DropCopies(tables_[table_ - 1]);
    std::vector<MemoryBlock> blocks = walk_->TakeBlocks();
    std::move(blocks.begin(), blocks.end(), std::back_inserter(list_garbage_));
  }
  if (table_ < tables_.size()) {
    floats_ = static_cast<uint32_t>(tables_[table_]->layout().floats());
    walk_.emplace(tables_[table_], full_);
    place_ = Place::kBetween;
    buffer_ = std::vector<std::byte>();
    buffer_limit_ = std::max(SnapshotSink::kMaxChunkBytes / stored_bytes(), size_t{1}) * stored_bytes();
    buffer_.reserve(buffer_limit_);
    buffer_full_ = false;
    return;
  }
  walk_.reset();
  buffer_ = std::vector<std::byte>();
  deleted_ = std::vector<Key>();
  EndTrackers();
  state_ = state_ == State::kSweeping ? State::kFinishing : State::kIdle;
}

void SnapshotSweep::EndTrackers() {
  for (Table* const table : tables_) table->tracker()->EndSweep(state_ == State::kSweeping);
}

bool SnapshotSweep::FinishStep() {
  if (FreeBlock() || FillRows()) return true;
  if (!finish_sent_) {
    finish_sent_ = sink_->Finish(*record_);
    if (finish_sent_) return true;
  }
  std::optional<SnapshotResult> result = sink_->Poll();
  if (!result.has_value()) return false;
  if (result->status.ok() && !finish_sent_) {
    result->status = Internal(fmt::format("checkpoint {}: the writer says done before it had everything", id_));
  }
  const bool lists = std::all_of(tables_.begin(), tables_.end(), [](Table* t) { return t->tracker()->increments(); });
  if (result->status.ok()) {
    if (lists) base_ = id_;
  } else {
    for (Table* const table : tables_) table->tracker()->StopListing();
  }
  result_ = std::move(result);
  record_.reset();
  sink_ = nullptr;
  state_ = State::kIdle;
  return true;
}

// The rows that there were at the cut, by table and partition, into the record. False: they are all there.
bool SnapshotSweep::FillRows() {
  if (fill_table_ == tables_.size()) return false;
  Table& table = *tables_[fill_table_];
  const std::vector<uint64_t>& rows = table.tracker()->rows_at_cut();
  const auto partitions = static_cast<PartitionId>(rows.size());
  const PartitionId stop = std::min(partitions - fill_partition_, kCountsPerSlice) + fill_partition_;
  for (; fill_partition_ < stop; ++fill_partition_) {
    if (rows[fill_partition_] == 0) continue;
    PartitionRows* const entry = record_->add_rows();
    entry->set_table(table.shape().id);
    entry->set_partition(fill_partition_);
    entry->set_rows(rows[fill_partition_]);
  }
  if (fill_partition_ == partitions) {
    ++fill_table_;
    fill_partition_ = 0;
  }
  return true;
}

void SnapshotSweep::DropCopies(Table* table) {
  std::vector<MemoryBlock> blocks = table->tracker()->copy_store().TakeBlocks();
  std::move(blocks.begin(), blocks.end(), std::back_inserter(copy_garbage_));
}

bool SnapshotSweep::FreeBlock() {
  if (!copy_garbage_.empty()) {
    budget_.used -= copy_garbage_.back().size();
    copy_garbage_.pop_back();
    return true;
  }
  if (list_garbage_.empty()) return false;
  list_garbage_.pop_back();
  return true;
}

void SnapshotSweep::LookForFailure() {
  if (!budget_.failure.ok()) {
    sink_->Abort();
    GiveUp(While(fmt::format("checkpoint {}", id_), budget_.failure));
    return;
  }
  std::optional<SnapshotResult> result = sink_->Poll();
  if (!result.has_value()) return;
  if (result->status.ok()) {
    sink_->Abort();
    GiveUp(Internal(fmt::format("checkpoint {}: the writer says done before it had everything", id_)));
  } else {
    GiveUp(result->status);
  }
}

void SnapshotSweep::GiveUp(const absl::Status& why) {
  if (!why.ok()) {
    result_.emplace();
    result_->id = id_;
    result_->status = why;
  }
  sink_ = nullptr;
  record_.reset();
  if (budget_.failure.ok()) budget_.failure = Aborted("the checkpoint was given up");
  for (Table* const table : tables_) DropCopies(table);  // the walk forgets the chains as it meets them
  buffer_.clear();
  buffer_full_ = false;
  deleted_.clear();
  state_ = State::kDrying;
}

void SnapshotSweep::Abandon() {
  base_ = 0;
  result_.reset();
  if (state_ == State::kSweeping) {
    sink_->Abort();
    GiveUp(absl::OkStatus());
  } else if (state_ == State::kFinishing) {
    sink_->Abort();
    sink_ = nullptr;
    record_.reset();
    state_ = State::kIdle;
  }
  if (state_ == State::kIdle) {
    for (Table* const table : tables_) table->tracker()->StopListing();
  }
}

std::optional<SnapshotResult> SnapshotSweep::TakeResult() { return std::exchange(result_, std::nullopt); }

}  // namespace capstan
