// The decisions of one shard: what to apply, what to answer, what to refuse. No socket, thread, clock or file of its
// own: messages and time go in, messages come out. Single-threaded.
#pragma once

#include <compare>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/file_system.h"
#include "common/metrics.h"
#include "proto/control_frame.h"
#include "proto/section.h"
#include "ps/push_assembler.h"
#include "ps/shard_cut.h"
#include "ps/shard_state.h"
#include "transport/outbox.h"

namespace capstan {

class EffectiveJob;
class Progress;
class Start;

struct ShardIdentity {
  Incarnation incarnation = 0;      // of the server process
  uint32_t shard_in_server = 0;     // for messages before the shard map is known
  std::string name;                 // "server-0/shard-1"
};

// What a shard has around it besides frames and time. All outlive the core.
struct ShardSurroundings {
  FileSystem* fs = nullptr;
  SnapshotSink* sink = nullptr;         // for the rows of checkpoints; nullptr: every CUT fails by name
  OpenRowSource open_source;            // for START from a checkpoint; may be empty
  std::function<void()> alive;          // called now and then while START reads a checkpoint; may be empty
};

class ShardCore {
 public:
  ShardCore(ShardIdentity identity, Outbox& outbox, MetricsRegistry& metrics, ShardSurroundings surroundings);
  ~ShardCore();

  // `message` passed the transport's checks and nothing else: any field may be wrong, none can abort the process.
  void OnMessage(PeerId from, Message message, Time now);
  // At least every 100 ms: tells parked pulls whom they wait for, and the scheduler how far training is.
  void Tick(Time now);
  // A slice of what is done beside the messages: rows of a checkpoint. Says how long the loop may wait for frames
  // before the next one: zero where there is more to do now, less than zero where it must not wait for quiet moments.
  Duration Work(Time now);

  const ShardState* state() const { return state_.get(); }  // nullptr before START
  std::string WaitingFor() const;              // for heartbeats and logs; empty: for nobody
  size_t held_bytes() const;                   // of pushes not yet applied and of parked pulls, about
  size_t parked() const { return parked_.size(); }
  // The job's consistency protocol was violated by a peer so often; 0 in every correct run.
  uint64_t violations() const { return violations_.value(); }

 private:
  struct ParkedId {
    Rank rank = 0;
    NodeId node = 0;
    Incarnation incarnation = 0;
    uint64_t request = 0;
    uint16_t part = 0;
    auto operator<=>(const ParkedId&) const = default;
  };
  enum class ParkReason { kVersion };          // later: rows being read from disk, a partition moving
  struct Parked {
    PeerId from;
    FrameHeader header;
    BodyView body;
    std::vector<ParkReason> reasons;
    Time next_word;                            // when to tell it again that it waits
    size_t bytes;
  };
  using ParkedPulls = std::map<ParkedId, Parked>;

  // Control.
  void OnHello(PeerId from, const Message& message);
  void OnStart(PeerId from, const Message& message);
  absl::Status Build(const Start& start, Generation generation);
  void OnLeaseClose(PeerId from, const Message& message);
  absl::Status LoadCheckpoint(const Start& start);
  void OnCut(PeerId from, const Message& message);
  void OnCutAbort(PeerId from, const Message& message);
  void SendCutState(PeerId to, const FrameHeader& request);
  void SetPace(Time now);
  bool HoldPush(PeerId from, const Message& message);     // true: it waits for the sweep of a cut
  void ReleasePushes(Time now);
  void CheckSweep(Time now);
  bool FromScheduler(PeerId from, const FrameHeader& header);
  // Data.
  bool Admit(PeerId from, const FrameHeader& header);     // job, generation, incarnation, map, rank, term
  void OnPull(PeerId from, Message message, Time now);
  void Park(PeerId from, const FrameHeader& header, BodyView body, Time now);
  bool DropOlderPulls(const ParkedId& id);                // false: `id` itself is older than what is parked
  ParkedPulls::iterator Unpark(ParkedPulls::iterator parked);
  void OnPush(PeerId from, Message message);
  void Acknowledge(PeerId from, const FrameHeader& header);
  void OnCommit(PeerId from, const Message& message);
  void OnCompletePush(PeerId from, const FrameHeader& header, PushRecord push);
  bool KeepSyncPush(PeerId from, const FrameHeader& header, PushRecord push);  // false: refused
  bool ApplyPush(PeerId from, const FrameHeader& header, PushRecord push);
  bool Commit(PeerId from, const FrameHeader& header);    // the header's `done`
  void Advance();                                         // applies what is ready, answers who may go on
  void Answer(PeerId to, const FrameHeader& request, const BodyView& body);

  FrameHeader ReplyHeader(MessageKind kind, const FrameHeader& request) const;
  void Reply(PeerId to, FrameHeader header, Buffer body, uint16_t sections);
  template <typename Proto>
  void ReplyProto(PeerId to, MessageKind kind, const FrameHeader& request, const Proto& proto);
  void Refuse(PeerId to, const FrameHeader& request, NackCode code, std::string reason, uint64_t needed = 0);
  void FillProgress(Progress* progress) const;
  void SendProgress(Time now);

  const ShardIdentity identity_;
  Outbox& outbox_;
  const ShardSurroundings surroundings_;
  Counter& violations_;
  Counter& refused_;
  Counter& stale_;
  Counter& pulls_;
  Counter& pushes_;

  JobId job_ = 0;
  NodeId node_ = kNoNode;
  Generation generation_ = 0;
  uint32_t map_epoch_ = 0;
  ShardId shard_ = 0;
  std::unique_ptr<ShardState> state_;
  size_t buffer_limit_ = 0;
  PushAssembler assembler_;
  ParkedPulls parked_;
  size_t parked_bytes_ = 0;
  bool overloaded_ = false;                    // the last push that came was refused for want of room
  ControlJoiner start_;
  PeerId scheduler_ = kNoPeer;
  Incarnation scheduler_incarnation_ = 0;
  Time next_progress_{};
  uint64_t reported_lsn_ = 0;
  ShardCut cut_;
  uint64_t copy_bytes_ = 0;                    // checkpoint.copy_bytes
  std::deque<std::pair<PeerId, Message>> held_pushes_;
  size_t held_push_bytes_ = 0;
  Time cut_began_{};
  Time trained_{};                             // when the state changed last
  uint64_t trained_lsn_ = 0;
  Time sweep_moved_{};                         // when rows were handed over last while pushes are held
  uint64_t sweep_bytes_ = 0;
};

}  // namespace capstan
