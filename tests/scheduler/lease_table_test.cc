#include "scheduler/lease_table.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

using ::testing::ElementsAre;

LeaseTable FourLeases(uint32_t epochs = 1) { return LeaseTable(BatchPlan(1, {4, 4}, 2), epochs, 1); }

TEST(LeaseTable, GrantsEachLeaseOnceAndThenNoMore) {
  LeaseTable table = FourLeases(2);
  std::set<LeaseId> granted;
  for (uint64_t sequence = 1; sequence <= 8; ++sequence) {
    const std::optional<LeaseTable::Grant> grant = table.Request(0, sequence);
    ASSERT_TRUE(grant.has_value());
    ASSERT_FALSE(grant->no_more);
    EXPECT_TRUE(granted.insert(grant->lease.id).second);
    EXPECT_EQ(grant->lease.epoch, sequence <= 4 ? 0u : 1u);
  }
  EXPECT_TRUE(table.Request(0, 9)->no_more);
  EXPECT_TRUE(table.Request(1, 1)->no_more);
  EXPECT_FALSE(table.AllClosed());
  for (const LeaseId lease : granted) EXPECT_TRUE(table.Done(0, lease));
  EXPECT_TRUE(table.AllClosed());
}

TEST(LeaseTable, AnswersARepeatAlikeAndNothingElse) {
  LeaseTable table = FourLeases();
  EXPECT_FALSE(table.Request(0, 0).has_value()) << "sequences start at 1";
  EXPECT_FALSE(table.Request(0, 2).has_value()) << "one that skips a number would lose a lease";
  const LeaseId first = table.Request(0, 1)->lease.id;
  EXPECT_EQ(table.Request(0, 1)->lease.id, first);
  const LeaseId second = table.Request(0, 2)->lease.id;
  EXPECT_NE(second, first);
  EXPECT_FALSE(table.Request(0, 1).has_value()) << "late: its answer is known";
  EXPECT_FALSE(table.Request(0, ~uint64_t{0}).has_value());
  EXPECT_EQ(table.open(), 2u);
}

TEST(LeaseTable, OnlyTheOwnerReportsALease) {
  LeaseTable table = FourLeases();
  const LeaseId lease = table.Request(0, 1)->lease.id;
  EXPECT_FALSE(table.Done(1, lease));
  EXPECT_FALSE(table.Done(0, 77));
  EXPECT_FALSE(table.Done(0, 0));
  EXPECT_EQ(table.changes(), 0u);
  EXPECT_TRUE(table.Done(0, lease));
  EXPECT_TRUE(table.Done(0, lease)) << "its confirmation may be lost";
  EXPECT_EQ(table.changes(), 1u);
}

TEST(LeaseTable, KnowsWhatIsClosed) {
  LeaseTable table = FourLeases();
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) ASSERT_EQ(table.Request(0, sequence)->lease.id, sequence);
  table.Done(0, 3);
  EXPECT_EQ(table.closed_below(), 1u);
  EXPECT_THAT(table.closed_above(), ElementsAre(3));
  table.Done(0, 1);
  EXPECT_EQ(table.closed_below(), 2u);
  table.Done(0, 2);
  EXPECT_EQ(table.closed_below(), 4u);
  EXPECT_THAT(table.closed_above(), ElementsAre());
}

TEST(LeaseTable, AJobWithoutDataHasNoLease) {
  LeaseTable table(BatchPlan(1, {}, 2), 3, 1);
  EXPECT_TRUE(table.Request(0, 1)->no_more);
  EXPECT_TRUE(table.AllClosed());
}

}  // namespace
}  // namespace capstan
