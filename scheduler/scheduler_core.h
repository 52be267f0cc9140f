// The decisions of the scheduler: who is in, who owns what, when the job starts, ends or fails. It is never asked
// per batch. No socket, thread, clock or file of its own. Single-threaded.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/exit_code.h"
#include "common/metrics.h"
#include "proto/control_frame.h"
#include "scheduler/checkpoint_director.h"
#include "scheduler/lease_table.h"
#include "scheduler/roster.h"
#include "transport/outbox.h"

namespace capstan {

class EffectiveJob;
class Join;
class Progress;
class SchedulerState;
class Start;

struct SchedulerOptions {
  std::string version;                 // of the release; members must have the same
  Incarnation incarnation = 1;
  JobId job_id = 1;                    // random
  std::string cpu_isa;                 // of the scheduler's own machine: "avx2" or "avx512"
  bool heartbeats = true;              // false in local mode: one process dies as a whole
  CheckpointStore* checkpoints = nullptr;  // outlives the core; nullptr: nothing is stored, not even at the end
  std::vector<JobId> lineage;          // of the jobs that this one was resumed from, oldest first
  // How the job begins from a checkpoint; no folder: from the initial values.
  struct From {
    std::string folder;
    bool warm = false;                     // weights only, and the job begins at step 0
    std::vector<std::pair<TableId, TableId>> imports;  // wire id there → wire id here
    uint64_t version = 0;                  // steps and examples that are done
    uint64_t examples = 0;
    uint32_t epoch = 0;
    Step first_step = 0;                   // of every rank
    LeaseTable::Origin leases;             // async and ssp
  } from;
};

// What the scheduler's surroundings want to know. Called from the core's thread.
class SchedulerEvents {
 public:
  virtual ~SchedulerEvents() = default;
  virtual void OnPhase(const std::string& what) = 0;          // a line for a person
  virtual void OnTraining() = 0;                              // all have started
  struct ProgressReport {
    uint64_t steps = 0, examples = 0, bad_rows = 0, nonfinite_rows = 0;
    uint32_t epoch = 0;
    double weight_sum = 0, loss_sum = 0;
    uint32_t workers_alive = 0;
    std::string waiting_for;
  };
  virtual void OnProgress(const ProgressReport& report) = 0;
  virtual void OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) = 0;
};

class SchedulerCore final : private CheckpointHost {
 public:
  enum class Phase { kJoining, kStartingServers, kStartingWorkers, kTraining, kSaving, kEnding, kFinished };

  // `job` without endpoints, cpu_isa and job id: the core fills them in once all have joined.
  SchedulerCore(SchedulerOptions options, const EffectiveJob& job, Outbox& outbox, MetricsRegistry& metrics,
                SchedulerEvents& events);
  ~SchedulerCore();

  void OnMessage(PeerId from, const Message& message, Time now);
  void Tick(Time now);  // at least every 50 ms

  // The user wants the job to end. While it ends anyway: waits for nobody any more.
  void Stop(ExitCode code, const std::string& reason, Time now);
  // A checkpoint as soon as can be; training goes on.
  void AskCheckpoint(const std::string& reason);
  // A checkpoint as soon as can be, then the end (exit code 203). Before training, or asked again: ends at once.
  void Preempt(const std::string& reason, Time now);
  // Ends the job for everybody. The first cause wins.
  void Fail(ExitCode code, const std::string& reason, Time now);

  Phase phase() const { return phase_; }
  bool finished() const { return phase_ == Phase::kFinished; }
  ExitCode exit_code() const { return exit_code_; }
  const std::string& reason() const { return reason_; }
  std::string WaitingFor(Time now) const;
  // Requests of workers answered so far: for leases, and at the end of ranks. Never one per batch.
  uint64_t requests() const { return requests_.value(); }

  // What must outlive this process (recovery builds on it): job, members, shard map, leases, checkpoints. The number
  // grows whenever it has changed in a way that must not be forgotten.
  void FillState(SchedulerState* state) const;
  uint64_t state_changes() const { return state_changes_ + roster_.members().size(); }

  // After a successful end.
  const EffectiveJob& job() const { return *job_; }
  std::string model_sha256() const;        // empty where nothing is stored
  std::string newest_checkpoint() const;   // its folder; empty: none in this run
  const SchedulerEvents::ProgressReport& last_progress() const { return progress_; }

 private:
  struct RankState {
    MemberInfo* owner = nullptr;
    Term term = 1;
    bool done = false;
  };

  void OnJoin(PeerId from, const Message& message, Time now);
  std::string RefusalOf(const Join& join, const FrameHeader& header, bool* retry);
  std::string RefusalOfServer(const Join& join);
  void OnFromShard(PeerId from, const Message& message, Time now);
  void OnFromMember(PeerId from, const Message& message, Time now);
  void OnHeartbeat(PeerId from, const Message& message, MemberInfo& member);
  bool Owns(const MemberInfo& member, Rank rank, Term term) const;
  void OnLeaseRequest(PeerId from, const Message& message, const MemberInfo& member);
  void OnLeaseDone(PeerId from, const Message& message, const MemberInfo& member);
  void OnRankDone(PeerId from, const Message& message, const MemberInfo& member, Time now);
  void OnLeaseClosed(const ShardContact& shard, const Message& message);
  void OnNack(const MemberInfo& member, ShardContact& shard, const Message& message, Time now);
  void OnProgressFrame(const Message& message, Time now);
  void TakeProgress(const Progress& progress, Time now);
  void OnCutState(ShardContact& shard, const Message& message, Time now);
  void OnBye(const Message& message);

  void SendHellos();
  void BeginStart(Time now);
  void SendStartsToShards();
  void SendStartsToWorkers();
  void SendStart(PeerId to, Incarnation incarnation, const Start& start);
  void SendLeaseClosings();
  void SendEnds();
  void StartClock(Time now);
  void Enter(Phase phase, Time now);
  void CheckPhase(Time now);     // goes on when everybody answered
  void CheckMembers(Time now);   // heartbeats and deadlines
  void CheckStall(Time now);
  void ForgiveOwnPause(Time now);
  bool AllGone() const;
  void TickCheckpoints(Time now);
  // CheckpointHost
  size_t shards() const override { return shards_.size(); }
  std::string ShardName(size_t shard) const override;
  void SendCut(size_t shard, const Cut& order) override;
  void SendAbort(size_t shard, uint64_t id) override;
  void FillLeases(LeaseRecord* leases) const override;
  void FillHead(CheckpointManifest* head) const override;
  void OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) override;
  void OnCheckpointFailed(const std::string& what) override;
  std::vector<ShardContact*> AllShards();
  FrameHeader Header(MessageKind kind, Incarnation to) const;
  template <typename Proto>
  void Send(PeerId to, MessageKind kind, Incarnation incarnation, const Proto& proto);

  const SchedulerOptions options_;
  std::unique_ptr<EffectiveJob> job_;
  Outbox& outbox_;
  SchedulerEvents& events_;
  Counter& refused_;
  Counter& requests_;
  Roster roster_;
  std::vector<RankState> ranks_;
  std::unique_ptr<LeaseTable> leases_;   // async and ssp

  const Generation generation_ = 1;      // raised at every rewind, once there are rewinds
  Phase phase_ = Phase::kJoining;
  bool clock_started_ = false;
  Time phase_start_{};
  Time next_send_{};
  Time next_word_{};
  Time last_advance_{};                  // of training or saving, for stalls
  Time last_tick_{};
  std::vector<ShardContact*> shards_;    // by shard id, once all have joined
  std::vector<Incarnation> shard_incarnation_;
  std::vector<std::string> shard_server_;
  uint64_t closings_sent_ = 0;
  std::vector<uint64_t> closings_seen_;  // per shard
  std::unique_ptr<CheckpointDirector> director_;  // where there is a store
  uint32_t epochs_closed_ = 0;           // async and ssp
  std::vector<CheckpointEntry> checkpoints_;  // of this run, oldest first
  uint64_t state_changes_ = 0;
  std::string preempted_;                // why the job ends after the next checkpoint
  SchedulerEvents::ProgressReport progress_;
  ExitCode exit_code_ = ExitCode::kDone;
  std::string reason_;
};

template <typename Proto>
void SchedulerCore::Send(PeerId to, MessageKind kind, Incarnation incarnation, const Proto& proto) {
  outbox_.Send(to, MakeControl(Header(kind, incarnation), proto));
}

}  // namespace capstan
