#include "common/batch_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

bool IsPermutation(std::vector<uint32_t> order, uint32_t n) {
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> wanted(n);
  std::iota(wanted.begin(), wanted.end(), 0u);
  return order == wanted;
}

BatchPlan UnevenPlan() { return BatchPlan(7, {100, 1, 0, 33, 16, 17, 64, 5}, 16); }

TEST(BatchPlan, CountsRowsAndBatches) {
  const BatchPlan plan = UnevenPlan();
  EXPECT_EQ(plan.splits(), 8u);
  EXPECT_EQ(plan.total_rows(), 236u);
  const uint32_t kBatches[] = {7, 1, 0, 3, 1, 2, 4, 1};
  for (uint32_t split = 0; split < plan.splits(); ++split) {
    EXPECT_EQ(plan.BatchesOfSplit(split), kBatches[split]) << "split " << split;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < plan.BatchesOfSplit(split); ++i) {
      EXPECT_GT(plan.RowsOfBatch(split, i), 0u);
      rows += plan.RowsOfBatch(split, i);
    }
    EXPECT_EQ(rows, plan.RowsOfSplit(split));
    EXPECT_EQ(plan.RowsOfBatch(split, plan.BatchesOfSplit(split)), 0u);
  }
  EXPECT_EQ(plan.RowsOfBatch(0, 6), 4u);  // the rest
  EXPECT_EQ(plan.RowsOfBatch(0, std::numeric_limits<uint32_t>::max()), 0u);
}

TEST(BatchPlan, ABatchMayBeLargerThanAnySplit) {
  const BatchPlan plan(1, {10, 20}, std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(plan.BatchesOfSplit(0), 1u);
  EXPECT_EQ(plan.RowsOfBatch(1, 0), 20u);
  EXPECT_EQ(plan.Leases(0, std::numeric_limits<uint32_t>::max(), 1).size(), 2u);
}

TEST(BatchPlan, OrdersArePermutationsThatDependOnSeedEpochAndSplit) {
  const BatchPlan plan(1, std::vector<uint32_t>(64, 1000), 100);
  const BatchPlan other_seed(2, std::vector<uint32_t>(64, 1000), 100);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_TRUE(IsPermutation(plan.SplitOrder(epoch), 64));
    EXPECT_TRUE(IsPermutation(plan.RowOrder(epoch, 5), 1000));
  }
  EXPECT_NE(plan.SplitOrder(0), plan.SplitOrder(1));
  EXPECT_NE(plan.SplitOrder(0), other_seed.SplitOrder(0));
  EXPECT_NE(plan.RowOrder(0, 5), plan.RowOrder(1, 5));
  EXPECT_NE(plan.RowOrder(0, 5), plan.RowOrder(0, 6));
  EXPECT_NE(plan.RowOrder(0, 5), other_seed.RowOrder(0, 5));
}

TEST(BatchPlan, RowOrderDoesNotDependOnTheBatchSizeOrOtherSplits) {
  const BatchPlan a(3, {50, 60, 70}, 8);
  const BatchPlan b(3, {1, 60}, 512);
  EXPECT_EQ(a.RowOrder(4, 1), b.RowOrder(4, 1));
}

TEST(BatchPlan, EveryPlaceIsEquallyLikely) {
  // Row 0 of a split of 4 rows, over 40 000 (epoch, split) pairs: each place a quarter of the time.
  const BatchPlan plan(11, std::vector<uint32_t>(200, 4), 1);
  std::vector<uint32_t> places(4, 0);
  for (uint32_t epoch = 0; epoch < 200; ++epoch) {
    for (uint32_t split = 0; split < 200; ++split) {
      const std::vector<uint32_t> order = plan.RowOrder(epoch, split);
      ++places[std::find(order.begin(), order.end(), 0u) - order.begin()];
    }
  }
  for (const uint32_t n : places) EXPECT_NEAR(n, 10000, 5 * 87);  // 5 standard deviations
}

TEST(BatchPlan, GoldenOrders) {  // part of P1: a change changes every model
  const BatchPlan plan(1, std::vector<uint32_t>(8, 10), 4);
  EXPECT_EQ(plan.SplitOrder(0), (std::vector<uint32_t>{2, 4, 1, 6, 3, 0, 5, 7}));
  EXPECT_EQ(plan.SplitOrder(1), (std::vector<uint32_t>{4, 2, 3, 7, 0, 5, 6, 1}));
  EXPECT_EQ(plan.RowOrder(0, 0), (std::vector<uint32_t>{1, 5, 8, 9, 3, 7, 6, 0, 4, 2}));
  EXPECT_EQ(plan.RowOrder(2, 7), (std::vector<uint32_t>{6, 8, 4, 1, 2, 9, 7, 5, 0, 3}));
}

TEST(BatchPlan, RanksShareAllBatchesAndNoneTwice) {
  const BatchPlan plan = UnevenPlan();
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 100u}) {
    std::set<std::tuple<uint32_t, uint32_t>> seen;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const std::vector<BatchId> batches = plan.BatchesOfRank(3, rank, ranks);
      for (size_t i = 0; i < batches.size(); ++i) {
        EXPECT_EQ(batches[i].epoch, 3u);
        EXPECT_TRUE(seen.emplace(batches[i].split, batches[i].index).second)
            << "twice, with " << ranks << " ranks";
        // A split's batches come in order and together.
        const uint32_t before =
            i > 0 && batches[i - 1].split == batches[i].split ? batches[i - 1].index + 1 : 0;
        EXPECT_EQ(batches[i].index, before);
      }
    }
    size_t wanted = 0;
    for (uint32_t split = 0; split < plan.splits(); ++split) wanted += plan.BatchesOfSplit(split);
    EXPECT_EQ(seen.size(), wanted) << ranks << " ranks";
  }
}

TEST(BatchPlan, LeasesCoverAllBatchesWithGrowingIds) {
  const BatchPlan plan = UnevenPlan();
  for (const uint32_t per_lease : {1u, 2u, 3u, 64u}) {
    std::set<std::tuple<uint32_t, uint32_t>> seen;
    LeaseId next = 41;
    for (const Lease& lease : plan.Leases(2, per_lease, next)) {
      EXPECT_EQ(lease.id, next++);
      EXPECT_EQ(lease.epoch, 2u);
      EXPECT_GE(lease.count, 1u);
      EXPECT_LE(lease.count, per_lease);
      for (uint32_t i = 0; i < lease.count; ++i) {
        EXPECT_LT(lease.first + i, plan.BatchesOfSplit(lease.split));
        EXPECT_TRUE(seen.emplace(lease.split, lease.first + i).second)
            << "twice, " << per_lease << " a lease";
      }
    }
    EXPECT_EQ(seen.size(), 19u) << per_lease << " batches a lease";
  }
}

TEST(BatchPlan, AnEmptyPlanHasNothing) {
  const BatchPlan plan(1, {}, 8);
  EXPECT_EQ(plan.splits(), 0u);
  EXPECT_TRUE(plan.SplitOrder(0).empty());
  EXPECT_TRUE(plan.BatchesOfRank(0, 0, 4).empty());
  EXPECT_TRUE(plan.Leases(0, 4, 1).empty());
}

}  // namespace
}  // namespace capstan
