#include "scheduler/restore_plan.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "tests/support/core_testing.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

CheckpointManifest ManifestOf(const EffectiveJob& job) {
  CheckpointManifest manifest;
  *manifest.mutable_job() = job;
  manifest.mutable_job()->set_job_id(77);
  manifest.set_version(12);
  manifest.set_examples(48);
  manifest.set_epoch(1);
  manifest.add_lineage(5);
  return manifest;
}

TEST(PlanResume, ContinuesTheSameJob) {
  const EffectiveJob job = testing::SmallJob(testing::JobOptions());
  EffectiveJob more = job;
  more.mutable_config()->set_epochs(9);
  more.mutable_config()->mutable_cluster()->set_servers(3);
  more.mutable_table(0)->mutable_optimizer()->set_learning_rate(0.5);
  const CheckpointManifest manifest = ManifestOf(job);
  const auto from = PlanResume("root/C1", manifest, {}, more);
  ASSERT_TRUE(from.ok()) << from.status();
  EXPECT_EQ(from->first_step, 12u);
  EXPECT_EQ(from->examples, 48u);
  EXPECT_FALSE(from->warm);
  EXPECT_THAT(from->imports, ElementsAre(std::pair<TableId, TableId>(0, 0), std::pair<TableId, TableId>(1, 1)));
  EXPECT_THAT(LineageOf(manifest), ElementsAre(5u, 77u));
}

TEST(PlanResume, NamesWhatDiffersWithBothValues) {
  const EffectiveJob job = testing::SmallJob(testing::JobOptions());
  struct Case {
    std::function<void(EffectiveJob*)> change;
    std::vector<const char*> says;
  };
  const Case cases[] = {
      {[](EffectiveJob* j) { j->mutable_config()->set_seed(4); }, {"seed is 3", "and 4"}},
      {[](EffectiveJob* j) { j->mutable_config()->mutable_cluster()->set_partitions(16); }, {"partitions is 8", "16"}},
      {[](EffectiveJob* j) { j->mutable_table(1)->set_width(9); }, {"table means", "width is 2", "9"}},
      {[](EffectiveJob* j) { j->mutable_table(1)->set_kind(TableSpec::DENSE); }, {"sparse", "dense"}},
      {[](EffectiveJob* j) { j->mutable_table(0)->mutable_optimizer()->set_name("adam"); }, {"sgd", "adam"}},
      {[](EffectiveJob* j) { j->mutable_table(0)->set_name("other"); }, {"has no table other"}},
      {[](EffectiveJob* j) { j->mutable_table()->RemoveLast(); }, {"this job has no table means"}},
      {[](EffectiveJob* j) { j->mutable_config()->mutable_data()->add_feature()->set_name("age"); },
       {"feature 0", "age"}},
      {[](EffectiveJob* j) { j->mutable_config()->mutable_data()->add_feature()->set_kind(FeatureConfig::CATEGORICAL); },
       {"kind CATEGORICAL", "normalize STANDARD", "missing "}},
      {[](EffectiveJob* j) { j->mutable_table(0)->set_elements(3); }, {"table sums", "elements is 0", "3"}},
  };
  for (const Case& c : cases) {
    EffectiveJob other = job;
    c.change(&other);
    const auto from = PlanResume("root/C1", ManifestOf(job), {}, other);
    ASSERT_FALSE(from.ok()) << c.says[0];
    EXPECT_TRUE(absl::IsInvalidArgument(from.status()));
    for (const char* text : c.says) EXPECT_THAT(std::string(from.status().message()), HasSubstr(text));
    EXPECT_THAT(std::string(from.status().message()), HasSubstr("root/C1"));
  }
}

TEST(PlanWarmStart, TakesTheChosenTablesThatBothHave) {
  const EffectiveJob job = testing::SmallJob(testing::JobOptions());
  EffectiveJob other = job;
  other.mutable_config()->set_seed(9);
  other.mutable_table(0)->set_name("other");
  const auto all = [](const std::string&) { return true; };
  const auto from = PlanWarmStart("root/C1", ManifestOf(job), other, all);
  ASSERT_TRUE(from.ok()) << from.status();
  EXPECT_TRUE(from->warm);
  EXPECT_EQ(from->first_step, 0u);
  EXPECT_THAT(from->imports, ElementsAre(std::pair<TableId, TableId>(1, 1)));
  const auto none = PlanWarmStart("root/C1", ManifestOf(job), other, [](const std::string&) { return false; });
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("it has means, sums"));
  other.mutable_table(1)->set_width(5);
  EXPECT_TRUE(absl::IsInvalidArgument(PlanWarmStart("root/C1", ManifestOf(job), other, all).status()));
}

ShardRecord LedgerOf(LeaseId below, std::vector<LeaseId> closed, std::vector<std::pair<LeaseId, std::vector<uint32_t>>> open) {
  ShardRecord record;
  LedgerRecord* ledger = record.add_ledger();
  ledger->set_closed_below(below);
  for (const LeaseId lease : closed) ledger->add_closed(lease);
  for (const auto& [lease, indexes] : open) {
    AppliedLease* applied = ledger->add_applied();
    applied->set_lease(lease);
    for (const uint32_t index : indexes) applied->add_index(index);
  }
  return record;
}

// One split of 8 batches in leases of 2: ids 1 to 4 in the first epoch.
TEST(ClosedLeases, AreThoseThatEveryPartitionHas) {
  const BatchPlan plan(1, {8}, 1);
  const ShardRecord a = LedgerOf(2, {3}, {{2, {2, 3}}, {4, {6}}});
  const ShardRecord b = LedgerOf(1, {}, {{1, {0, 1}}, {2, {2, 3}}, {3, {4}}});
  const ShardRecord* records[] = {&a, &b};
  const LeaseTable::Origin origin = ClosedLeases(records, plan, 2, 2, 0, 1);
  EXPECT_THAT(origin.closed, ElementsAre(1u, 2u)) << "1: closed and full; 2: full twice; 3: half at one; 4: missing";
  LeaseTable table(plan, 2, 2, origin);
  EXPECT_EQ(table.closed_below(), 3u);
  EXPECT_EQ(table.closed_epochs(), 0u);
  EXPECT_FALSE(table.AtEpochStart());
  EXPECT_EQ(table.changes(), 1u) << "the shards are told";
  EXPECT_EQ(table.Request(0, 1)->lease.id, 3u) << "issued again";
  EXPECT_EQ(table.Request(1, 1)->lease.id, 4u);
  EXPECT_EQ(table.Request(0, 2)->lease.epoch, 1u);
}

TEST(ClosedLeases, AWholeEpochIsAPlaceToBeginAnotherPlan) {
  const BatchPlan plan(1, {8}, 1);
  const ShardRecord done = LedgerOf(5, {}, {});
  const ShardRecord* records[] = {&done};
  const LeaseTable table(plan, 3, 2, ClosedLeases(records, plan, 3, 2, 0, 1));
  EXPECT_EQ(table.closed_epochs(), 1u);
  EXPECT_TRUE(table.AtEpochStart());
  // The plan that follows: its ids go on, its epochs too.
  LeaseTable::Origin origin;
  origin.first_epoch = table.closed_epochs();
  origin.first_lease = table.closed_below();
  LeaseTable next(BatchPlan(1, {8}, 4), 3, 1, origin);
  const auto grant = next.Request(0, 1);
  EXPECT_EQ(grant->lease.id, 5u);
  EXPECT_EQ(grant->lease.epoch, 1u);
  EXPECT_TRUE(next.AtEpochStart());
}

// At the end of an epoch some ranks are in the next one already. What they applied has its batch's number in the ledger,
// which means other rows under another plan: batches would be left out or count twice.
TEST(ClosedLeases, ABegunEpochIsNoPlaceToBeginAnotherPlan) {
  const BatchPlan plan(1, {8}, 1);
  const ShardRecord none = LedgerOf(5, {}, {}), some = LedgerOf(5, {}, {{5, {0}}});
  const ShardRecord* records[] = {&none, &some};
  const LeaseTable table(plan, 3, 2, ClosedLeases(records, plan, 3, 2, 0, 1));
  EXPECT_EQ(table.closed_epochs(), 1u);
  EXPECT_EQ(table.closed_below(), 5u);
  EXPECT_FALSE(table.AtEpochStart());
  EffectiveJob job = testing::SmallJob(testing::JobOptions());
  job.mutable_config()->set_epochs(3);
  job.mutable_config()->set_lease_batches(2);
  EXPECT_EQ(EpochsTouched(records, plan, job), 2u);
  const ShardRecord* closed[] = {&none, &none};
  EXPECT_EQ(EpochsTouched(closed, plan, job), 1u);
}

TEST(ClosedLeases, OfADoneJobAllAre) {
  const BatchPlan plan(1, {8}, 1);
  const ShardRecord done = LedgerOf(9, {}, {});
  const ShardRecord* records[] = {&done};
  LeaseTable same(plan, 2, 2, ClosedLeases(records, plan, 2, 2, 0, 1));
  EXPECT_TRUE(same.AllClosed());
  EXPECT_TRUE(same.Request(0, 1)->no_more);
  EXPECT_EQ(same.closed_epochs(), 2u);
  LeaseTable more(plan, 3, 2, ClosedLeases(records, plan, 3, 2, 0, 1));
  EXPECT_FALSE(more.AllClosed());
  EXPECT_TRUE(more.AtEpochStart());
  EXPECT_EQ(more.Request(0, 1)->lease.id, 9u);
}

TEST(PlanResume, AsyncGoesOnAtTheHighestClockWithTheLeasesThatAllHave) {
  testing::JobOptions options;
  options.consistency = "async";
  const EffectiveJob job = testing::SmallJob(options);  // two splits of two batches: leases 1 and 2 an epoch
  ShardRecord a = LedgerOf(2, {}, {{2, {0, 1}}});
  ShardRecord b = LedgerOf(1, {1}, {{2, {0}}});
  a.set_highest_clock(7);
  b.set_highest_clock(9);
  const ShardRecord* records[] = {&a, &b};
  const auto from = PlanResume("root/C1", ManifestOf(job), records, job);
  ASSERT_TRUE(from.ok()) << from.status();
  EXPECT_EQ(from->first_step, 9u);
  EXPECT_EQ(from->version, 12u);
  EXPECT_EQ(from->epoch, 1u);
  EXPECT_THAT(from->leases.closed, ElementsAre(1u));
}

}  // namespace
}  // namespace capstan
