// Hands a consistent cut of a shard's tables to a sink in slices of well under a millisecond, while training goes on
// between them. The shard's thread calls; nothing blocks, no failure stops training.
//
//   sweep.Begin(…)         at the moment of the cut, between two updates
//   sweep.Step()           again and again, between frames
//   sweep.TakeResult()     once per cut that was begun and not abandoned
//
// After a failure the sweep goes on without the sink until the rows' marks are consistent again; the next cut is then a
// full one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/status.h"
#include "ps/cut_walk.h"
#include "ps/row_copies.h"
#include "ps/snapshot_sink.h"

namespace capstan {

class Table;

class SnapshotSweep {
 public:
  // By rising id, all tracked (Table::Track), for the same number of partitions; they outlive the sweep.
  explicit SnapshotSweep(std::vector<Table*> tables);
  ~SnapshotSweep();

  enum class State {
    kIdle,
    kSweeping,   // rows go to the sink
    kFinishing,  // all rows are with the sink; it has to complete the files
    kDrying,     // given up; no cut can begin before the marks are consistent
  };
  State state() const { return state_; }

  // The cut that an increment would hold the changes since; 0: there is none, the next cut has to be a full one. A cut
  // becomes the base once it was written.
  uint64_t base() const { return base_; }
  bool NeedsFull() const { return base_ == 0; }

  // The cut is now. record: everything of the ShardRecord but layers and rows. copy_limit: bytes of memory for rows
  // that change before they were handed over, for all tables together. order.tables need not be filled in, and
  // order.expected_bytes is raised to what the rows take. kInvalidArgument: an increment without a base;
  // kUnavailable: the state is not kIdle.
  absl::Status Begin(SnapshotOrder order, const ShardRecord& record, bool full, SnapshotSink* sink,
                     uint64_t copy_limit);

  // One slice. False: there was nothing to do, or the sink has no room now. Also frees memory when idle.
  bool Step();

  // The cut under way is given up; without one, the last one does not count any more: the next cut is a full one.
  void Abandon();

  // How the cut ended: written, or why not (the sweep may then still be drying).
  std::optional<SnapshotResult> TakeResult();

  struct Counts {  // of the newest cut, so far
    uint64_t rows = 0;
    uint64_t deleted = 0;
    uint64_t bytes = 0;
  };
  const Counts& counts() const { return counts_; }
  uint64_t copy_bytes() const { return budget_.used; }
  uint64_t free_copy_bytes() const;  // of those, places whose copies have been handed over
  uint64_t copy_limit() const { return budget_.limit; }
  uint64_t peak_copy_bytes() const { return budget_.peak; }  // of the newest cut

 private:
  enum class Place { kBetween, kRows, kEnd };  // partitions; rows of one; all its rows are in the buffer or gone

  bool Slice();
  size_t Advance(size_t cost_left);
  size_t AdvanceRows(size_t cost_left);
  void EndPartition();
  bool Offer();
  void NextTable();
  void DropCopies(Table* table);
  bool FinishStep();
  bool FillRows();
  bool FreeBlock();
  void AddRow(Key key, const std::byte* record);
  void LookForFailure();
  void GiveUp(const absl::Status& why);  // ok: nobody waits for a result
  void EndTrackers();
  size_t stored_bytes() const { return sizeof(Key) + StoredValueBytes(floats_); }

  const std::vector<Table*> tables_;
  State state_ = State::kIdle;
  uint64_t base_ = 0;
  uint64_t id_ = 0;
  SnapshotSink* sink_ = nullptr;
  std::unique_ptr<ShardRecord> record_;
  CopyBudget budget_;
  Counts counts_;
  std::optional<SnapshotResult> result_;
  bool full_ = false;

  size_t table_ = 0;  // of tables_, the one under way
  uint32_t floats_ = 0;
  std::optional<CutWalk> walk_;
  CutWalk::Emit emit_;
  Place place_ = Place::kBetween;
  size_t buffer_limit_ = 0;  // whole records
  bool buffer_full_ = false;
  std::vector<std::byte> buffer_;  // the chunk being made: records as stored
  std::vector<Key> deleted_;       // of the partition
  size_t deleted_sent_ = 0;
  uint64_t partition_rows_ = 0;
  ContentDigest digest_;

  size_t fill_table_ = 0;  // the record's row counts are written a few at a time
  PartitionId fill_partition_ = 0;
  bool finish_sent_ = false;
  std::vector<MemoryBlock> copy_garbage_;  // freed one a slice
  std::vector<MemoryBlock> list_garbage_;
};

}  // namespace capstan
