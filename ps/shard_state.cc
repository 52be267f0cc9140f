#include "ps/shard_state.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

ShardState::ShardState(ShardSettings settings, ShardTables tables)
    : settings_(std::move(settings)),
      tables_(std::move(tables)),
      ranks_(settings_.ranks),
      ledgers_(settings_.map, settings_.shard) {
  CHECK_EQ(settings_.terms.size(), settings_.ranks);
}

absl::Status ShardState::Restore(std::span<const ShardRecord* const> records, Step clock) {
  const ShardRecord* home = nullptr;
  for (const ShardRecord* record : records) {
    if (record->has_totals()) home = record;
  }
  if (home == nullptr) return DataLoss("no shard of the checkpoint has the totals of the job");
  const bool sync = settings_.consistency.sync();
  const bool was_sync = std::all_of(records.begin(), records.end(),
                                    [](const ShardRecord* record) { return record->ledger_size() == 0; });
  for (const ShardRecord* record : records) {
    if (sync && was_sync && (record->version() != home->version() || record->epoch_first() != home->epoch_first())) {
      return DataLoss(fmt::format("shard {} of the checkpoint is at step {}, another one at {}", record->shard(),
                                  record->version(), home->version()));
    }
  }
  version_ = sync || settings_.home ? home->version() : 0;
  epoch_ = Planted(Bug::kEpochLostOnRestore) ? 0 : home->epoch();
  epoch_first_ = home->epoch_first();
  optimizer_clock_ = Planted(Bug::kClockLostOnRestore) ? 0 : home->optimizer_clock();
  job_done_ = sync && epoch_ >= settings_.epochs;
  if (sync && !was_sync) BeginSyncEpoch(records);
  for (RankState& rank : ranks_) rank.done = sync ? version_ : clock;
  if (settings_.home) RestoreTotals(*home);
  if (sync || was_sync || Planted(Bug::kLedgerNotStored)) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(ledgers_, PartitionLedgers::From(settings_.map, settings_.shard, records));
  return absl::OkStatus();
}

// Async and ssp know neither where an epoch began nor steps of all ranks.
void ShardState::BeginSyncEpoch(std::span<const ShardRecord* const> records) {
  epoch_ = settings_.first_epoch;
  epoch_first_ = version_;
  for (const ShardRecord* record : records) optimizer_clock_ = std::max(optimizer_clock_, record->highest_clock());
  job_done_ = epoch_ >= settings_.epochs;
}

void ShardState::RestoreTotals(const ShardRecord& home) {
  totals_.examples = home.totals().examples();
  totals_.weight_sum = home.totals().weight_sum();
  totals_.loss_sum = home.totals().loss_sum();
  totals_.bad_rows = home.totals().bad_rows();
  totals_.nonfinite_rows = home.totals().nonfinite_rows();
}

void ShardState::Store(ShardRecord* record) const {
  record->set_shard(settings_.shard);
  record->set_version(version_);
  record->set_epoch(epoch_);
  record->set_epoch_first(epoch_first_);
  record->set_optimizer_clock(optimizer_clock_);
  record->set_highest_clock(HighestClock());
  record->set_job_done(job_done_);
  for (PartitionId p = 0; p < settings_.map.partitions(); ++p) {
    if (settings_.map.OwnerOfPartition(p) != settings_.shard) continue;
    const int runs = record->owned_size();
    PartitionRun* last = runs > 0 ? record->mutable_owned(runs - 1) : nullptr;
    if (last == nullptr || last->first() + last->count() != p) {
      last = record->add_owned();
      last->set_first(p);
    }
    last->set_count(last->count() + 1);
  }
  if (!settings_.consistency.sync()) ledgers_.Store(record);
  if (!settings_.home) return;
  Progress* totals = record->mutable_totals();
  totals->set_version(version_);
  totals->set_epoch(epoch_);
  totals->set_examples(totals_.examples);
  totals->set_weight_sum(totals_.weight_sum);
  totals->set_loss_sum(totals_.loss_sum);
  totals->set_bad_rows(totals_.bad_rows);
  totals->set_nonfinite_rows(totals_.nonfinite_rows);
}

void ShardState::Apply(Op op) {
  ++lsn_;
  std::visit([this](auto& alternative) { Do(std::move(alternative)); }, op);
}

const PushRecord* ShardState::KeptPush(Rank rank) const {
  return ranks_[rank].kept.has_value() ? &*ranks_[rank].kept : nullptr;
}

bool ShardState::Counts(Rank rank) const {
  switch (settings_.consistency.mode) {
    case ConsistencyMode::kSync: return true;
    case ConsistencyMode::kSsp: return ranks_[rank].active || Planted(Bug::kIdleRankInMinimum);
    case ConsistencyMode::kAsync: return false;
  }
  return true;
}

bool ShardState::MayAnswer(Step wanted) const {
  if (settings_.consistency.sync()) return version_ == wanted || Planted(Bug::kPullAtAnyVersion);
  return RanksHoldingBack(wanted).empty();
}

std::vector<Rank> ShardState::RanksHoldingBack(Step wanted) const {
  const uint64_t staleness = settings_.consistency.staleness + (Planted(Bug::kLooseStaleness) ? 1 : 0);
  std::vector<Rank> slow;
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    if (Counts(rank) && !MayAnswerPull(wanted, ranks_[rank].done, staleness)) slow.push_back(rank);
  }
  return slow;
}

bool ShardState::ReadyToApplyStep() const {
  if (!settings_.consistency.sync() || job_done_) return false;
  return std::all_of(ranks_.begin(), ranks_.end(), [this](const RankState& rank) {
    return rank.done > version_ && rank.kept.has_value();
  });
}

bool ShardState::MayCommit(Rank rank, Step done) const {
  const RankState& state = ranks_[rank];
  if (done <= state.done) return true;
  if (!settings_.consistency.sync()) return done <= HighestClock() + 1;
  return done == version_ + 1 && state.kept.has_value();
}

bool ShardState::ShouldApply(const PushRecord& push) const {
  if (Planted(Bug::kRepeatCountsStatistics)) return true;
  return ledgers_.AnyShouldApply(push.lease, push.info.index);
}

bool ShardState::HasRoomFor(const PushRecord& push) const {
  return ledgers_.HasRoom(push.lease, push.info.index, settings_.lease_batches);
}

Step ShardState::HighestClock() const {
  Step highest = 0;
  for (const RankState& rank : ranks_) highest = std::max(highest, rank.done);
  return highest;
}

void ShardState::Do(OpCommit op) { ranks_[op.rank].done = std::max(ranks_[op.rank].done, op.done); }

void ShardState::Do(OpEnter op) {
  RankState& rank = ranks_[op.rank];
  if (op.order <= rank.last_order && !Planted(Bug::kLateEnterCounts)) return;
  rank.last_order = op.order;
  rank.active = true;
  if (!Planted(Bug::kJoinerClockZero)) rank.done = std::max(rank.done, HighestClock());
}

void ShardState::Do(OpLeave op) {
  RankState& rank = ranks_[op.rank];
  if (op.order <= rank.last_order) return;
  rank.last_order = op.order;
  rank.active = false;
}

void ShardState::Do(OpKeepPush op) {
  CHECK_EQ(op.push.step, version_);
  RankState& rank = ranks_[op.push.rank];
  CHECK(!rank.kept.has_value());
  kept_bytes_ += op.push.bytes;
  arrival_order_.push_back(op.push.rank);
  rank.kept = std::move(op.push);
}

void ShardState::Do(OpApplyStep) {
  std::vector<const PushRecord*> pushes;  // in rank order: the one order of every sum
  bool all_end = !Planted(Bug::kEpochClosesAtFirstEnd);
  uint64_t examples = 0;
  double divisor = 0;
  if (Planted(Bug::kArrivalOrderSum)) {
    for (const Rank rank : arrival_order_) pushes.push_back(&*ranks_[rank].kept);
  } else {
    for (const RankState& rank : ranks_) pushes.push_back(&*rank.kept);
  }
  for (const PushRecord* push : pushes) {
    all_end = Planted(Bug::kEpochClosesAtFirstEnd) ? all_end || push->end : all_end && push->end;
    examples += push->info.examples;
    divisor += push->info.weight_sum + (push->end && Planted(Bug::kEndPushContributes) ? 1 : 0);
    CountTotals(*push);
  }
  if (Planted(Bug::kDivideByRanks)) divisor = static_cast<double>(pushes.size());
  // A step without an example changes nothing, and neither does one whose weights are all zero.
  if ((examples > 0 && divisor > 0) || Planted(Bug::kEndCountsAsStep)) {
    ++optimizer_clock_;
    // Ranks that are out of data do not know the rate; the first that contributes does, and all of those agree.
    const auto contributing = std::find_if(pushes.begin(), pushes.end(),
                                           [](const PushRecord* push) { return push->info.examples > 0; });
    UpdateContext context;
    context.step = Planted(Bug::kClosingStepsMoveOptimizer) ? version_ + 1 : optimizer_clock_;
    if (contributing != pushes.end()) context.lr_factor = std::bit_cast<float>((*contributing)->info.lr_factor_bits);
    totals_.nonfinite_rows += tables_.ApplyStep(pushes, divisor, context);
  }
  ++version_;
  if (all_end) {
    ++epoch_;
    epoch_first_ = version_;
    job_done_ = epoch_ >= settings_.epochs;
  }
  for (RankState& rank : ranks_) rank.kept.reset();
  arrival_order_.clear();
  kept_bytes_ = 0;
}

void ShardState::Do(OpApplyPush op) {
  const PushRecord& push = op.push;
  const LeaseId lease = push.lease;
  const uint32_t index = push.info.index;
  if (Planted(Bug::kRepeatCountsStatistics) && !ledgers_.AnyShouldApply(lease, index)) return CountTotals(push);
  // After a restore some partitions may have the batch already and others not: each takes what it lacks.
  std::vector<bool> wanted;
  for (size_t group = 0; group < ledgers_.groups(); ++group) wanted.push_back(ledgers_.ShouldApply(group, lease, index));
  const bool counts = wanted[ledgers_.LeadingGroup()];
  const bool whole = std::find(wanted.begin(), wanted.end(), false) == wanted.end();
  ledgers_.MarkApplied(lease, index);
  if (counts) {
    ++version_;
    epoch_ = std::max(epoch_, push.info.epoch);
    CountTotals(push);
  }
  if (push.info.examples == 0 || push.info.weight_sum <= 0) return;
  UpdateContext context;
  context.step = push.info.optimizer_step;
  context.lr_factor = std::bit_cast<float>(push.info.lr_factor_bits);
  const PushRecord* const one[] = {&push};
  ShardTables::KeyFilter filter;
  if (!whole) {
    filter = [this, &wanted](Key key) {
      return wanted[ledgers_.GroupOf(PartitionOf(key, settings_.map.partitions()))];
    };
  }
  totals_.nonfinite_rows += tables_.ApplyStep(one, push.info.weight_sum, context, filter);
}

void ShardState::Do(OpCloseLeases op) { ledgers_.Close(op.below, op.leases); }

void ShardState::CountTotals(const PushRecord& push) {
  if (!settings_.home) return;
  totals_.examples += push.info.examples;
  totals_.weight_sum += push.info.weight_sum;
  totals_.loss_sum += push.info.loss_sum;
  totals_.bad_rows += push.info.bad_rows;
}

}  // namespace capstan
