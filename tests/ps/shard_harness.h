// One ShardCore with its scheduler and workers played by the test.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "ps/shard_core.h"
#include "tests/support/core_testing.h"
#include "tests/support/fake_snapshot.h"

namespace capstan::testing {

inline constexpr PeerId kSchedulerPeer = 1;
inline constexpr PeerId kWorkerPeer = 2;

struct ShardPlay {
  ShardId shard = 0;
  bool writer = true;  // false: started without one
  FakeSnapshotOptions sink;
};

class ShardHarness {
 public:
  explicit ShardHarness(const JobOptions& options, bool start = true, FileSystem* disk = nullptr,
                        const ShardPlay& play = {})
      : options_(options),
        play_(play),
        memory_(NewMemoryFileSystem()),
        disk_(disk == nullptr ? *memory_ : *disk),
        sink_(disk_, play.sink),
        core_(ShardIdentity{kServerIncarnation, 0, "server-0/shard-0"}, outbox_, metrics_, Around()) {
    if (start) Start();
  }

  void Hello() {
    capstan::Hello hello;
    hello.set_shard(0);
    Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kHello, kServerIncarnation), hello));
  }
  capstan::Start StartOrder() const {
    capstan::Start start;
    *start.mutable_job() = SmallJob(options_);
    AddShardEndpoints(options_, start.mutable_job());
    for (Rank rank = 0; rank < options_.ranks; ++rank) {
      RankGrant* grant = start.add_grant();
      grant->set_rank(rank);
      grant->set_term(1);
    }
    start.set_shard(play_.shard);
    start.set_node_id(5);
    return start;
  }
  void Start() { Start(StartOrder()); }
  // The one answer to it; kNone if there was none or more than one.
  Sent Start(const capstan::Start& order) {
    Hello();
    outbox_.Take();
    Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kStart, kServerIncarnation), order));
    std::vector<Sent> sent = outbox_.Take();
    return sent.size() == 1 ? std::move(sent[0]) : Sent();
  }

  void Deliver(PeerId from, Message message) { core_.OnMessage(from, std::move(message), clock_.Now()); }
  void FromWorker(Message message) { Deliver(kWorkerPeer, std::move(message)); }
  void Tick(Duration after) {
    clock_.Advance(after);
    core_.Tick(clock_.Now());
  }
  // The one answer to a frame of a worker; kNone if there was none or more than one.
  Sent Ask(Message message) {
    outbox_.Take();
    FromWorker(std::move(message));
    std::vector<Sent> sent = outbox_.Take();
    return sent.size() == 1 ? std::move(sent[0]) : Sent();
  }
  NackCode RefusalOf(Message message) {
    const Sent answer = Ask(std::move(message));
    return answer.kind() == MessageKind::kNack ? static_cast<NackCode>(Body<Nack>(answer).code()) : NackCode{};
  }

  // The newest word about a checkpoint after the order, and after all slices that it takes.
  CutState Cut(const capstan::Cut& order) {
    const CutState first = CutWithoutWork(order);
    Work();
    const std::vector<Sent> said = outbox_.Take(MessageKind::kCutState);
    return said.empty() ? first : Body<CutState>(said.back());
  }
  CutState CutWithoutWork(const capstan::Cut& order) {
    outbox_.Take();
    Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kCut, kServerIncarnation), order));
    const std::vector<Sent> said = outbox_.Take(MessageKind::kCutState);
    return said.size() == 1 ? Body<CutState>(said[0]) : CutState();
  }
  void Abort(uint64_t id) {
    CutAbort abort;
    abort.set_id(id);
    Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kCutAbort, kServerIncarnation), abort));
  }
  void Work() {
    for (int i = 0; i < 1000 && core_.Work(clock_.Now()) < Duration::max(); ++i) {
    }
  }

  RecordingOutbox& outbox() { return outbox_; }
  FakeSnapshotSink& sink() { return sink_; }
  ShardCore& core() { return core_; }
  FileSystem& disk() { return disk_; }
  ManualClock& clock() { return clock_; }

 private:
  ShardSurroundings Around() {
    ShardSurroundings around;
    around.fs = &disk_;
    around.sink = play_.writer ? &sink_ : nullptr;
    around.open_source = FakeRowSources(disk_);
    return around;
  }

  const JobOptions options_;
  const ShardPlay play_;
  std::unique_ptr<FileSystem> memory_;
  FileSystem& disk_;
  FakeSnapshotSink sink_;
  RecordingOutbox outbox_;
  MetricsRegistry metrics_;
  ManualClock clock_;
  ShardCore core_;
};

}  // namespace capstan::testing
