// One SchedulerCore with servers and workers played by the test.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "scheduler/scheduler_core.h"
#include "fake_checkpoint_store.h"
#include "tests/support/core_testing.h"

namespace capstan::testing {

class RecordedEvents final : public SchedulerEvents {
 public:
  void OnPhase(const std::string& what) override { phases.push_back(what); }
  void OnTraining() override { ++trainings; }
  void OnProgress(const ProgressReport&) override { ++reports; }
  void OnCheckpoint(const CheckpointEntry& entry, const std::string&) override { checkpoints.push_back(entry.id); }
  std::vector<std::string> phases;
  int trainings = 0, reports = 0;
  std::vector<uint64_t> checkpoints;
};

struct Member {
  Role role = WORKER;
  std::string name;
  Incarnation incarnation = 0;
  PeerId peer = kNoPeer;
  uint32_t shards = 0;
};

class SchedulerHarness {
 public:
  explicit SchedulerHarness(const JobOptions& options, bool heartbeats = false, const SchedulerOptions::From& from = {})
      : options_(options), core_(Options(heartbeats, from), SmallJob(options), outbox_, metrics_, events_) {
    core_.Tick(clock_.Now());
  }

  Member Server(uint32_t i) const {
    return {SERVER, "server-" + std::to_string(i), kServerIncarnation + i, 10 + i, options_.shards};
  }
  Member Worker(uint32_t i) const { return {WORKER, "worker-" + std::to_string(i), kWorkerIncarnation + i, 50 + i, 0}; }
  std::string Endpoint(const Member& member, uint32_t shard) const {
    return "test://" + member.name + "/shard-" + std::to_string(shard);
  }

  capstan::Join JoinOf(const Member& member) const {
    capstan::Join join;
    join.set_role(member.role);
    join.set_name(member.name);
    join.set_host("host");
    join.set_pid(1);
    join.set_version("1.0");
    join.set_cpu_isa("avx2");
    for (uint32_t i = 0; i < member.shards; ++i) join.add_shard_endpoint(Endpoint(member, i));
    return join;
  }
  JoinReply Join(const Member& member, const capstan::Join& join) {
    FrameHeader header;
    header.kind = static_cast<uint16_t>(MessageKind::kJoin);
    header.src_incarnation = member.incarnation;
    outbox_.Take();
    Deliver(member.peer, MakeControl(header, join));
    const std::vector<Sent> replies = outbox_.Take(MessageKind::kJoinReply);
    return replies.size() == 1 ? Body<JoinReply>(replies[0]) : JoinReply();
  }
  JoinReply Join(const Member& member) { return Join(member, JoinOf(member)); }

  // The header of a frame from a member that has joined as number `id`.
  FrameHeader From(const Member& member, NodeId id, MessageKind kind) const {
    FrameHeader header;
    header.kind = static_cast<uint16_t>(kind);
    header.job = kJob;
    header.src_node = id;
    header.src_incarnation = member.incarnation;
    header.dst_incarnation = kSchedulerIncarnation;
    return header;
  }
  template <typename Proto>
  void Send(const Member& member, NodeId id, MessageKind kind, const Proto& proto) {
    Deliver(member.peer, MakeControl(From(member, id, kind), proto));
  }
  template <typename Proto>
  void SendFromShard(const Member& server, uint32_t shard, MessageKind kind, const Proto& proto) {
    Deliver(outbox_.Connect(Endpoint(server, shard)), MakeControl(From(server, 1, kind), proto));
  }
  void Deliver(PeerId from, const Message& message) { core_.OnMessage(from, message, clock_.Now()); }
  void Tick(Duration after) {
    clock_.Advance(after);
    core_.Tick(clock_.Now());
  }
  // Moves time in steps as the node's loop does.
  void Wait(Duration duration) {
    for (Duration step = std::chrono::milliseconds(500); duration > Duration::zero(); duration -= step) Tick(step);
  }

  void JoinAll() {
    for (uint32_t i = 0; i < options_.servers; ++i) Join(Server(i));
    for (uint32_t i = 0; i < options_.workers; ++i) Join(Worker(i));
    for (uint32_t i = 0; i < options_.servers; ++i) {
      for (uint32_t s = 0; s < options_.shards; ++s) SendFromShard(Server(i), s, MessageKind::kHelloReply, HelloReply());
    }
  }
  NodeId WorkerId(uint32_t i) const { return options_.servers + 1 + i; }
  void StartTraining() {
    JoinAll();
    for (uint32_t i = 0; i < options_.servers; ++i) {
      for (uint32_t s = 0; s < options_.shards; ++s) SendFromShard(Server(i), s, MessageKind::kStarted, Started());
    }
    for (uint32_t i = 0; i < options_.workers; ++i) Send(Worker(i), WorkerId(i), MessageKind::kStarted, Started());
    outbox_.Take();
  }
  void FinishTraining() {
    for (Rank rank = 0; rank < options_.ranks; ++rank) {
      RankDone done;
      done.set_rank(rank);
      done.set_term(1);
      const uint32_t worker = rank % options_.workers;
      Send(Worker(worker), WorkerId(worker), MessageKind::kRankDone, done);
    }
  }
  // The newest order to a shard, and its answer that the part is written.
  uint64_t cut_id() const { return store_.newest_id; }
  CutState WrittenBy(uint32_t shard) const {
    CutState state;
    state.set_id(cut_id());
    state.set_shard(shard);
    state.set_state(CutState::WRITTEN);
    state.set_full(true);
    return state;
  }
  // All shards have written their parts of the newest order.
  void AllWritten() {
    for (uint32_t i = 0; i < options_.servers; ++i) {
      SendFromShard(Server(i), 0, MessageKind::kCutState, WrittenBy(i));
    }
    Tick(std::chrono::milliseconds(50));
  }
  void FailCut(uint32_t server, const std::string& error) {
    CutState failed = WrittenBy(server);
    failed.set_state(CutState::FAILED);
    failed.set_error(error);
    SendFromShard(Server(server), 0, MessageKind::kCutState, failed);
    Tick(std::chrono::milliseconds(50));
  }
  // Async and ssp, of rank 0, whose worker is worker-0: its next lease; that a lease is done.
  LeaseId TakeLease() {
    LeaseRequest request;
    request.set_rank(0);
    request.set_term(1);
    request.set_sequence(++lease_sequence_);
    Send(Worker(0), WorkerId(0), MessageKind::kLeaseRequest, request);
    const std::vector<Sent> replies = outbox_.Take(MessageKind::kLeaseReply);
    return replies.size() == 1 ? Body<LeaseReply>(replies[0]).lease() : 0;
  }
  void EndLease(LeaseId lease) {
    LeaseDone done;
    done.set_rank(0);
    done.set_term(1);
    done.set_lease(lease);
    Send(Worker(0), WorkerId(0), MessageKind::kLeaseDone, done);
  }
  FakeCheckpointStore& store() { return store_; }

  SchedulerCore& core() { return core_; }
  RecordingOutbox& outbox() { return outbox_; }
  RecordedEvents& events() { return events_; }
  ManualClock& clock() { return clock_; }

 private:
  SchedulerOptions Options(bool heartbeats, const SchedulerOptions::From& from) {
    SchedulerOptions options;
    options.version = "1.0";
    options.incarnation = kSchedulerIncarnation;
    options.job_id = kJob;
    options.cpu_isa = "avx512";
    options.checkpoints = &store_;
    options.heartbeats = heartbeats;
    options.from = from;
    options.lineage = {7, 8};
    return options;
  }

  const JobOptions options_;
  ManualClock clock_;
  RecordingOutbox outbox_;
  MetricsRegistry metrics_;
  RecordedEvents events_;
  FakeCheckpointStore store_;
  uint64_t lease_sequence_ = 0;
  SchedulerCore core_;
};

}  // namespace capstan::testing
