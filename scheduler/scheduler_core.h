// The decisions of the scheduler: who is in, who owns what, when the job starts, ends or fails. It is never asked
// per batch. No socket, thread, clock or file of its own. Single-threaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/exit_code.h"
#include "common/metrics.h"
#include "proto/control_frame.h"
#include "scheduler/lease_table.h"
#include "scheduler/roster.h"
#include "storage/model_store.h"
#include "transport/outbox.h"

namespace capstan {

class EffectiveJob;
class Join;
class Progress;
class Start;

struct SchedulerOptions {
  std::string version;                 // of the release; members must have the same
  Incarnation incarnation = 1;
  JobId job_id = 1;                    // random
  std::string cpu_isa;                 // of the scheduler's own machine: "avx2" or "avx512"
  std::string model_folder;            // where the shards save; seen by all servers
  bool heartbeats = true;              // false in local mode: one process dies as a whole
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
};

struct SavedPart {
  std::string file;
  uint64_t bytes = 0;
  std::string sha256;  // 32 bytes
};

class SchedulerCore {
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
  // Ends the job for everybody. The first cause wins.
  void Fail(ExitCode code, const std::string& reason, Time now);

  Phase phase() const { return phase_; }
  bool finished() const { return phase_ == Phase::kFinished; }
  ExitCode exit_code() const { return exit_code_; }
  const std::string& reason() const { return reason_; }
  std::string WaitingFor(Time now) const;
  // Requests of workers answered so far: for leases, and at the end of ranks. Never one per batch.
  uint64_t requests() const { return requests_.value(); }

  // After a successful end.
  const EffectiveJob& job() const { return *job_; }
  const std::vector<SavedPart>& saved_parts() const { return saved_parts_; }
  const std::vector<PartitionSum>& saved_sums() const { return saved_sums_; }
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
  void OnSaved(ShardContact& shard, const Message& message, Time now);
  void OnBye(const Message& message);

  void SendHellos();
  void BeginStart(Time now);
  void SendStartsToShards();
  void SendStartsToWorkers();
  void SendStart(PeerId to, Incarnation incarnation, const Start& start);
  void SendLeaseClosings();
  void SendSaves();
  void SendEnds();
  void StartClock(Time now);
  void Enter(Phase phase, Time now);
  void CheckPhase(Time now);     // goes on when everybody answered
  void CheckMembers(Time now);   // heartbeats and deadlines
  void CheckStall(Time now);
  void ForgiveOwnPause(Time now);
  bool AllGone() const;
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
  std::vector<ControlJoiner> saved_joiner_;  // per shard
  std::vector<bool> saved_;
  std::vector<SavedPart> saved_parts_;
  std::vector<PartitionSum> saved_sums_;
  SchedulerEvents::ProgressReport progress_;
  ExitCode exit_code_ = ExitCode::kDone;
  std::string reason_;
};

}  // namespace capstan
