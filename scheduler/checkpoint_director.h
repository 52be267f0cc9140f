// When checkpoints are taken, and when one is whole. Gives each shard the same order (a future step, the end of an
// epoch, or now), gathers what they say, and has the result committed or abandoned. At most one is under way.
// No socket, thread or clock; files only behind CheckpointStore. Single-threaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "storage/checkpoint_root.h"

namespace capstan {

class CheckpointConfig;
class CheckpointManifest;
class Cut;
class CutState;
class LeaseRecord;

// The folder of checkpoints, as the director needs it. Called on the core's thread.
class CheckpointStore {
 public:
  virtual ~CheckpointStore() = default;
  // A number that was never used, and a working folder for it.
  virtual absl::StatusOr<uint64_t> Begin() = 0;
  virtual std::string WorkingFolder(uint64_t id) const = 0;
  virtual std::string Folder(uint64_t id) const = 0;
  virtual const std::string& root() const = 0;
  virtual const std::string& token() const = 0;
  // After it the checkpoint is there and whole, or (with an error) it is not there.
  virtual absl::StatusOr<CheckpointEntry> Commit(uint64_t id, const CheckpointManifest& head,
                                                 const std::vector<ShardPart>& parts) = 0;
  virtual void Abandon(uint64_t id) = 0;
};

// What the director asks of the scheduler.
class CheckpointHost {
 public:
  virtual ~CheckpointHost() = default;
  virtual size_t shards() const = 0;
  virtual std::string ShardName(size_t shard) const = 0;      // for messages
  virtual void SendCut(size_t shard, const Cut& order) = 0;
  virtual void SendAbort(size_t shard, uint64_t id) = 0;
  virtual void FillLeases(LeaseRecord* leases) const = 0;     // as of now; nothing in sync
  virtual void FillHead(CheckpointManifest* head) const = 0;  // job and lineage
  virtual void OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) = 0;
  virtual void OnCheckpointFailed(const std::string& what) = 0;  // a line for a person; training goes on
};

class CheckpointDirector {
 public:
  struct Now {  // how far training is, as the scheduler knows
    uint64_t version = 0;
    uint64_t examples = 0;
    uint32_t epoch = 0;
  };

  CheckpointDirector(const CheckpointConfig& config, bool sync, uint32_t epochs, CheckpointStore& store,
                     CheckpointHost& host);
  ~CheckpointDirector();

  // From the moment that training runs.
  void Start(const Now& at, Time now);
  void Tick(const Now& at, Time now);  // every tick while training or ending
  void OnState(size_t shard, const CutState& state, Time now);
  // The end of epoch `epoch - 1` in async and ssp, where only the leases say so.
  void OnEpochEnd(uint32_t epoch);
  // As soon as can be, for example on a signal.
  void Ask(const std::string& reason);
  // Training is over: a full one with the model's hash, now. What was under way is given up.
  void BeginFinal(const std::string& reason, Time now);
  // No new ones; gives up what is under way.
  void Stop();

  bool finished() const { return finished_; }        // the final one is there
  const std::string& failure() const { return failure_; }  // of the final one
  const std::optional<CheckpointEntry>& newest() const { return newest_; }
  bool asked() const { return !asked_.empty(); }     // an asked one is not there yet
  bool asked_failed() const { return asked_failed_; }  // and was tried in vain
  const std::string& model_sha256() const { return model_sha256_; }
  Time last_advance() const { return last_advance_; }
  std::string WaitingFor() const;                    // "checkpoint 7: server-1/shard-0 …"; empty: for nothing

 private:
  struct Part {
    bool written = false;
    bool writing = false;
    bool full = false;
    uint64_t bytes = 0;                    // handed to its writer so far
    uint64_t version = 0;                  // of the cut
    ShardPart part;
  };

  void Order(const std::string& reason, Time now);
  void SendOrders();
  bool PlanNext(Time now);                 // sync: a standing order for the next regular moment
  void Replace(const std::string& reason, Time now);
  void GiveUp(const std::string& why, Time now);
  void CommitNow(Time now);
  void Regular(Time now);
  uint64_t SoonestStep(Time now) const;    // that all shards can still reach, most likely
  uint64_t NextStepOfPolicy(Time now) const;
  void NoteRate(const Now& at, Time now);
  void SetMetric(CheckpointManifest* head);
  void SetEpoch();                         // the order's, where there is a checkpoint at its end

  const std::unique_ptr<CheckpointConfig> config_;
  const bool sync_;
  const uint32_t epochs_;
  CheckpointStore& store_;
  CheckpointHost& host_;

  Now at_;
  Time rate_since_{}, seen_{};             // seen_: when the version was new
  uint64_t rate_version_ = 0;
  double steps_per_second_ = 0;
  uint64_t lead_factor_ = 1;               // doubled by each TOO_LATE
  bool started_ = false, stopped_ = false, final_ = false, finished_ = false;

  uint64_t id_ = 0;                        // under way; 0: none
  std::unique_ptr<Cut> order_;
  std::unique_ptr<LeaseRecord> leases_;    // before the first order went out
  std::string reason_;
  std::vector<Part> parts_;
  Time next_send_{}, last_advance_{}, not_before_{};
  uint32_t failures_ = 0;                  // in a row

  std::string asked_;                      // reason of one that should be taken now
  bool asked_ordered_ = false;             // the one under way is for it
  bool asked_failed_ = false;
  bool epoch_ended_ = false;               // async
  std::string due_;                        // reason of one that was ordered when it was due and is not there yet
  Time next_by_time_{};
  uint64_t next_by_examples_ = 0;
  uint64_t next_by_steps_ = 0;             // async
  uint64_t since_full_ = 0;                // incremental ones since the last full one
  struct Losses {
    double loss = 0, weight = 0;
  };
  std::optional<Losses> losses_at_newest_;  // summed over all that was trained before it
  Losses losses_at_cut_;
  std::optional<CheckpointEntry> newest_;
  uint64_t parent_ = 0;                    // the newest of this run
  std::string model_sha256_;
  std::string failure_;
};

}  // namespace capstan
