#include "ps/partition_ledgers.h"

#include <utility>
#include <vector>

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
  for (const auto& [first, count] : {std::pair(4u, 100u), std::pair(4u, ~0u), std::pair(~0u, 4u), std::pair(3u, 5u)}) {
    PartitionRun* run = records[1].mutable_ledger(0)->mutable_partitions(0);
    run->set_first(first);
    run->set_count(count);
    const ShardRecord* damaged[] = {&records[0], &records[1]};
    EXPECT_TRUE(absl::IsDataLoss(PartitionLedgers::From(Map(1), 0, damaged).status())) << first << ", " << count;
  }
}

// What is stored is what is read, onto the same shards, however the groups lie.
TEST(PartitionLedgers, AreReadAsTheyWereStored) {
  PartitionLedgers ledgers[] = {PartitionLedgers(Map(4), 0), PartitionLedgers(Map(4), 1), PartitionLedgers(Map(4), 2),
                                PartitionLedgers(Map(4), 3)};
  const std::vector<LeaseId> closed = {4, 7};
  for (PartitionLedgers& one : ledgers) one.MarkApplied(9, 1);
  ledgers[1].Close(3, closed);
  ledgers[2].MarkApplied(5, 0);
  ShardRecord records[4];
  std::vector<const ShardRecord*> all;
  for (ShardId i = 0; i < 4; ++i) {
    ledgers[i].Store(&records[i]);
    all.push_back(&records[i]);
  }
  const absl::StatusOr<PartitionLedgers> joined = PartitionLedgers::From(Map(1), 0, all);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->groups(), 3u) << "those of shards 0 and 3 agree, though others lie between";
  EXPECT_EQ(joined->GroupOf(0), joined->GroupOf(7));
  ShardRecord once;
  joined->Store(&once);
  const ShardRecord* const one[] = {&once};
  const absl::StatusOr<PartitionLedgers> again = PartitionLedgers::From(Map(1), 0, one);
  ASSERT_TRUE(again.ok()) << again.status();
  ShardRecord twice;
  again->Store(&twice);
  EXPECT_EQ(once.SerializeAsString(), twice.SerializeAsString());
  for (PartitionId p = 0; p < kPartitions; ++p) {
    const PartitionLedgers& before = ledgers[p / 2];
    for (LeaseId lease = 1; lease <= 10; ++lease) {
      for (const uint32_t index : {0u, 1u}) {
        EXPECT_EQ(again->ShouldApply(again->GroupOf(p), lease, index), before.ShouldApply(0, lease, index))
            << "partition " << p << ", batch " << index << " of lease " << lease;
      }
    }
  }
}

TEST(PartitionLedgers, JoinOneByOneAsTheirDifferencesClose) {
  PartitionLedgers low(Map(2), 0), high(Map(2), 1);
  low.MarkApplied(1, 0);
  high.MarkApplied(3, 0);
  ShardRecord records[2];
  low.Store(&records[0]);
  high.Store(&records[1]);
  const ShardRecord* const both[] = {&records[0], &records[1]};
  absl::StatusOr<PartitionLedgers> ledgers = PartitionLedgers::From(Map(1), 0, both);
  ASSERT_TRUE(ledgers.ok());
  ledgers->MarkApplied(2, 0);
  ledgers->Close(2, {});
  EXPECT_EQ(ledgers->groups(), 2u) << "lease 3 differs still";
  EXPECT_TRUE(ledgers->HasRoom(3, 1, 2));
  ledgers->MarkApplied(3, 1);
  EXPECT_FALSE(ledgers->HasRoom(3, 2, 2)) << "one of them is full";
  const std::vector<LeaseId> third = {3};
  ledgers->Close(2, third);
  EXPECT_EQ(ledgers->groups(), 1u);
  EXPECT_EQ(ledgers->LeadingGroup(), 0u);
  EXPECT_FALSE(ledgers->AnyShouldApply(2, 0)) << "open, and applied by all";
  EXPECT_TRUE(ledgers->AnyShouldApply(2, 1));
}

}  // namespace
}  // namespace capstan
