#include "ps/shard_state.h"

#include <limits>

#include <gtest/gtest.h>

#include "ps/table.h"
#include "tests/support/core_testing.h"

namespace capstan {
namespace {

using testing::Info;
using testing::JobOptions;
using testing::TableRows;

ShardState MakeState(const JobOptions& options) {
  EffectiveJob job = testing::SmallJob(options);
  const ShardMap map = *ShardMap::Even(8, 1);
  ShardSettings settings;
  settings.consistency = *ParseConsistency(options.consistency);
  settings.ranks = options.ranks;
  settings.epochs = options.epochs;
  settings.lease_batches = options.lease_batches;
  settings.home = true;
  settings.terms.assign(options.ranks, 1);
  settings.map = map;
  return ShardState(std::move(settings), *ShardTables::Make(job, map, 0));
}

PushRecord Record(Rank rank, Step step, const PushInfo& info, const std::vector<TableRows>& rows, bool end = false) {
  const Message message = testing::PushFrame(rank, step, 1, info, rows);
  PushRecord push;
  push.rank = rank;
  push.step = step;
  push.end = end;
  push.info = info;
  push.parts.push_back(*ParseBody(message.header.sections, message.body));
  push.hashes.push_back(message.header.body_xxh3);
  push.bytes = message.body.size();
  return push;
}

float WeightOf(const ShardState& state, TableId table, Key key) {
  float row[2] = {};
  state.tables().table(table).Gather(std::span<const Key>(&key, 1), row);
  return row[0];
}

JobOptions Of(const std::string& consistency, uint32_t ranks = 2) {
  JobOptions options;
  options.consistency = consistency;
  options.ranks = ranks;
  return options;
}

TEST(ShardStateSync, AppliesAStepWhenAllRanksHavePushedAndCommittedIt) {
  ShardState state = MakeState(Of("sync"));
  EXPECT_TRUE(state.MayAnswer(0));
  EXPECT_FALSE(state.MayAnswer(1));
  EXPECT_EQ(state.RanksHoldingBack(1), (std::vector<Rank>{0, 1}));
  EXPECT_FALSE(state.MayCommit(0, 1)) << "it has pushed nothing";
  state.Apply(OpKeepPush{Record(1, 0, Info(1, 1), {{0, {5}, {-3}}, {1, {5}, {-3, 0}}})});
  EXPECT_TRUE(state.MayCommit(1, 1));
  EXPECT_FALSE(state.MayCommit(1, 2));
  EXPECT_GT(state.kept_bytes(), 0u);
  state.Apply(OpCommit{1, 1});
  EXPECT_EQ(state.RanksHoldingBack(1), (std::vector<Rank>{0}));
  EXPECT_FALSE(state.ReadyToApplyStep());
  state.Apply(OpKeepPush{Record(0, 0, Info(2, 2), {{0, {5, 6}, {-4, -1}}, {1, {5}, {-6, 0}}})});
  EXPECT_FALSE(state.ReadyToApplyStep()) << "not committed yet";
  state.Apply(OpCommit{0, 1});
  ASSERT_TRUE(state.ReadyToApplyStep());
  state.Apply(OpApplyStep{});
  EXPECT_EQ(state.version(), 1u);
  EXPECT_EQ(state.optimizer_clock(), 1u);
  EXPECT_FLOAT_EQ(WeightOf(state, 0, 5), 7) << "a sum";
  EXPECT_FLOAT_EQ(WeightOf(state, 0, 6), 1);
  EXPECT_FLOAT_EQ(WeightOf(state, 1, 5), 3) << "a mean over three examples";
  EXPECT_EQ(state.totals().examples, 3u);
  EXPECT_EQ(state.kept_bytes(), 0u);
  EXPECT_EQ(state.lsn(), 5u);
  EXPECT_FALSE(state.MayAnswer(0)) << "gone for ever";
}

TEST(ShardStateSync, EpochsCloseWhenAllHaveEnded) {
  ShardState state = MakeState(Of("sync"));
  const auto step = [&state](bool end0, bool end1, double weight) {
    const Step t = state.version();
    for (const Rank rank : {0u, 1u}) {
      const bool end = rank == 0 ? end0 : end1;
      state.Apply(OpKeepPush{end ? Record(rank, t, Info(0, 0), {}, true)
                                 : Record(rank, t, Info(1, weight), {{1, {5}, {-1, 0}}})});
      state.Apply(OpCommit{rank, t + 1});
    }
    ASSERT_TRUE(state.ReadyToApplyStep());
    state.Apply(OpApplyStep{});
  };
  step(false, true, 1);
  EXPECT_EQ(state.epoch(), 0u) << "one rank has data still";
  EXPECT_EQ(state.optimizer_clock(), 1u);
  step(false, false, 0);
  EXPECT_EQ(state.optimizer_clock(), 1u) << "all weights are zero: nothing to divide by";
  EXPECT_FLOAT_EQ(WeightOf(state, 1, 5), 1);
  step(true, true, 1);
  EXPECT_EQ(state.epoch(), 1u);
  EXPECT_EQ(state.epoch_first(), 3u);
  EXPECT_EQ(state.optimizer_clock(), 1u) << "the closing step is no optimizer step";
  EXPECT_FALSE(state.job_done());
  step(true, true, 1);
  EXPECT_TRUE(state.job_done());
  EXPECT_FALSE(state.ReadyToApplyStep());
}

TEST(ShardStateSsp, TheBoundHoldsOverActiveRanksOnly) {
  ShardState state = MakeState(Of("ssp:2", 3));
  EXPECT_TRUE(state.MayAnswer(100)) << "nobody counts";
  state.Apply(OpEnter{0, 1});
  state.Apply(OpEnter{1, 1});
  EXPECT_TRUE(state.MayAnswer(2));
  EXPECT_FALSE(state.MayAnswer(3)) << "one past the bound";
  EXPECT_EQ(state.RanksHoldingBack(3), (std::vector<Rank>{0, 1}));
  state.Apply(OpCommit{0, 1});
  state.Apply(OpCommit{0, 2});
  state.Apply(OpCommit{0, 1});
  EXPECT_EQ(state.DoneOf(0), 2u) << "a clock never falls";
  EXPECT_EQ(state.RanksHoldingBack(3), (std::vector<Rank>{1}));
  state.Apply(OpLeave{1, 2});
  EXPECT_TRUE(state.MayAnswer(4));
  state.Apply(OpEnter{1, 1});
  EXPECT_TRUE(state.MayAnswer(4)) << "a doubled ENTER that comes after LEAVE";
  state.Apply(OpLeave{0, 0});
  EXPECT_FALSE(state.MayAnswer(5)) << "an old LEAVE changes nothing";
  state.Apply(OpEnter{2, 1});
  EXPECT_EQ(state.DoneOf(2), 2u) << "a joiner enters at the highest clock";
}

TEST(ShardState, AClockMayLeadTheHighestByOneStep) {
  for (const char* mode : {"ssp:2", "async"}) {
    ShardState state = MakeState(Of(mode));
    EXPECT_TRUE(state.MayCommit(0, 1)) << mode;
    EXPECT_FALSE(state.MayCommit(0, 2)) << mode;
    EXPECT_FALSE(state.MayCommit(0, std::numeric_limits<Step>::max())) << mode;
    state.Apply(OpCommit{1, 1});
    EXPECT_TRUE(state.MayCommit(0, 2)) << mode;
  }
}

TEST(ShardStateAsync, APushIsOneUpdateAndCountsOnce) {
  ShardState state = MakeState(Of("async"));
  EXPECT_TRUE(state.MayAnswer(1'000'000));
  PushRecord push = Record(0, 0, Info(2, 4), {{1, {5}, {-8, 0}}});
  push.lease = 3;
  push.info.index = 1;
  ASSERT_TRUE(state.ShouldApply(push));
  EXPECT_TRUE(state.HasRoomFor(push));
  state.Apply(OpApplyPush{push});
  EXPECT_FALSE(state.ShouldApply(push));
  EXPECT_FLOAT_EQ(WeightOf(state, 1, 5), 2);
  EXPECT_EQ(state.version(), 1u);
  push.info.index = 2;
  EXPECT_TRUE(state.ShouldApply(push));
  state.Apply(OpCloseLeases{4, {}});
  EXPECT_FALSE(state.ShouldApply(push));
  push.lease = 4;
  push.info = Info(0, 0);
  state.Apply(OpApplyPush{push});
  EXPECT_EQ(state.totals().examples, 2u);
  EXPECT_FLOAT_EQ(WeightOf(state, 1, 5), 2) << "a batch without examples changes no row";
}

}  // namespace
}  // namespace capstan
