#include "scheduler/lease_table.h"

#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"

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

// Two epochs of leases 1 to 4 and 5 to 8; a checkpoint has 1, 2, 4 and 6.
LeaseTable FromACheckpoint() {
  LeaseTable::Origin origin;
  origin.closed = {1, 2, 4, 6};
  return LeaseTable(BatchPlan(1, {4, 4}, 2), 2, 1, origin);
}

TEST(LeaseTable, LeavesOutWhatACheckpointHasDone) {
  LeaseTable table = FromACheckpoint();
  EXPECT_EQ(table.changes(), 1u) << "the shards are told what is closed";
  EXPECT_EQ(table.closed_below(), 3u);
  EXPECT_THAT(table.closed_above(), ElementsAre(4, 6));
  std::vector<LeaseId> granted;
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) granted.push_back(table.Request(0, sequence)->lease.id);
  EXPECT_THAT(granted, ElementsAre(3, 5, 7, 8));
  EXPECT_TRUE(table.Request(0, 5)->no_more);
  EXPECT_TRUE(table.Done(0, 2)) << "closed before: a repeat";
  EXPECT_EQ(table.closed_epochs(), 0u);
  EXPECT_TRUE(table.Done(0, 3));
  EXPECT_EQ(table.closed_below(), 5u);
  EXPECT_EQ(table.closed_epochs(), 1u);
  EXPECT_FALSE(table.AtEpochStart()) << "6 is closed already";
  for (const LeaseId lease : {5, 7, 8}) EXPECT_TRUE(table.Done(0, lease));
  EXPECT_TRUE(table.AllClosed());
  EXPECT_EQ(table.closed_epochs(), 2u);
}

TEST(LeaseTable, ARecordHasWhatIsClosedAndWhatIsOut) {
  LeaseTable table = FromACheckpoint();
  table.Request(0, 1);
  table.Request(1, 1);
  LeaseRecord record;
  table.Store(&record);
  EXPECT_EQ(record.first_lease(), 1u);
  EXPECT_EQ(record.closed_below(), 3u);
  EXPECT_THAT(record.closed(), ElementsAre(4, 6));
  EXPECT_THAT(record.granted(), ElementsAre(3, 5));
}

TEST(LeaseTable, APlanThatFollowsACheckpointCountsOn) {
  LeaseTable::Origin origin;
  origin.first_epoch = 2;
  origin.first_lease = 9;
  LeaseTable table(BatchPlan(1, {4, 4}, 4), 3, 1, origin);
  EXPECT_EQ(table.changes(), 0u) << "nothing is closed that the shards do not know";
  EXPECT_EQ(table.closed_below(), 9u);
  EXPECT_EQ(table.closed_epochs(), 2u);
  EXPECT_TRUE(table.AtEpochStart());
  EXPECT_EQ(table.Request(0, 1)->lease.id, 9u);
  EXPECT_EQ(table.Request(0, 2)->lease.epoch, 2u);
  EXPECT_TRUE(table.Request(0, 3)->no_more);
  EXPECT_TRUE(table.Done(0, 10));
  EXPECT_FALSE(table.AtEpochStart());
  EXPECT_EQ(table.closed_epochs(), 2u);
  EXPECT_TRUE(table.Done(0, 9));
  EXPECT_EQ(table.closed_epochs(), 3u);
}

}  // namespace
}  // namespace capstan
