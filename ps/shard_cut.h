// The checkpoint side of a shard: waits for the moment that a CUT names, takes it, hands the rows out in small slices
// and reports. Decides without I/O: rows go to a SnapshotSink. One thread, the shard's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/file_system.h"
#include "ps/snapshot_sink.h"

namespace capstan {

class Cut;
class CutState;
class Progress;
class ShardState;
class SnapshotSweep;

class ShardCut {
 public:
  // sink: nullptr where there is no checkpoint writer; every order then fails by name. fs: to see that the root of the
  // order is the scheduler's.
  ShardCut(std::string shard_name, SnapshotSink* sink, FileSystem& fs);
  ~ShardCut();

  // An order. A repeat changes nothing; a lower id than the newest is stale. If its moment is now, the cut is taken.
  void OnOrder(const Cut& order, ShardState& state, uint64_t copy_bytes);
  void OnAbort(uint64_t id);
  // After every operation that changed the state's version or epoch: the moment may have come.
  void OnVersion(ShardState& state);
  // One slice of what there is to do. True: there is more that can be done right now.
  bool Work(ShardState& state);

  // What to tell the scheduler about its newest order; no id: there was none.
  CutState Report() const;
  // True once after the state of the newest order has changed: time to report unasked.
  bool TakeNews();
  bool busy() const;                // rows are being handed out, or freed
  // Memory for copies of rows that changed during the cut, as a share of what it may be: 0 … 1. From kHoldPushes on
  // updates should wait for the sweep, or the cut is lost.
  double copies_filled() const;
  static constexpr double kHoldPushes = 0.85;
  // Of it, what is not handed over yet. From kSlowDown on the sweep comes first, from kHurry on the sink hurries.
  double copies_unsent() const;
  static constexpr double kSlowDown = 0.7, kHurry = 0.7;
  void SetPace(SinkPace pace);      // of the sink, while it has a cut
  uint64_t handed_over() const;     // bytes, of the newest cut
  void GiveUp(const std::string& why);

 private:
  enum class Stage { kNone, kWaiting, kWriting, kWritten, kTooLate, kFailed };
  void Check(ShardState& state);
  void Take(ShardState& state);
  void Fail(const std::string& error);
  void Become(Stage stage);

  const std::string name_;
  SnapshotSink* const sink_;
  FileSystem& fs_;
  std::unique_ptr<Cut> order_;
  Stage stage_ = Stage::kNone;
  bool news_ = false;
  uint64_t copy_bytes_ = 0;
  bool full_ = true;
  uint64_t cut_version_ = 0;
  std::string error_;
  std::unique_ptr<Progress> totals_;   // at the cut, on the home shard
  SnapshotResult result_;
  std::unique_ptr<SnapshotSweep> sweep_;
};

}  // namespace capstan
