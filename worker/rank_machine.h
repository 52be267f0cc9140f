// The protocol of one rank as a state machine: pull, compute, push, commit; leases in async and ssp; the end of data,
// of epochs and of the job. One process may host several; none ever blocks another. No I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/consistency.h"
#include "worker/rank_driver.h"

namespace capstan {

// What a machine asks of its client.
class RankHost {
 public:
  virtual ~RankHost() = default;
  virtual uint32_t shards() const = 0;
  virtual uint64_t BeginRequest(ShardId shard, FrameHeader header, std::vector<RequestPart> parts) = 0;
  virtual void AskLease(Rank rank, Term term, uint64_t sequence) = 0;
  virtual void ReportLeaseDone(Rank rank, Term term, LeaseId lease) = 0;
  virtual void ReportRankDone(Rank rank, Term term) = 0;
  virtual RankDriver& driver() = 0;
  virtual void Violation(const std::string& what) = 0;  // a peer broke the protocol: ends the job
};

struct RankSettings {
  Rank rank = 0;
  Term term = 1;
  uint32_t ranks = 1;
  uint32_t epochs = 1;
  Step first_step = 0;
  Consistency consistency;
  ShardId home_shard = 0;
};

class RankMachine {
 public:
  RankMachine(RankSettings settings, const BatchPlan& plan, RankHost& host);

  void Start();
  // Answers of the driver.
  void Prepared(Step step, ShardRequests pull);
  void Computed(Step step, ShardRequests push);
  // Answers of shards; `request` was begun by this machine. A pull's come once per part.
  void OnRows(ShardId shard, uint64_t request, const FrameHeader& header, BodyView body, bool request_complete);
  void OnAck(ShardId shard, uint64_t request, const FrameHeader& header);
  // Answers of the scheduler.
  void OnLease(uint64_t sequence, bool no_more, const Lease& lease);
  void OnLeaseDoneConfirmed(LeaseId lease);
  void OnRankDoneConfirmed();

  bool finished() const { return state_ == State::kFinished; }
  Rank rank() const { return settings_.rank; }
  Term term() const { return settings_.term; }
  Step step() const { return step_; }
  uint64_t batches() const { return batches_; }
  bool in_minimum() const { return entered_ && state_ != State::kLeaving; }  // ssp: others may wait for it
  std::string Describe() const;  // "rank 3 computes step 17"

 private:
  enum class State {
    kIdle, kEntering, kAwaitingLease, kLeaving, kPreparing, kPulling, kComputing, kPushing, kReportingDone, kFinished
  };

  // Sync.
  void BeginSyncStep();
  void PullNothing();
  void OnAllRows();
  void PushEnd();
  void OnEpoch(uint32_t epoch, Step first);
  // Async and ssp.
  void NextBatchOfLease();
  void LeaseExhausted();
  void AskLease();
  void Enter();
  void Leave();
  void BeginLease(const Lease& lease);
  void ReportDoneWhenConfirmed();
  // Both.
  void BeginPull(ShardRequests pull);
  void BeginPush(ShardRequests push, uint32_t flags);
  void AllAcked();
  void SendToAll(MessageKind kind, uint32_t flags, State next);
  FrameHeader Header(MessageKind kind) const;
  ShardRequests EmptyRequests(const PushInfo* info) const;
  StepTicket Ticket() const;
  PushInfo InfoProto() const;

  const RankSettings settings_;
  const BatchPlan& plan_;
  RankHost& host_;
  State state_ = State::kIdle;
  Step step_ = 0;                          // sync: the step under way; else the rank's own clock
  Step done_ = 0;                          // committed
  uint64_t batches_ = 0;                   // computed so far

  std::vector<uint64_t> outstanding_;      // per shard: the request waited for, 0 = answered
  size_t outstanding_count_ = 0;
  ShardReplies replies_;
  std::optional<RowsInfo> home_info_;
  Step highest_clock_ = 0;                 // in acknowledgements of ENTER

  std::optional<BatchId> batch_;           // of the step; nothing: the rank is out of data in this epoch
  uint32_t epoch_ = 0;
  Step epoch_first_ = 0;
  std::vector<BatchId> epoch_batches_;     // sync
  uint32_t epoch_of_batches_ = ~0u;

  Lease lease_;                            // async, ssp
  uint32_t lease_next_ = 0;                // place of the next batch in it
  std::optional<Lease> next_lease_;
  uint64_t lease_sequence_ = 0;
  bool lease_asked_ = false;
  bool no_more_leases_ = false;
  bool entered_ = false;
  std::vector<LeaseId> unconfirmed_leases_;
};

}  // namespace capstan
