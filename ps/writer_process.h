// The snapshot sink of a real server: a process of its own that writes the shard's part of a checkpoint, fed through
// shared memory. RocksDB may abort there (Debian's has live asserts, and a full disk sets them off): the shard's memory
// survives, the snapshot fails with the cause, and the next one gets a new process.
//
// The writer (ps/checkpoint_writer_main.cc) works at the pace it is told (ps/writer_loop.h) and ends when its server
// ends, however that ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "ps/snapshot_ring.h"
#include "ps/snapshot_sink.h"

namespace capstan {

struct WriterProcessOptions {
  size_t ring_bytes = SnapshotRing::kDefaultBytes;
  bool sync = true;                               // files and folders reach the disk before the result
  uint64_t reserve_bytes = uint64_t{64} << 20;    // stay free on the disk, besides what the checkpoint needs
  uint32_t compact_layers = 8;                    // a chain this long is merged in the background; 0: never
};

// One thread: the shard's. Nothing here waits, but for Start and a Begin after the writer died (the start of a
// process, about a millisecond whatever the size of ours) and the destructor (the end of one, at most seconds).
class WriterProcess final : public SnapshotSink {
 public:
  // program: path of capstan-checkpoint-writer. Start it before the tables grow. kNotFound, kUnavailable: it does not
  // start; says why.
  static absl::StatusOr<std::unique_ptr<WriterProcess>> Start(const std::string& program,
                                                              const WriterProcessOptions& options = {});
  ~WriterProcess() override;
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  void Begin(const SnapshotOrder& order) override;
  void SetPace(SinkPace pace) override { ring_->SetPace(pace); }
  bool Offer(const SnapshotChunk& chunk) override;
  bool Finish(const ShardRecord& record) override;
  void Abort() override;
  std::optional<SnapshotResult> Poll() override;

  pid_t pid() const { return pid_; }  // -1: it died and was not needed since

 private:
  WriterProcess(std::string program, const WriterProcessOptions& options);
  absl::Status Spawn();
  void Queue(RingKind kind, std::string bytes);
  bool FlushQueue();
  void WakeWriter();
  void ReceiveAnswers();
  void LookForDeath();
  void Fail(const absl::Status& status);
  void CloseChannel();
  void End();

  const std::string program_;
  const WriterProcessOptions options_;
  std::unique_ptr<SnapshotRing> ring_;
  int channel_ = -1;           // wake-ups to the writer, answers from it; its end ends the writer
  pid_t pid_ = -1;
  bool closed_ = false;        // the writer's end of the channel is gone: it died, or is about to
  uint64_t snapshot_ = 0;      // number of the newest
  uint64_t order_id_ = 0;
  bool active_ = false;
  bool finished_ = false;      // Finish was accepted
  std::optional<SnapshotResult> result_;
  // The order or the record, as far as they did not find room yet.
  RingKind queued_kind_ = RingKind::kOrder;
  bool queue_waits_ = false;   // a piece is to come, be it an empty one
  std::string queued_;
  size_t queued_sent_ = 0;
};

}  // namespace capstan
