// One worker process towards the cluster: joins, hosts its ranks, routes answers to them, keeps asking until it is
// answered. No socket, thread, clock or file of its own. Single-threaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/metrics.h"
#include "proto/control_frame.h"
#include "transport/member_core.h"
#include "worker/rank_machine.h"
#include "worker/request_table.h"

namespace capstan {

class EffectiveJob;
class Start;

class ClientCore final : private RankHost {
 public:
  ClientCore(MemberOptions options, Outbox& outbox, MetricsRegistry& metrics, RankDriver& driver);
  ~ClientCore() override;

  void OnMessage(PeerId from, Message message, Time now);
  void Tick(Time now);  // at least every 50 ms

  // Answers of the driver, on the core's thread. A failed status ends the job: kInvalidArgument and kDataLoss as a
  // data error, all else as a model error.
  void Prepared(Rank rank, Step step, absl::StatusOr<ShardRequests> pull);
  void Computed(Rank rank, Step step, absl::StatusOr<ShardRequests> push);

  MemberCore& member() { return member_; }
  const MemberCore& member() const { return member_; }
  bool ended() const { return member_.state() == MemberCore::State::kEnded; }
  uint64_t batches() const;                  // computed so far: the progress of heartbeats
  std::string WaitingFor(Time now) const;    // what, for whom, since when
  const std::vector<std::unique_ptr<RankMachine>>& machines() const { return machines_; }

 private:
  // RankHost.
  uint32_t shards() const override { return static_cast<uint32_t>(shard_peers_.size()); }
  uint64_t BeginRequest(ShardId shard, FrameHeader header, std::vector<RequestPart> parts) override;
  void AskLease(Rank rank, Term term, uint64_t sequence) override;
  void ReportLeaseDone(Rank rank, Term term, LeaseId lease) override;
  void ReportRankDone(Rank rank, Term term) override;
  RankDriver& driver() override { return driver_; }
  void Violation(const std::string& what) override;

  // Nothing but END matters any more.
  bool stopped() const { return ended() || member_.failing(); }
  void OnStart(const Message& message);
  absl::Status Begin(const Start& start, Generation generation);
  bool IsSound(const Lease& lease) const;
  void OnFromShard(ShardId shard, Message message);
  void OnNack(ShardId shard, const Message& message);
  void OnLeaseReply(const Message& message);
  void FailWith(const absl::Status& status);
  RankMachine* MachineOf(Rank rank);

  // Questions to the scheduler, repeated until answered.
  struct Question {
    MessageKind kind;
    std::string body;
    Time send_at{};
    Duration pause{};
  };
  void Ask(std::string key, MessageKind kind, std::string body);
  void SendQuestion(Question& question);

  Outbox& outbox_;
  MetricsRegistry& metrics_;
  RankDriver& driver_;
  MemberCore member_;
  Counter& asked_;
  Counter& refused_;
  Time now_{};

  ControlJoiner start_;
  std::unique_ptr<EffectiveJob> job_;
  Generation generation_ = 0;
  BatchPlan plan_;
  std::vector<PeerId> shard_peers_;
  std::unique_ptr<RequestTable> requests_;
  std::map<uint64_t, Rank> request_rank_;
  std::vector<std::unique_ptr<RankMachine>> machines_;
  std::map<std::string, Question> questions_;
};

}  // namespace capstan
