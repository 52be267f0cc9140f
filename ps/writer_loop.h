// The checkpoint writer's main loop: takes records from the ring, sleeps when there are none, answers the shard, and
// ends when the server does.
//
// It has a thread for each pace, one of which works at a time, because a thread that has stepped back may not step
// forward again (sched(7), RLIMIT_NICE). They change over between two records.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/status.h"
#include "ps/snapshot_ring.h"
#include "ps/snapshot_writer.h"

namespace capstan {

class WriterLoop {
 public:
  // channel: kWriterChannelFd's socket.
  WriterLoop(std::unique_ptr<SnapshotRing> ring, int channel, const SnapshotWriterOptions& options)
      : ring_(std::move(ring)), channel_(channel), writer_(options) {}

  // Until the server's end of the channel is closed. What is not finished is removed. The exit code.
  int Run();
  // For a thread that watches the server: Run returns soon.
  void AskToStop() {
    stop_ = true;
    writer_.AskToStop();
  }

 private:
  void RunAt(SinkPace pace);
  std::optional<int> TakeRecords(SinkPace pace);  // the exit code; nothing: another thread goes on
  bool TakeRecord();                              // false: the ring is broken
  SinkPace WantedPace() const;
  void LookForAbort();
  void Sleep();
  absl::Status Handle(const RingRecord& record);
  absl::Status HandleOrder();
  absl::Status HandleChunk(const RingRecord& record);
  absl::Status HandleRecord();
  bool TakePiece(const RingRecord& record);
  void Answer(const absl::StatusOr<SnapshotResult>& result);

  const std::unique_ptr<SnapshotRing> ring_;
  const int channel_;
  SnapshotWriter writer_;
  std::atomic<bool> stop_ = false;
  uint64_t snapshot_ = 0;      // whose records are taken
  bool open_ = false;          // begun, neither answered nor given up
  uint64_t seen_aborted_ = 0;
  std::string text_;           // pieces of an order or a record

  std::mutex mutex_;           // of the two below; everything above belongs to the thread whose turn it is
  std::condition_variable changed_;
  SinkPace turn_ = SinkPace::kNormal;
  std::optional<int> code_;    // it ends
};

}  // namespace capstan
