// Checkpoints without RocksDB and without a process: the snapshot sink and the row source of the simulator and of the
// cores' tests. Part folders are as the real ones (records, names, sizes, hashes, digests), only the files of a layer
// hold a plain list of records. Owned by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "proto/checkpoint.pb.h"
#include "ps/snapshot_sink.h"
#include "storage/checkpoint_format.h"

namespace capstan::testing {

struct FakeSnapshotOptions {
  uint64_t seed = 1;
  uint32_t delay_polls = 0;   // a result, good or bad, appears only after so many polls without one
  double refuse = 0;          // the share of Offer and Finish calls that find no room
  double fail = 0;            // the share of snapshots that fail, at any moment from Begin's return to Finish
};

class FakeSnapshotSink final : public SnapshotSink {
 public:
  // `fs` outlives the sink.
  explicit FakeSnapshotSink(FileSystem& fs, const FakeSnapshotOptions& options = {});

  void SetPace(SinkPace pace) override { pace_ = pace; }
  void Begin(const SnapshotOrder& order) override;
  bool Offer(const SnapshotChunk& chunk) override;
  bool Finish(const ShardRecord& record) override;
  void Abort() override;
  std::optional<SnapshotResult> Poll() override;

  // The snapshot that is under way, or else the next one, fails with this.
  void FailWith(const absl::Status& status) {
    planned_failure_ = status;
    calls_to_failure_ = 0;
  }
  bool active() const { return active_; }
  SinkPace pace() const { return pace_; }
  uint64_t snapshots() const { return snapshots_; }  // results without an error

 private:
  struct Part {
    std::map<Key, std::string> puts;  // values as stored
    std::set<Key> deletes;
  };

  bool Refuse();
  void MaybeFail();
  void Fail(const absl::Status& status);
  absl::Status Take(const SnapshotChunk& chunk);
  absl::Status CheckPlace(const SnapshotChunk& chunk);
  absl::Status Write(const ShardRecord& record);
  absl::Status LinkParent(ShardRecord* record);
  absl::Status WriteLayer(ShardRecord* record);
  void RemoveFolder();

  FileSystem& fs_;
  const FakeSnapshotOptions options_;
  std::mt19937_64 random_;
  std::optional<absl::Status> planned_failure_;
  uint64_t calls_to_failure_ = 0;
  bool active_ = false;
  SinkPace pace_ = SinkPace::kIdle;
  bool told_all_ = false;  // Finish was accepted, or it failed: nothing more is taken
  SnapshotOrder order_;
  std::map<std::pair<TableId, PartitionId>, Part> parts_;
  std::optional<std::pair<TableId, PartitionId>> place_;  // of the newest chunk
  bool place_ended_ = false;
  uint32_t polls_left_ = 0;
  std::optional<SnapshotResult> result_;
  uint64_t snapshots_ = 0;
};

// Opens checkpoint folders with parts of FakeSnapshotSinks: all layers merged. kNotFound: no part there; kDataLoss: a
// record or a file is damaged, or its rows are not those of the record. `fs` outlives the sources.
OpenRowSource FakeRowSources(FileSystem& fs);

}  // namespace capstan::testing
