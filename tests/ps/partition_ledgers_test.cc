#include "ps/partition_ledgers.h"

#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

constexpr uint32_t kPartitions = 8;

ShardMap Map(uint32_t shards) { return *ShardMap::Even(kPartitions, shards); }

TEST(PartitionLedgers, AreOneGroupInAFreshJob) {
  PartitionLedgers ledgers(Map(2), 1);
  EXPECT_EQ(ledgers.groups(), 1u);
  EXPECT_TRUE(ledgers.AnyShouldApply(3, 0));
  ledgers.MarkApplied(3, 0);
  EXPECT_FALSE(ledgers.AnyShouldApply(3, 0));
  EXPECT_TRUE(ledgers.HasRoom(3, 1, 2));
  ledgers.MarkApplied(3, 1);
  EXPECT_FALSE(ledgers.HasRoom(3, 2, 2));
  ShardRecord record;
  ledgers.Store(&record);
  ASSERT_EQ(record.ledger_size(), 1);
  ASSERT_EQ(record.ledger(0).partitions_size(), 1);
  EXPECT_EQ(record.ledger(0).partitions(0).first(), 4u);
  EXPECT_EQ(record.ledger(0).partitions(0).count(), 4u);
}

// Two shards that differ, read by one.
TEST(PartitionLedgers, KeepWhatEachPartitionHasUntilTheyAgree) {
  PartitionLedgers low(Map(2), 0), high(Map(2), 1);
  low.MarkApplied(1, 0);
  low.MarkApplied(2, 5);
  high.MarkApplied(2, 5);
  ShardRecord records[2];
  low.Store(&records[0]);
  high.Store(&records[1]);
  const ShardRecord* both[] = {&records[0], &records[1]};
  absl::StatusOr<PartitionLedgers> one = PartitionLedgers::From(Map(1), 0, both);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->groups(), 2u);
  EXPECT_EQ(one->LeadingGroup(), one->GroupOf(0));
  EXPECT_FALSE(one->ShouldApply(one->GroupOf(0), 1, 0));
  EXPECT_TRUE(one->ShouldApply(one->GroupOf(7), 1, 0));
  EXPECT_FALSE(one->AnyShouldApply(2, 5));
  EXPECT_TRUE(one->AnyShouldApply(1, 0));
  one->MarkApplied(1, 0);
  one->Close(2, {});
  EXPECT_EQ(one->groups(), 1u) << "they agree now";
  EXPECT_FALSE(one->AnyShouldApply(1, 0)) << "closed";

  // And onto three shards: each takes the groups of its own partitions.
  const ShardMap three = Map(3);
  size_t groups = 0;
  for (ShardId shard = 0; shard < 3; ++shard) groups += PartitionLedgers::From(three, shard, both)->groups();
  EXPECT_EQ(groups, 4u) << "the middle one has partitions of both";
}

TEST(PartitionLedgers, RefuseRecordsThatContradictThemselves) {
  PartitionLedgers low(Map(2), 0), high(Map(2), 1);
  ShardRecord records[2];
  low.Store(&records[0]);
  high.Store(&records[1]);
  const ShardRecord* missing[] = {&records[0]};
  EXPECT_TRUE(absl::IsDataLoss(PartitionLedgers::From(Map(1), 0, missing).status()));
  const ShardRecord* twice[] = {&records[0], &records[1], &records[1]};
  EXPECT_TRUE(absl::IsDataLoss(PartitionLedgers::From(Map(1), 0, twice).status()));
  records[1].mutable_ledger(0)->mutable_partitions(0)->set_count(100);
  const ShardRecord* beyond[] = {&records[0], &records[1]};
  EXPECT_TRUE(absl::IsDataLoss(PartitionLedgers::From(Map(1), 0, beyond).status()));
}

}  // namespace
}  // namespace capstan
