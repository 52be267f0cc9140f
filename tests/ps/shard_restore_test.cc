// A shard that begins from a checkpoint: what it goes on with, on how many shards ever, and what it refuses.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cut_testing.h"
#include "ps/table.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using testing::Body;
using testing::CutFolder;
using testing::EndEpoch;
using testing::Info;
using testing::JobOptions;
using testing::Now;
using testing::kSchedulerPeer;
using testing::kServerIncarnation;
using testing::OrderHeader;
using testing::PullFrame;
using testing::PushFrame;
using testing::RowsOf;
using testing::Sent;
using testing::ShardHarness;
using testing::ShardPlay;
using testing::TableRows;
using testing::Train;
using testing::TrainRows;
using testing::WholeRowsOf;

// A second shard that begins from what the first one stored.
CutState StoreTwoSteps(ShardHarness& shard) {
  Train(shard, 0);
  Train(shard, 1);
  return shard.Cut(Now(1));
}

using Change = std::function<void(Start*)>;

// START from cuts/C000001, with all tables.
Sent StartFrom(ShardHarness& shard, Restore::Mode mode, const Change& change = nullptr, uint64_t id = 1) {
  Start start = shard.StartOrder();
  Restore* restore = start.mutable_restore();
  restore->set_mode(mode);
  restore->set_folder(CutFolder(id));
  for (const uint32_t table : {0u, 1u}) {
    restore->add_import()->set_from(table);
    restore->mutable_import(static_cast<int>(table))->set_to(table);
  }
  if (change) change(&start);
  return shard.Start(start);
}

TEST(ShardStart, GoesOnFromACheckpoint) {
  ShardHarness before((JobOptions()));
  ASSERT_EQ(StoreTwoSteps(before).state(), CutState::WRITTEN);
  ShardHarness shard(JobOptions(), /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(shard, Restore::RESUME).kind(), MessageKind::kStarted);
  const ShardState& state = *shard.core().state();
  EXPECT_EQ(state.version(), 2u);
  EXPECT_EQ(state.optimizer_clock(), 2u);
  EXPECT_EQ(state.DoneOf(1), 2u);
  EXPECT_EQ(state.totals().examples, 4u);
  float weight = 0;
  const Key key = 5;
  state.tables().table(0).Gather(std::span<const Key>(&key, 1), &weight);
  EXPECT_EQ(weight, 2.0f);
  Train(shard, 2);
  EXPECT_EQ(shard.Cut(Now(2)).state(), CutState::WRITTEN);
  EXPECT_EQ(RowsOf(shard, 2), (std::map<Key, float>{{5, 3.0f}}));
}

TEST(ShardStart, WithTheWeightsAlone) {
  ShardHarness before((JobOptions()));
  ASSERT_EQ(StoreTwoSteps(before).state(), CutState::WRITTEN);
  ShardHarness shard(JobOptions(), /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(shard, Restore::WARM_START).kind(), MessageKind::kStarted);
  EXPECT_EQ(shard.core().state()->version(), 0u);
  EXPECT_EQ(shard.core().state()->totals().examples, 0u);
  Train(shard, 0);
  EXPECT_EQ(shard.Cut(Now(2)).state(), CutState::WRITTEN);
  EXPECT_EQ(RowsOf(shard, 2), (std::map<Key, float>{{5, 3.0f}}));
}

TEST(ShardStart, RefusesACheckpointThatDoesNotFit) {
  ShardHarness before((JobOptions()));
  ASSERT_EQ(StoreTwoSteps(before).state(), CutState::WRITTEN);
  struct Case {
    std::function<void(Start*)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](Start* s) { s->mutable_job()->mutable_table(0)->set_width(7); }, "rows of 1 floats there"},
      {[](Start* s) { s->mutable_restore()->set_folder("cuts/none"); }, "cuts/none"},
      {[](Start* s) { s->mutable_restore()->mutable_import(0)->set_to(9); }, "no table 9"},
  };
  for (const Case& c : cases) {
    ShardHarness shard(JobOptions(), /*start=*/false, &before.disk());
    const Sent answer = StartFrom(shard, Restore::RESUME, c.change);
    ASSERT_EQ(answer.kind(), MessageKind::kNack) << c.says;
    EXPECT_THAT(Body<Nack>(answer).reason(), HasSubstr(c.says));
    EXPECT_EQ(Body<Nack>(answer).code(), static_cast<uint32_t>(NackCode::kBadCheckpoint));
    EXPECT_EQ(shard.core().state(), nullptr);
  }
}

// ---- any number of shards ---------------------------------------------------------------------------------------

JobOptions OnServers(uint32_t servers, const std::string& consistency = "sync") {
  JobOptions options;
  options.servers = servers;
  options.consistency = consistency;
  return options;
}

// Rows with slots, so that more than the weights has to come along.
void UseAdagrad(Start* start) {
  for (TableSpec& table : *start->mutable_job()->mutable_table()) table.mutable_optimizer()->set_name("adagrad");
}

// All shards of a job, on one disk.
class Cluster {
 public:
  Cluster(FileSystem& disk, const JobOptions& options) : map_(*ShardMap::Even(8, options.servers)) {
    for (ShardId i = 0; i < options.servers; ++i) {
      ShardPlay play;
      play.shard = i;
      shards_.push_back(std::make_unique<ShardHarness>(options, /*start=*/false, &disk, play));
    }
  }
  void StartFresh() {
    for (const auto& shard : shards_) {
      Start start = shard->StartOrder();
      UseAdagrad(&start);
      ASSERT_EQ(shard->Start(start).kind(), MessageKind::kStarted);
    }
  }
  void StartFromCut(uint64_t id) {
    for (const auto& shard : shards_) {
      ASSERT_EQ(StartFrom(*shard, Restore::RESUME, UseAdagrad, id).kind(), MessageKind::kStarted);
    }
  }
  // The same gradients whatever the number of shards; each step leaves other keys out.
  void Step(capstan::Step step) {
    for (ShardId i = 0; i < shards_.size(); ++i) {
      TableRows sums{0, {}, {}}, means{1, {}, {}};
      for (Key key = 0; key < 60; ++key) {
        if (map_.OwnerOf(key) != i || (key + step) % 3 == 0) continue;
        sums.keys.push_back(key);
        sums.values.push_back(static_cast<float>(key) - 20.5f);
        means.keys.push_back(key);
        means.values.insert(means.values.end(), {1.5f, static_cast<float>(step)});
      }
      TrainRows(*shards_[i], step, {sums, means});
    }
  }
  void Store(uint64_t id) {
    for (ShardId i = 0; i < shards_.size(); ++i) {
      const CutState state = shards_[i]->Cut(Now(id, i));
      ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
      EXPECT_EQ(state.has_progress(), i == 0) << "the home shard's alone";
    }
  }
  ShardHarness& at(ShardId shard) { return *shards_[shard]; }

 private:
  const ShardMap map_;
  std::vector<std::unique_ptr<ShardHarness>> shards_;
};

TEST(ShardStart, OntoAnyNumberOfShardsWithEveryRowAsItWas) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  Cluster two(*disk, OnServers(2));
  two.StartFresh();
  for (Step step = 0; step < 4; ++step) two.Step(step);
  two.Store(1);
  two.Step(4);
  two.Store(2);
  ASSERT_EQ(WholeRowsOf(*disk, 1, 0).size(), 60u);
  uint64_t id = 3;
  for (const uint32_t servers : {1u, 3u, 2u}) {
    SCOPED_TRACE(servers);
    Cluster other(*disk, OnServers(servers));
    other.StartFromCut(1);
    uint64_t rows = 0;
    for (ShardId i = 0; i < servers; ++i) {
      const ShardState& state = *other.at(i).core().state();
      EXPECT_EQ(state.version(), 4u);
      EXPECT_EQ(state.totals().examples, i == 0 ? 8u : 0u) << "the home shard has the totals";
      rows += state.tables().rows();
    }
    EXPECT_EQ(rows, 120u) << "each row at one shard";
    other.Store(id);
    for (const TableId table : {TableId{0}, TableId{1}}) {
      EXPECT_EQ(WholeRowsOf(*disk, id, table), WholeRowsOf(*disk, 1, table)) << "as it came, table " << table;
    }
    ++id;
    other.Step(4);
    other.Store(id);
    for (const TableId table : {TableId{0}, TableId{1}}) {
      EXPECT_EQ(WholeRowsOf(*disk, id, table), WholeRowsOf(*disk, 2, table)) << "a step later, table " << table;
    }
    ++id;
  }
}

TEST(ShardStart, RefusesPartsThatDoNotBelongTogether) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  Cluster two(*disk, OnServers(2));
  two.StartFresh();
  two.Step(0);
  Train(two.at(0), 1, 0);
  two.Store(1);
  ASSERT_EQ(two.at(1).Cut(Now(2, 1)).state(), CutState::WRITTEN);  // without the home shard's part
  struct Case {
    uint64_t id;
    const char* says;
  };
  const Case cases[] = {{1, "is at step 1, another one at 2"}, {2, "no shard of the checkpoint has the totals"}};
  for (const Case& c : cases) {
    ShardHarness one(OnServers(1), /*start=*/false, disk.get());
    const Sent answer = StartFrom(one, Restore::RESUME, UseAdagrad, c.id);
    ASSERT_EQ(answer.kind(), MessageKind::kNack) << c.says;
    EXPECT_EQ(Body<Nack>(answer).code(), static_cast<uint32_t>(NackCode::kBadCheckpoint));
    EXPECT_THAT(Body<Nack>(answer).reason(), HasSubstr(c.says));
  }
}

// ---- epochs -----------------------------------------------------------------------------------------------------

TEST(ShardStart, KnowsItsEpochAndWhereThatBegan) {
  ShardHarness before((JobOptions()));
  Train(before, 0);
  EndEpoch(before, 1);
  Train(before, 2);
  ASSERT_EQ(before.Cut(Now(1)).state(), CutState::WRITTEN);
  ShardHarness shard(JobOptions(), /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(shard, Restore::RESUME).kind(), MessageKind::kStarted);
  const Sent rows = shard.Ask(PullFrame(0, 3, 1, {}));
  ASSERT_EQ(rows.kind(), MessageKind::kRows);
  const absl::StatusOr<BodyView> body = ParseBody(rows.message.header.sections, rows.message.body);
  ASSERT_TRUE(body.ok());
  const auto info = ReadStruct<RowsInfo>(*body, SectionKind::kRowsInfo);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->version, 3u);
  EXPECT_EQ(info->epoch, 1u);
  EXPECT_EQ(info->epoch_first, 2u);
  EXPECT_EQ(info->optimizer_clock, 2u) << "the closing step did not move it";
  EXPECT_EQ(info->examples, 4u);
  EXPECT_EQ(shard.RefusalOf(PushFrame(0, 4, 2, Info(1, 1), {})), NackCode::kStepConflict) << "not reached yet";
  EXPECT_EQ(shard.Ask(PushFrame(0, 2, 3, Info(1, 1), {})).kind(), MessageKind::kAck) << "applied before the checkpoint";
  EndEpoch(shard, 3);
  EXPECT_TRUE(shard.core().state()->job_done()) << "two epochs in all";
}

TEST(ShardStart, AJobThatWasDoneIsDoneUnlessItGetsMoreEpochs) {
  JobOptions options;
  options.epochs = 1;
  ShardHarness before(options);
  Train(before, 0);
  EndEpoch(before, 1);
  ASSERT_TRUE(before.core().state()->job_done());
  ASSERT_EQ(before.Cut(Now(1)).state(), CutState::WRITTEN);
  ShardHarness same(options, /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(same, Restore::RESUME).kind(), MessageKind::kStarted);
  EXPECT_TRUE(same.core().state()->job_done());
  options.epochs = 2;
  ShardHarness more(options, /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(more, Restore::RESUME).kind(), MessageKind::kStarted);
  EXPECT_FALSE(more.core().state()->job_done());
  Train(more, 2);
  EndEpoch(more, 3);
  EXPECT_TRUE(more.core().state()->job_done());
}

// ---- async ------------------------------------------------------------------------------------------------------

// A key of the first shard's of two, and one of the second's.
Key KeyAt(ShardId shard) {
  const ShardMap map = *ShardMap::Even(8, 2);
  Key key = 0;
  while (map.OwnerOf(key) != shard) ++key;
  return key;
}

// Batch `index` of lease `lease`: adds 1 to every key.
MessageKind PushBatch(ShardHarness& shard, LeaseId lease, uint32_t index, const std::vector<Key>& keys) {
  static uint64_t request = 0;  // every sending is another one, as from another process
  PushInfo info = Info(1, 1);
  info.index = index;
  Message push = PushFrame(0, 0, ++request, info, {{0, keys, std::vector<float>(keys.size(), -1.0f)}});
  push.header.lease = lease;
  return shard.Ask(testing::Sealed(std::move(push))).kind();
}

std::map<Key, float> WeightsOf(ShardHarness& shard, const std::vector<Key>& keys) {
  std::map<Key, float> weights;
  for (const Key key : keys) {
    shard.core().state()->tables().table(0).Gather(std::span<const Key>(&key, 1), &weights[key]);
  }
  return weights;
}

TEST(ShardStart, AsyncEachPartitionTakesOnlyTheBatchesItLacks) {
  const Key low = KeyAt(0), high = KeyAt(1);
  const std::vector<Key> both = {std::min(low, high), std::max(low, high)};
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  Cluster two(*disk, OnServers(2, "async"));
  for (const ShardId i : {0u, 1u}) ASSERT_EQ(two.at(i).Start(two.at(i).StartOrder()).kind(), MessageKind::kStarted);
  // Batch (1, 0) is everywhere, (1, 1) at the home shard only, (2, 0) at the other one only.
  for (const ShardId i : {0u, 1u}) ASSERT_EQ(PushBatch(two.at(i), 1, 0, {KeyAt(i)}), MessageKind::kAck);
  ASSERT_EQ(PushBatch(two.at(0), 1, 1, {low}), MessageKind::kAck);
  ASSERT_EQ(PushBatch(two.at(1), 2, 0, {high}), MessageKind::kAck);
  two.Store(1);

  ShardHarness one(OnServers(1, "async"), /*start=*/false, disk.get());
  ASSERT_EQ(StartFrom(one, Restore::RESUME, [](Start* s) { s->mutable_restore()->set_clock(9); }).kind(),
            MessageKind::kStarted);
  const ShardState& state = *one.core().state();
  for (const Rank rank : {0u, 1u}) EXPECT_EQ(state.DoneOf(rank), 9u);
  EXPECT_EQ(state.version(), 2u) << "the home shard's";
  EXPECT_EQ(state.totals().examples, 2u);
  EXPECT_EQ(WeightsOf(one, both), (std::map<Key, float>{{low, 2.0f}, {high, 2.0f}}));
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const uint32_t index : {0u, 1u}) EXPECT_EQ(PushBatch(one, 1, index, both), MessageKind::kAck);
    EXPECT_EQ(state.totals().examples, 2u) << "both were counted by partition 0's shard";
    EXPECT_EQ(WeightsOf(one, both), (std::map<Key, float>{{low, 2.0f}, {high, 3.0f}}));
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    EXPECT_EQ(PushBatch(one, 2, 0, both), MessageKind::kAck);
    EXPECT_EQ(state.totals().examples, 3u);
    EXPECT_EQ(state.version(), 3u);
    EXPECT_EQ(WeightsOf(one, both), (std::map<Key, float>{{low, 3.0f}, {high, 3.0f}}));
  }

  // Stored again before the leases close, and restored onto two: still nothing twice.
  ASSERT_EQ(one.Cut(Now(2)).state(), CutState::WRITTEN);
  Cluster again(*disk, OnServers(2, "async"));
  for (const ShardId i : {0u, 1u}) {
    ASSERT_EQ(StartFrom(again.at(i), Restore::RESUME, nullptr, 2).kind(), MessageKind::kStarted);
    for (const uint32_t index : {0u, 1u}) EXPECT_EQ(PushBatch(again.at(i), 1, index, {KeyAt(i)}), MessageKind::kAck);
    EXPECT_EQ(PushBatch(again.at(i), 2, 0, {KeyAt(i)}), MessageKind::kAck);
    EXPECT_EQ(WeightsOf(again.at(i), {KeyAt(i)}), (std::map<Key, float>{{KeyAt(i), 3.0f}}));
  }

  LeaseClose close;
  close.set_below(3);
  one.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kLeaseClose, kServerIncarnation), close));
  EXPECT_EQ(PushBatch(one, 1, 1, both), MessageKind::kAck);
  EXPECT_EQ(WeightsOf(one, both), (std::map<Key, float>{{low, 3.0f}, {high, 3.0f}})) << "closed";
  ASSERT_EQ(one.Cut(Now(3)).state(), CutState::WRITTEN);
  ShardRecord record;
  RowsOf(one, 3, &record);
  ASSERT_EQ(record.ledger_size(), 1) << "all agree again";
  EXPECT_EQ(record.ledger(0).closed_below(), 3u);
  EXPECT_EQ(record.ledger(0).applied_size(), 0);
}

TEST(ShardStart, WarmStartsRememberNoBatch) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  ShardHarness before(OnServers(1, "async"), /*start=*/true, disk.get());
  ASSERT_EQ(PushBatch(before, 1, 0, {5}), MessageKind::kAck);
  ASSERT_EQ(before.Cut(Now(1)).state(), CutState::WRITTEN);
  ShardHarness shard(OnServers(1, "async"), /*start=*/false, disk.get());
  // Another optimizer: the slots of its rows begin anew.
  ASSERT_EQ(StartFrom(shard, Restore::WARM_START, UseAdagrad).kind(), MessageKind::kStarted);
  EXPECT_EQ(WeightsOf(shard, {5}), (std::map<Key, float>{{5, 1.0f}}));
  EXPECT_EQ(shard.core().state()->version(), 0u);
  EXPECT_EQ(shard.core().state()->DoneOf(0), 0u);
  EXPECT_EQ(PushBatch(shard, 1, 0, {5}), MessageKind::kAck);
  EXPECT_EQ(shard.core().state()->totals().examples, 1u);
  EXPECT_GT(WeightsOf(shard, {5}).at(5), 1.0f);
  ShardHarness resumed(OnServers(1, "async"), /*start=*/false, disk.get());
  EXPECT_EQ(StartFrom(resumed, Restore::RESUME, UseAdagrad).kind(), MessageKind::kNack) << "a resume needs the slots";
}

// Allowed where an epoch begins (the plan of the batches changes with it).
TEST(ShardStart, FromSyncToAsync) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  ShardHarness before(OnServers(1), /*start=*/true, disk.get());
  Train(before, 0);
  EndEpoch(before, 1);
  ASSERT_EQ(before.Cut(Now(1)).state(), CutState::WRITTEN);
  ShardHarness shard(OnServers(1, "async"), /*start=*/false, disk.get());
  const Sent answer = StartFrom(shard, Restore::RESUME, [](Start* s) {
    s->mutable_job()->set_first_epoch(1);
    s->mutable_restore()->set_clock(2);
  });
  ASSERT_EQ(answer.kind(), MessageKind::kStarted) << Body<Nack>(answer).reason();
  EXPECT_EQ(shard.core().state()->DoneOf(1), 2u);
  EXPECT_EQ(shard.core().state()->totals().examples, 2u);
  for (int repeat = 0; repeat < 2; ++repeat) EXPECT_EQ(PushBatch(shard, 1, 0, {5}), MessageKind::kAck);
  EXPECT_EQ(WeightsOf(shard, {5}), (std::map<Key, float>{{5, 2.0f}}));
}

TEST(ShardStart, FromAsyncToSync) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  Cluster two(*disk, OnServers(2, "async"));
  for (const ShardId i : {0u, 1u}) ASSERT_EQ(two.at(i).Start(two.at(i).StartOrder()).kind(), MessageKind::kStarted);
  ASSERT_EQ(PushBatch(two.at(0), 1, 0, {KeyAt(0)}), MessageKind::kAck);
  ASSERT_EQ(PushBatch(two.at(0), 1, 1, {KeyAt(0)}), MessageKind::kAck);
  ASSERT_EQ(PushBatch(two.at(1), 1, 0, {KeyAt(1)}), MessageKind::kAck);
  ASSERT_EQ(two.at(0).Ask(PullFrame(0, 1, 7, {})).kind(), MessageKind::kRows);
  two.Store(1);
  Cluster sync(*disk, OnServers(2));
  for (const ShardId i : {0u, 1u}) {
    const Sent answer = StartFrom(sync.at(i), Restore::RESUME, [](Start* s) { s->mutable_job()->set_first_epoch(1); });
    ASSERT_EQ(answer.kind(), MessageKind::kStarted) << Body<Nack>(answer).reason();
    const ShardState& state = *sync.at(i).core().state();
    EXPECT_EQ(state.version(), 2u) << "the same on all";
    EXPECT_EQ(state.epoch(), 1u);
    EXPECT_EQ(state.epoch_first(), 2u) << "the epoch begins here";
    EXPECT_EQ(state.optimizer_clock(), 1u) << "as far as any rank was";
    TrainRows(sync.at(i), 2, {});
    EndEpoch(sync.at(i), 3);
    EXPECT_TRUE(state.job_done());
  }
}

}  // namespace
}  // namespace capstan
