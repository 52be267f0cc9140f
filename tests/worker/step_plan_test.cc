#include "worker/step_plan.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "ps/shard_tables.h"
#include "ps/table.h"
#include "tests/support/core_testing.h"

namespace capstan {
namespace {

using testing::Info;

constexpr uint32_t kShards = 3;

ShardMap Map() { return *ShardMap::Even(8, kShards); }

// A sparse table of width 2, one that always looks up the same keys, and a dense one of 5 blocks of 4.
std::vector<PlannedTable> Tables() { return {{2, false, 0, 0}, {3, false, 0, 0}, {4, true, 5, 2}}; }

TEST(StepPlan, KeysAreUniqueAndInOrderOfShardAndKey) {
  StepPlan plan(Tables(), Map(), 1000);
  const std::vector<uint64_t> looked_up = {9, 2, 9, ~uint64_t{0}, 0, 2, 9, 77};
  for (int again = 0; again < 3; ++again) {
    plan.Build(std::vector<std::vector<uint64_t>>{looked_up, {}, {}});
    const std::span<const Key> keys = plan.keys(0);
    EXPECT_EQ(std::set<Key>(keys.begin(), keys.end()), std::set<Key>(looked_up.begin(), looked_up.end()));
    EXPECT_EQ(keys.size(), 5u);
    for (size_t i = 1; i < keys.size(); ++i) {
      EXPECT_LT(std::pair(Map().OwnerOf(keys[i - 1]), keys[i - 1]), std::pair(Map().OwnerOf(keys[i]), keys[i]));
    }
    ASSERT_EQ(plan.index(0).size(), looked_up.size());
    for (size_t i = 0; i < looked_up.size(); ++i) EXPECT_EQ(keys[plan.index(0)[i]], looked_up[i]);
    EXPECT_EQ(plan.keys(1).data(), keys.data()) << "one list for tables that look up the same";
    EXPECT_EQ(plan.keys(2).size(), 5u) << "all blocks of a dense table";
  }
}

// Every key of every table, by shard, from the requests themselves.
std::vector<std::vector<std::pair<TableId, Key>>> KeysIn(const ShardRequests& requests) {
  std::vector<std::vector<std::pair<TableId, Key>>> all;
  for (const std::vector<RequestPart>& parts : requests) {
    all.emplace_back();
    for (const RequestPart& part : parts) {
      const absl::StatusOr<BodyView> body = ParseBody(part.sections, part.body);
      EXPECT_TRUE(body.ok()) << body.status();
      if (!body.ok()) continue;
      for (const SectionView& section : body->sections()) {
        if (section.kind() != SectionKind::kKeys) continue;
        for (const Key key : section.As<Key>()) all.back().emplace_back(section.table(), key);
      }
    }
  }
  return all;
}

TEST(StepPlan, PartsHoldEveryKeyOnceInOrderAndStaySmall) {
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 500; ++i) keys.push_back(i * 31);
  for (const size_t part_bytes : {1, 100, 300, 5000, 1 << 20}) {
    StepPlan plan(Tables(), Map(), part_bytes);
    plan.Build(std::vector<std::vector<uint64_t>>{keys, {}, {}});
    const ShardRequests pull = *plan.PullRequests();
    ASSERT_EQ(pull.size(), kShards);
    const auto found = KeysIn(pull);
    size_t count = 0;
    for (ShardId shard = 0; shard < kShards; ++shard) {
      EXPECT_TRUE(std::is_sorted(found[shard].begin(), found[shard].end()));
      EXPECT_EQ(std::adjacent_find(found[shard].begin(), found[shard].end()), found[shard].end());
      for (const auto& [table, key] : found[shard]) EXPECT_EQ(Map().OwnerOf(key), shard);
      count += found[shard].size();
      for (const RequestPart& part : pull[shard]) {
        EXPECT_LE(part.body.size(), std::max<size_t>(part_bytes, 200)) << part_bytes;
      }
    }
    EXPECT_EQ(count, 500u * 2 + 5) << part_bytes;
  }
}

TEST(StepPlan, AnEmptyBatchStillAsksEveryShard) {
  StepPlan plan({{2, false, 0, 0}}, Map(), 1000);
  plan.Build(std::vector<std::vector<uint64_t>>{{}});
  const ShardRequests pull = *plan.PullRequests();
  const ShardRequests push = plan.PushRequests(Info(1, 1), std::vector<const float*>{nullptr});
  for (ShardId shard = 0; shard < kShards; ++shard) {
    ASSERT_EQ(pull[shard].size(), 1u);
    EXPECT_EQ(pull[shard][0].sections, 0u);
    ASSERT_EQ(push[shard].size(), 1u);
    EXPECT_EQ(ReadStruct<PushInfo>(*ParseBody(push[shard][0].sections, push[shard][0].body), SectionKind::kPushInfo)
                  ->examples, 1u);
  }
}

TEST(StepPlan, RefusesMoreThanARequestCanCarry) {
  StepPlan plan({{2, false, 0, 0}}, *ShardMap::Even(1, 1), 1);
  std::vector<uint64_t> keys(kMaxRequestParts + 1);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  plan.Build(std::vector<std::vector<uint64_t>>{keys});
  EXPECT_EQ(plan.PullRequests().status().code(), absl::StatusCode::kInvalidArgument);
  keys.pop_back();
  plan.Build(std::vector<std::vector<uint64_t>>{keys});
  EXPECT_TRUE(plan.PullRequests().ok());
}

// The plan against real tables: what is pushed to a key is what is pulled from it afterwards.
class PlanAgainstTables : public ::testing::Test {
 protected:
  PlanAgainstTables() {
    EffectiveJob job = testing::SmallJob({});
    job.mutable_table(0)->set_width(2);
    TableSpec* same = job.mutable_table(1);
    same->set_width(3);
    same->set_reduction(TableSpec::SUM);
    TableSpec* dense = job.add_table();
    *dense = *same;
    dense->set_id(2);
    dense->set_name("dense");
    dense->set_kind(TableSpec::DENSE);
    dense->set_width(4);
    dense->set_elements(18);
    for (ShardId shard = 0; shard < kShards; ++shard) shards_.push_back(*ShardTables::Make(job, Map(), shard));
    plan_.Build(std::vector<std::vector<uint64_t>>{{5, 1, 5, 900, 17, 33}, {}, {}});
  }

  ShardReplies Answers(const ShardRequests& pull) {
    ShardReplies replies(kShards);
    for (ShardId shard = 0; shard < kShards; ++shard) {
      for (const RequestPart& part : pull[shard]) {
        const BodyView body = *ParseBody(part.sections, part.body);
        EXPECT_TRUE(shards_[shard].CheckPull(body).ok());
        uint16_t sections = 0;
        Buffer reply = shards_[shard].Answer(body, nullptr, &sections);
        replies[shard].push_back(*ParseBody(sections, std::move(reply)));
      }
    }
    return replies;
  }

  StepPlan plan_{Tables(), Map(), 120};
  std::vector<ShardTables> shards_;
};

TEST_F(PlanAgainstTables, PushedRowsComeBackInTheirPlaces) {
  const size_t floats[] = {plan_.keys(0).size() * 2, plan_.keys(1).size() * 3, 20};
  std::vector<std::vector<float>> gradients, weights;
  std::vector<const float*> from;
  std::vector<float*> to;
  float next = 1;
  for (const size_t n : floats) {
    gradients.emplace_back(n);
    weights.emplace_back(n, -99.0f);
    for (float& value : gradients.back()) value = next++;
  }
  for (size_t t = 0; t < 3; ++t) {
    from.push_back(gradients[t].data());
    to.push_back(weights[t].data());
  }
  const ShardRequests push = plan_.PushRequests(Info(1, 1), from);
  for (ShardId shard = 0; shard < kShards; ++shard) {
    PushRecord record;
    record.info = Info(1, 1);
    for (const RequestPart& part : push[shard]) {
      record.parts.push_back(*ParseBody(part.sections, part.body));
      EXPECT_TRUE(shards_[shard].CheckPushPart(record.parts.back()).ok());
    }
    EXPECT_TRUE(shards_[shard].CheckPush(record).ok());
    const PushRecord* const one[] = {&record};
    shards_[shard].ApplyStep(one, 1.0, UpdateContext());
  }
  ASSERT_TRUE(plan_.ReadReplies(Answers(*plan_.PullRequests()), to).ok());
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < floats[t]; ++i) EXPECT_EQ(weights[t][i], -gradients[t][i]) << t << " " << i;
  }
}

TEST_F(PlanAgainstTables, AnAnswerOfAnotherShapeIsRefused) {
  std::vector<std::vector<float>> weights(3, std::vector<float>(100));
  std::vector<float*> to = {weights[0].data(), weights[1].data(), weights[2].data()};
  const ShardRequests pull = *plan_.PullRequests();
  for (ShardId shard = 0; shard < kShards; ++shard) {
    for (size_t part = 0; part < pull[shard].size(); ++part) {
      ShardReplies replies = Answers(pull);
      replies[shard][part] = BodyView();
      EXPECT_FALSE(plan_.ReadReplies(replies, to).ok()) << "rows left out";
      replies = Answers(pull);
      BodyBuilder builder;
      builder.Add(SectionKind::kValues, 1, DType::kF32, 1000, 3);
      Buffer body = builder.Allocate();
      replies[shard][part] = *ParseBody(builder.sections(), std::move(body));
      EXPECT_FALSE(plan_.ReadReplies(replies, to).ok()) << "other rows";
    }
  }
}

}  // namespace
}  // namespace capstan
