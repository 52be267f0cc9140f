// Everything a shard remembers. It changes only in Apply(Op), a function of (state, operation): no clock, no socket,
// no order of a hash map. Replicas and moves of partitions can replay the operations.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/consistency.h"
#include "ps/partition_ledgers.h"
#include "ps/push_record.h"
#include "ps/shard_tables.h"

namespace capstan {

class ShardRecord;

struct OpCommit { Rank rank; Step done; };         // the rank's `done` rises to this
// ssp: the rank counts in the minimum, at the highest clock, or leaves it. `order` grows with every such wish of a
// term: one that comes late, after a newer one, changes nothing.
struct OpEnter { Rank rank; uint64_t order; };
struct OpLeave { Rank rank; uint64_t order; };
struct OpKeepPush { PushRecord push; };            // sync: held until the step is applied
struct OpApplyStep {};                             // sync: the step `version`
struct OpApplyPush { PushRecord push; };           // async, ssp: one update, now
struct OpCloseLeases { LeaseId below; std::vector<LeaseId> leases; };
using Op = std::variant<OpCommit, OpEnter, OpLeave, OpKeepPush, OpApplyStep, OpApplyPush, OpCloseLeases>;

struct ShardSettings {
  Consistency consistency;
  uint32_t ranks = 1;
  uint32_t epochs = 1;
  uint32_t first_epoch = 0;    // of a plan that begins behind a checkpoint
  uint32_t lease_batches = 1;  // async, ssp: batches of a lease at most
  bool home = false;          // keeps the job's statistics
  std::vector<Term> terms;    // of every rank
  ShardMap map;
  ShardId shard = 0;
};

struct TrainingTotals {
  uint64_t examples = 0;
  double weight_sum = 0;
  double loss_sum = 0;
  uint64_t bad_rows = 0;
  uint64_t nonfinite_rows = 0;
};

class ShardState {
 public:
  ShardState(ShardSettings settings, ShardTables tables);

  // Before the first operation: everything but the rows (which ShardTables imports) as it was in a checkpoint.
  // records: of all shards of the checkpoint, however many. `clock`: of every rank, in ssp and async. A job may go on
  // in sync where one in async or ssp has closed an epoch, and the other way round.
  // kDataLoss: the records contradict each other.
  absl::Status Restore(std::span<const ShardRecord* const> records, Step clock);
  // What a checkpoint has of this shard besides rows and layers.
  void Store(ShardRecord* record) const;

  // Operations are numbered from 1. Only valid ones may be applied; the questions below say which are.
  void Apply(Op op);
  uint64_t lsn() const { return lsn_; }

  // ---- questions; none changes anything ----
  const ShardSettings& settings() const { return settings_; }
  const ShardTables& tables() const { return tables_; }
  ShardTables& mutable_tables() { return tables_; }  // for the sweep of a cut, which changes no value
  Term TermOf(Rank rank) const { return settings_.terms[rank]; }
  Step DoneOf(Rank rank) const { return ranks_[rank].done; }
  const PushRecord* KeptPush(Rank rank) const;
  bool MayAnswer(Step wanted) const;
  std::vector<Rank> RanksHoldingBack(Step wanted) const;  // why MayAnswer is false
  bool ReadyToApplyStep() const;                          // sync: all ranks have pushed and committed `version`
  bool ShouldApply(const PushRecord& push) const;         // async: not applied yet, lease open
  bool HasRoomFor(const PushRecord& push) const;          // async: its batch can be remembered
  // Sync: a rank may commit only what it has pushed here. Else its clock may lead the highest one by one step: a
  // rank that pulls step c had all shards' answers to its pull of c - 1.
  bool MayCommit(Rank rank, Step done) const;

  Step version() const { return version_; }
  uint32_t epoch() const { return epoch_; }
  Step epoch_first() const { return epoch_first_; }
  uint64_t optimizer_clock() const { return optimizer_clock_; }
  bool job_done() const { return job_done_; }
  Step HighestClock() const;
  size_t kept_bytes() const { return kept_bytes_; }
  const TrainingTotals& totals() const { return totals_; }

 private:
  struct RankState {
    Step done = 0;
    bool active = false;                // ssp: holds a lease
    uint64_t last_order = 0;            // of its last OpEnter or OpLeave
    std::optional<PushRecord> kept;     // sync: of step `version`
  };

  void Do(OpCommit op);
  void Do(OpEnter op);
  void Do(OpLeave op);
  void Do(OpKeepPush op);
  void Do(OpApplyStep op);
  void Do(OpApplyPush op);
  void Do(OpCloseLeases op);
  void CountTotals(const PushRecord& push);
  void RestoreTotals(const ShardRecord& home);
  void BeginSyncEpoch(std::span<const ShardRecord* const> records);
  bool Counts(Rank rank) const;         // in the minimum of this mode

  ShardSettings settings_;
  ShardTables tables_;
  std::vector<RankState> ranks_;
  std::vector<Rank> arrival_order_;     // of the kept pushes
  PartitionLedgers ledgers_;
  TrainingTotals totals_;
  uint64_t lsn_ = 0;
  Step version_ = 0;
  Step epoch_first_ = 0;
  uint32_t epoch_ = 0;
  uint64_t optimizer_clock_ = 0;        // steps that had an example
  bool job_done_ = false;
  size_t kept_bytes_ = 0;
};

}  // namespace capstan
