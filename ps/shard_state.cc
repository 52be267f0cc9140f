#include "ps/shard_state.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <glog/logging.h>

#include "common/planted_bugs.h"

namespace capstan {

ShardState::ShardState(ShardSettings settings, ShardTables tables)
    : settings_(std::move(settings)), tables_(std::move(tables)), ranks_(settings_.ranks) {
  CHECK_EQ(settings_.terms.size(), settings_.ranks);
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
  return ledger_.ShouldApply(push.lease, push.info.index);
}

bool ShardState::HasRoomFor(const PushRecord& push) const {
  return ledger_.HasRoom(push.lease, push.info.index, settings_.lease_batches);
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
  if (Planted(Bug::kRepeatCountsStatistics) && !ledger_.ShouldApply(push.lease, push.info.index)) {
    return CountTotals(push);
  }
  ledger_.MarkApplied(push.lease, push.info.index);
  ++version_;
  epoch_ = std::max(epoch_, push.info.epoch);
  CountTotals(push);
  if (push.info.examples == 0 || push.info.weight_sum <= 0) return;
  UpdateContext context;
  context.step = push.info.optimizer_step;
  context.lr_factor = std::bit_cast<float>(push.info.lr_factor_bits);
  const PushRecord* const one[] = {&push};
  totals_.nonfinite_rows += tables_.ApplyStep(one, push.info.weight_sum, context);
}

void ShardState::Do(OpCloseLeases op) { ledger_.Close(op.below, op.leases); }

void ShardState::CountTotals(const PushRecord& push) {
  if (!settings_.home) return;
  totals_.examples += push.info.examples;
  totals_.weight_sum += push.info.weight_sum;
  totals_.loss_sum += push.info.loss_sum;
  totals_.bad_rows += push.info.bad_rows;
}

}  // namespace capstan
