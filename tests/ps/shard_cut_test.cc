// A shard and its checkpoints: the moment of a cut, what is in it, what is answered, and how a shard begins from one.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "ps/table.h"
#include "shard_harness.h"
#include "storage/checkpoint_reader.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using testing::Body;
using testing::Info;
using testing::JobOptions;
using testing::kSchedulerPeer;
using testing::kServerIncarnation;
using testing::OrderHeader;
using testing::PullFrame;
using testing::PushFrame;
using testing::Sent;
using testing::ShardHarness;
using testing::TableRows;

constexpr char kPart[] = "/shard-0000";

Cut OrderOf(uint64_t id) {
  Cut order;
  order.set_id(id);
  order.set_folder("cuts/" + CheckpointFolderName(id) + kPart);
  return order;
}
Cut AtStep(uint64_t id, uint64_t step) {
  Cut order = OrderOf(id);
  order.set_step(step);
  return order;
}
Cut Now(uint64_t id) {
  Cut order = OrderOf(id);
  order.set_now(true);
  return order;
}

// One step of both ranks: rank 0 adds `amount` to key 5 of "sums"; the pulls of the next step commit it.
void Train(ShardHarness& shard, Step step, float amount = 1) {
  for (const Rank rank : {0u, 1u}) {
    const std::vector<TableRows> rows =
        rank == 0 ? std::vector<TableRows>{{0, {5}, {-amount}}} : std::vector<TableRows>{};
    shard.FromWorker(PushFrame(rank, step, 10 * step + 1, Info(1, 1, step + 1), rows));
  }
  for (const Rank rank : {0u, 1u}) shard.FromWorker(PullFrame(rank, step + 1, 10 * step + 2, {}));
  ASSERT_EQ(shard.core().state()->version(), step + 1);
}

std::map<Key, float> RowsOf(ShardHarness& shard, uint64_t id, ShardRecord* record = nullptr) {
  const auto source = testing::FakeRowSources(shard.disk())("cuts/" + CheckpointFolderName(id));
  EXPECT_TRUE(source.ok()) << source.status();
  std::map<Key, float> rows;
  if (!source.ok()) return rows;
  if (record != nullptr) *record = *(*source)->records()[0];
  EXPECT_EQ((*source)->ForEach(0, 0, 8, [&rows](const StoredRow& row) {
    rows[row.key] = row.values[0];
    return absl::OkStatus();
  }), absl::OkStatus());
  return rows;
}

TEST(ShardCut, IsTakenAtExactlyItsStepWhileTrainingGoesOn) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  EXPECT_EQ(shard.Cut(AtStep(1, 3)).state(), CutState::WAITING);
  Train(shard, 1);
  EXPECT_EQ(shard.Cut(AtStep(1, 3)).state(), CutState::WAITING) << "a repeat";
  Train(shard, 2);
  Train(shard, 3, 100);  // the sweep has not had a slice yet
  Train(shard, 4, 100);
  shard.Work();
  const CutState state = shard.Cut(AtStep(1, 3));
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_EQ(state.cut_version(), 3u);
  EXPECT_EQ(state.version(), 5u);
  EXPECT_TRUE(state.full());
  EXPECT_EQ(state.progress().examples(), 6u) << "two a step";
  ShardRecord record;
  EXPECT_EQ(RowsOf(shard, 1, &record), (std::map<Key, float>{{5, 3.0f}}));
  EXPECT_EQ(record.version(), 3u);
  EXPECT_EQ(record.optimizer_clock(), 3u);
}

TEST(ShardCut, OfAnEpochOrAStepWhicheverComesFirst) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  Cut order = AtStep(1, 9);
  order.set_epoch(1);
  EXPECT_EQ(shard.Cut(order).state(), CutState::WAITING);
  for (const Rank rank : {0u, 1u}) {  // the step that closes the epoch
    Message end = PushFrame(rank, 1, 21, Info(0, 0), {});
    end.header.flags = kFlagEnd;
    shard.FromWorker(testing::Sealed(std::move(end)));
  }
  for (const Rank rank : {0u, 1u}) shard.FromWorker(PullFrame(rank, 2, 22, {}));
  ASSERT_EQ(shard.core().state()->epoch(), 1u);
  shard.Work();
  EXPECT_EQ(shard.Cut(order).cut_version(), 2u);

  // A shard that meets an order between its two moments must not take the second one: others took the first.
  Train(shard, 2);
  Cut between = AtStep(2, 2);
  between.set_epoch(2);
  EXPECT_EQ(shard.Cut(between).state(), CutState::TOO_LATE);
  Cut late_epoch = AtStep(3, 3);
  late_epoch.set_epoch(1);
  EXPECT_EQ(shard.Cut(late_epoch).state(), CutState::TOO_LATE) << "the epoch began a step ago";
}

TEST(ShardCut, SaysThatItIsTooLate) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  Train(shard, 1);
  const CutState state = shard.Cut(AtStep(1, 1));
  EXPECT_EQ(state.state(), CutState::TOO_LATE);
  EXPECT_EQ(state.version(), 2u);
  EXPECT_EQ(shard.sink().snapshots(), 0u);
}

TEST(ShardCut, IncrementsBuildOnThePartBeforeOnly) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  ASSERT_EQ(shard.Cut(Now(1)).state(), CutState::WRITTEN);
  Train(shard, 1);
  Cut increment = Now(2);
  increment.set_parent(1);
  increment.set_parent_folder(std::string("cuts/C000001") + kPart);
  CutState state = shard.Cut(increment);
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_FALSE(state.full());
  ShardRecord record;
  EXPECT_EQ(RowsOf(shard, 2, &record), (std::map<Key, float>{{5, 2.0f}}));
  EXPECT_EQ(record.layer_size(), 2);
  Train(shard, 2);
  Cut foreign = Now(3);
  foreign.set_parent(1);  // not this shard's newest
  foreign.set_parent_folder(std::string("cuts/C000001") + kPart);
  state = shard.Cut(foreign);
  EXPECT_TRUE(state.full());
  EXPECT_EQ(RowsOf(shard, 3, &record), (std::map<Key, float>{{5, 3.0f}}));
  EXPECT_EQ(record.layer_size(), 1);
}

TEST(ShardCut, AFailureIsToldAndTheNextOneIsFullAndRight) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  ASSERT_EQ(shard.Cut(Now(1)).state(), CutState::WRITTEN);
  Train(shard, 1);
  shard.sink().FailWith(Unavailable("disk full"));
  Cut increment = Now(2);
  increment.set_parent(1);
  increment.set_parent_folder(std::string("cuts/C000001") + kPart);
  CutState state = shard.Cut(increment);
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_THAT(state.error(), HasSubstr("server-0/shard-0: disk full"));
  Train(shard, 2);
  increment.set_id(3);
  increment.set_folder(std::string("cuts/C000003") + kPart);
  state = shard.Cut(increment);
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_TRUE(state.full());
  EXPECT_EQ(RowsOf(shard, 3), (std::map<Key, float>{{5, 3.0f}}));
}

TEST(ShardCut, AnAbortOrANewerOrderReplacesIt) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  shard.Cut(AtStep(4, 9));
  CutAbort abort;
  abort.set_id(4);
  shard.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kCutAbort, kServerIncarnation), abort));
  EXPECT_EQ(shard.Cut(AtStep(4, 9)).state(), CutState::FAILED);
  EXPECT_EQ(shard.Cut(AtStep(3, 9)).id(), 4u) << "an older order is stale";
  EXPECT_EQ(shard.Cut(AtStep(5, 2)).state(), CutState::WAITING);
  EXPECT_EQ(shard.Cut(AtStep(6, 3)).id(), 6u);
  Train(shard, 1);
  Train(shard, 2);
  shard.Work();
  EXPECT_EQ(shard.Cut(AtStep(6, 3)).cut_version(), 3u);
}

TEST(ShardCut, FailsByNameWithAnotherRootOrWithoutAWriter) {
  ShardHarness shard((JobOptions()));
  Cut order = Now(1);
  order.set_root("somewhere/else");
  order.set_token("0123");
  const CutState state = shard.Cut(order);
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_THAT(state.error(), HasSubstr("somewhere/else"));
  EXPECT_THAT(state.error(), HasSubstr("mount the output folder"));
}

// A second shard that begins from what the first one stored.
CutState StoreTwoSteps(ShardHarness& shard) {
  Train(shard, 0);
  Train(shard, 1);
  return shard.Cut(Now(1));
}

Sent StartFrom(ShardHarness& shard, FileSystem&, Restore::Mode mode, const std::function<void(Start*)>& change) {
  shard.Hello();
  Start start = shard.StartOrder();
  Restore* restore = start.mutable_restore();
  restore->set_mode(mode);
  restore->set_folder("cuts/C000001");
  for (const uint32_t table : {0u, 1u}) {
    restore->add_import()->set_from(table);
    restore->mutable_import(static_cast<int>(table))->set_to(table);
  }
  change(&start);
  shard.outbox().Take();
  shard.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kStart, kServerIncarnation), start));
  std::vector<Sent> sent = shard.outbox().Take();
  return sent.size() == 1 ? std::move(sent[0]) : Sent();
}

TEST(ShardStart, GoesOnFromACheckpoint) {
  ShardHarness before((JobOptions()));
  ASSERT_EQ(StoreTwoSteps(before).state(), CutState::WRITTEN);
  ShardHarness shard(JobOptions(), /*start=*/false, &before.disk());
  ASSERT_EQ(StartFrom(shard, before.disk(), Restore::RESUME, [](Start*) {}).kind(), MessageKind::kStarted);
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
  ASSERT_EQ(StartFrom(shard, before.disk(), Restore::WARM_START, [](Start*) {}).kind(), MessageKind::kStarted);
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
    const Sent answer = StartFrom(shard, before.disk(), Restore::RESUME, c.change);
    ASSERT_EQ(answer.kind(), MessageKind::kNack) << c.says;
    EXPECT_THAT(Body<Nack>(answer).reason(), HasSubstr(c.says));
    EXPECT_EQ(Body<Nack>(answer).code(), static_cast<uint32_t>(NackCode::kBadCheckpoint));
    EXPECT_EQ(shard.core().state(), nullptr);
  }
}

}  // namespace
}  // namespace capstan
