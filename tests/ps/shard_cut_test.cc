// A shard and its checkpoints: the moment of a cut, what is in it, what is answered.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cut_testing.h"
#include "ps/table.h"
#include "storage/checkpoint_root.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using testing::AtStep;
using testing::Body;
using testing::EndEpoch;
using testing::Info;
using testing::JobOptions;
using testing::kSchedulerPeer;
using testing::kServerIncarnation;
using testing::Now;
using testing::OrderHeader;
using testing::OrderOf;
using testing::PartOf;
using testing::PushFrame;
using testing::RowsOf;
using testing::Sent;
using testing::ShardHarness;
using testing::ShardPlay;
using testing::Train;

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
  EndEpoch(shard, 1);
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
  increment.set_parent_folder(PartOf(1));
  CutState state = shard.Cut(increment);
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_FALSE(state.full());
  ShardRecord record;
  EXPECT_EQ(RowsOf(shard, 2, &record), (std::map<Key, float>{{5, 2.0f}}));
  EXPECT_EQ(record.layer_size(), 2);
  Train(shard, 2);
  Cut foreign = Now(3);
  foreign.set_parent(1);  // not this shard's newest
  foreign.set_parent_folder(PartOf(1));
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
  increment.set_parent_folder(PartOf(1));
  CutState state = shard.Cut(increment);
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_THAT(state.error(), HasSubstr("server-0/shard-0: disk full"));
  Train(shard, 2);
  increment.set_id(3);
  increment.set_folder(PartOf(3));
  state = shard.Cut(increment);
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_TRUE(state.full());
  EXPECT_EQ(RowsOf(shard, 3), (std::map<Key, float>{{5, 3.0f}}));
}

TEST(ShardCut, AnAbortOrANewerOrderReplacesIt) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  shard.Cut(AtStep(4, 9));
  shard.Abort(4);
  EXPECT_EQ(shard.Cut(AtStep(4, 9)).state(), CutState::FAILED);
  EXPECT_EQ(shard.Cut(AtStep(3, 9)).id(), 4u) << "an older order is stale";
  EXPECT_EQ(shard.Cut(AtStep(5, 2)).state(), CutState::WAITING);
  EXPECT_EQ(shard.Cut(AtStep(6, 3)).id(), 6u);
  Train(shard, 1);
  Train(shard, 2);
  shard.Work();
  EXPECT_EQ(shard.Cut(AtStep(6, 3)).cut_version(), 3u);
}

TEST(ShardCut, OneThatIsGivenUpWhileItIsWrittenLeavesNothingBehind) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  ASSERT_EQ(shard.Cut(Now(1)).state(), CutState::WRITTEN);
  Train(shard, 1);
  ASSERT_EQ(shard.CutWithoutWork(Now(2)).state(), CutState::WRITING);
  EXPECT_EQ(shard.CutWithoutWork(Now(2)).cut_version(), 2u) << "a repeat: the same cut";
  shard.Abort(2);
  EXPECT_FALSE(shard.sink().active());
  EXPECT_FALSE(*shard.disk().Exists(PartOf(2)));
  EXPECT_EQ(shard.CutWithoutWork(Now(2)).state(), CutState::FAILED);
  // Its rows are gone through still: a step that is now would be missed, "now" waits for the end of that.
  EXPECT_EQ(shard.CutWithoutWork(AtStep(3, 2)).state(), CutState::TOO_LATE);
  Cut increment = Now(4);
  increment.set_parent(1);
  increment.set_parent_folder(PartOf(1));
  EXPECT_EQ(shard.CutWithoutWork(increment).state(), CutState::WAITING);
  Train(shard, 2);
  const CutState state = shard.Cut(increment);
  ASSERT_EQ(state.state(), CutState::WRITTEN) << state.error();
  EXPECT_TRUE(state.full()) << "what changed since the first one is not known any more";
  EXPECT_EQ(RowsOf(shard, 4), (std::map<Key, float>{{5, 3.0f}}));
  shard.Abort(4);
  EXPECT_EQ(shard.CutWithoutWork(increment).state(), CutState::WRITTEN) << "too late to give it up";
}

// Frames may come in another order over two connections.
TEST(ShardCut, AnAbortThatOvertakesItsOrderStillCounts) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  shard.CutWithoutWork(AtStep(1, 9));
  shard.Abort(2);
  const CutState state = shard.Cut(Now(2));
  EXPECT_EQ(state.id(), 2u);
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_EQ(shard.sink().snapshots(), 0u);
  EXPECT_EQ(shard.Cut(Now(3)).state(), CutState::WRITTEN);
}

TEST(ShardCut, AMomentThatNeverComesIsTooLateWhenTheJobIsDone) {
  JobOptions options;
  options.epochs = 1;
  ShardHarness shard(options);
  Train(shard, 0);
  EXPECT_EQ(shard.Cut(AtStep(1, 9)).state(), CutState::WAITING);
  EndEpoch(shard, 1);
  shard.Work();
  EXPECT_EQ(shard.Cut(AtStep(1, 9)).state(), CutState::TOO_LATE);
  Cut end = OrderOf(2);
  end.set_epoch(1);
  EXPECT_EQ(shard.Cut(end).cut_version(), 2u) << "the end of the job is where the next epoch would begin";
}

TEST(ShardCut, TellsHowFarItIsAndTheEndUnasked) {
  ShardPlay play;
  play.sink.delay_polls = 3000;
  ShardHarness shard(JobOptions(), /*start=*/true, nullptr, play);
  Train(shard, 0);
  EXPECT_EQ(shard.CutWithoutWork(Now(1)).bytes(), 0u);
  shard.Work();
  shard.outbox().Take();
  const CutState under_way = shard.CutWithoutWork(Now(1));
  EXPECT_EQ(under_way.state(), CutState::WRITING);
  EXPECT_GT(under_way.bytes(), 0u);
  for (int i = 0; i < 4; ++i) shard.Work();
  const std::vector<Sent> said = shard.outbox().Take(MessageKind::kCutState);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].to, kSchedulerPeer);
  EXPECT_EQ(Body<CutState>(said[0]).state(), CutState::WRITTEN);
  EXPECT_EQ(Body<CutState>(said[0]).record_xxh3().size(), 16u);
}

TEST(ShardCut, IsForTheSchedulerToOrder) {
  ShardHarness shard((JobOptions()));
  Train(shard, 0);
  struct Case {
    const char* why;
    std::function<void(FrameHeader&)> change;
  };
  const Case cases[] = {
      {"a worker", [](FrameHeader& h) { h.src_node = testing::kWorkerNode; }},
      {"another scheduler", [](FrameHeader& h) { h.src_incarnation = 1; }},
  };
  for (const Case& c : cases) {
    for (const MessageKind kind : {MessageKind::kCut, MessageKind::kCutAbort}) {
      FrameHeader header = OrderHeader(kind, kServerIncarnation);
      c.change(header);
      const Message order = kind == MessageKind::kCut ? MakeControl(header, Now(1)) : MakeControl(header, CutAbort());
      EXPECT_EQ(shard.RefusalOf(order), NackCode::kUnsupported) << c.why;
    }
  }
  shard.Work();
  EXPECT_EQ(shard.sink().snapshots(), 0u);
  EXPECT_EQ(shard.RefusalOf(MakeControl(OrderHeader(MessageKind::kCut, kServerIncarnation), Cut())),
            NackCode::kMalformed) << "without a number";
}

TEST(ShardCut, FailsByNameWithoutAWriter) {
  ShardPlay play;
  play.writer = false;
  ShardHarness shard(JobOptions(), /*start=*/true, nullptr, play);
  Train(shard, 0);
  for (const Cut& order : {Now(1), AtStep(2, 5)}) {
    const CutState state = shard.Cut(order);
    EXPECT_EQ(state.state(), CutState::FAILED);
    EXPECT_THAT(state.error(), HasSubstr("server-0/shard-0: this server was started without a checkpoint writer"));
  }
  Train(shard, 1);
}

TEST(ShardCut, FailsByNameWithAnotherRoot) {
  ShardHarness shard((JobOptions()));
  Cut order = Now(1);
  order.set_root("somewhere/else");
  order.set_token("0123");
  const CutState state = shard.Cut(order);
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_THAT(state.error(), HasSubstr("somewhere/else"));
  EXPECT_THAT(state.error(), HasSubstr("mount the output folder"));

  const auto root = CheckpointRoot::Open(shard.disk(), "run/checkpoints");
  ASSERT_TRUE(root.ok()) << root.status();
  order = Now(2);
  order.set_root((*root)->path());
  order.set_token("0123");
  EXPECT_EQ(shard.Cut(order).state(), CutState::FAILED) << "a folder of the same name on another disk";
  order.set_id(3);
  order.set_token((*root)->token());
  EXPECT_EQ(shard.Cut(order).state(), CutState::WRITTEN);
}

// ---- pushes that wait for a slow writer -------------------------------------------------------------------------

constexpr uint32_t kBlocks = 10, kBlockKeys = 1000;

// Adds 1 to a block of keys; true: acknowledged.
bool PushBlock(ShardHarness& shard, uint64_t request, uint32_t block) {
  testing::TableRows rows{0, {}, std::vector<float>(kBlockKeys, -1.0f)};
  for (uint32_t i = 0; i < kBlockKeys; ++i) rows.keys.push_back(block * kBlockKeys + i);
  Message push = PushFrame(block % 2, 0, request, Info(1, 1), {rows});
  push.header.lease = request;
  return shard.Ask(testing::Sealed(std::move(push))).kind() == MessageKind::kAck;
}

// A shard whose copies have room for a part of its rows, and a cut that it could not hand over yet.
struct SlowWriter {
  explicit SlowWriter(double refuse) {
    JobOptions options;
    options.consistency = "async";
    ShardPlay play;
    play.sink.refuse = refuse;
    shard = std::make_unique<ShardHarness>(options, /*start=*/false, nullptr, play);
    Start order = shard->StartOrder();
    order.mutable_job()->mutable_config()->mutable_checkpoint()->set_copy_bytes(128 << 10);
    shard->Start(order);
    shard->Tick(std::chrono::milliseconds(100));
    for (uint32_t block = 0; block < kBlocks; ++block) EXPECT_TRUE(PushBlock(*shard, ++request, block));
    EXPECT_EQ(shard->CutWithoutWork(Now(1)).state(), CutState::WRITING);
    for (uint32_t block = 0; block < kBlocks; ++block) held += PushBlock(*shard, ++request, block) ? 0 : 1;
  }
  void ExpectAllApplied() {
    EXPECT_EQ(shard->core().state()->totals().examples, 2u * kBlocks);
    EXPECT_EQ(shard->core().held_bytes(), 0u);
    std::vector<float> weight(1);
    for (Key key = 0; key < Key{kBlocks} * kBlockKeys; ++key) {
      shard->core().state()->tables().table(0).Gather(std::span<const Key>(&key, 1), weight.data());
      ASSERT_EQ(weight[0], 2.0f) << "key " << key;
    }
  }
  std::unique_ptr<ShardHarness> shard;
  uint64_t request = 0;
  size_t held = 0;
};

TEST(ShardHeldPushes, WaitForASlowWriterAndAreAppliedThen) {
  SlowWriter slow(0.9);
  ASSERT_GT(slow.held, 2u);
  ASSERT_LT(slow.held, size_t{kBlocks}) << "what has room goes on";
  EXPECT_THAT(slow.shard->core().WaitingFor(), HasSubstr("the checkpoint writer"));
  slow.shard->outbox().Take();
  std::vector<Sent> said;
  for (int i = 0; i < 100 && said.size() < slow.held + 1; ++i) {
    slow.shard->Work();
    for (Sent& sent : slow.shard->outbox().Take()) said.push_back(std::move(sent));
  }
  ASSERT_EQ(said.size(), slow.held + 1) << "each is acknowledged, and the cut is told";
  EXPECT_EQ(slow.shard->core().WaitingFor(), "");
  slow.ExpectAllApplied();
  ASSERT_EQ(slow.shard->Cut(Now(1)).state(), CutState::WRITTEN);
  const std::map<Key, float> rows = RowsOf(*slow.shard, 1);
  ASSERT_EQ(rows.size(), size_t{kBlocks} * kBlockKeys);
  for (const auto& [key, weight] : rows) ASSERT_EQ(weight, 1.0f) << "key " << key << " as it was at the cut";
}

TEST(ShardHeldPushes, DoNotWaitForAWriterThatHangs) {
  SlowWriter hung(1);
  ASSERT_GT(hung.held, 2u);
  for (int i = 0; i < 90; ++i) {
    hung.shard->Tick(std::chrono::milliseconds(100));
    hung.shard->Work();
  }
  EXPECT_EQ(hung.shard->CutWithoutWork(Now(1)).state(), CutState::WRITING);
  for (int i = 0; i < 20; ++i) {
    hung.shard->Tick(std::chrono::milliseconds(100));
    hung.shard->Work();
  }
  const CutState state = hung.shard->CutWithoutWork(Now(1));
  EXPECT_EQ(state.state(), CutState::FAILED);
  EXPECT_THAT(state.error(), HasSubstr("server-0/shard-0: copies of changed rows fill what they may"));
  hung.ExpectAllApplied();
}

// What the writer may take of the machine, as ShardCore::SetPace decides.
TEST(ShardPace, IsWhatIsLeftOverUntilItTakesLongOrTrainingRests) {
  ShardPlay play;
  play.sink.refuse = 1;
  ShardHarness shard(JobOptions(), /*start=*/true, nullptr, play);
  Train(shard, 0);
  shard.Work();
  EXPECT_EQ(shard.CutWithoutWork(Now(1)).state(), CutState::WRITING);
  Step step = 1;
  for (int i = 0; i < 99; ++i) {  // 9.9 s
    Train(shard, step++);
    shard.Work();
    ASSERT_EQ(shard.sink().pace(), SinkPace::kIdle) << i;
    shard.Tick(std::chrono::milliseconds(100));
  }
  shard.Tick(std::chrono::milliseconds(100));
  shard.Tick(std::chrono::milliseconds(100));
  shard.Work();
  EXPECT_EQ(shard.sink().pace(), SinkPace::kLow) << "it takes long";
}

TEST(ShardPace, IsAShareOfItsOwnWhileTrainingRests) {
  ShardPlay play;
  play.sink.refuse = 1;
  ShardHarness shard(JobOptions(), /*start=*/true, nullptr, play);
  Train(shard, 0);
  EXPECT_EQ(shard.CutWithoutWork(Now(1)).state(), CutState::WRITING);
  shard.Work();
  EXPECT_EQ(shard.sink().pace(), SinkPace::kIdle);
  for (int i = 0; i < 3; ++i) shard.Tick(std::chrono::milliseconds(100));
  shard.Work();
  EXPECT_EQ(shard.sink().pace(), SinkPace::kLow);
  Train(shard, 1);
  shard.Work();
  EXPECT_EQ(shard.sink().pace(), SinkPace::kIdle) << "training goes on";
}

TEST(ShardPace, IsFullWhilePushesWait) {
  SlowWriter slow(1);
  ASSERT_GT(slow.held, 0u);
  slow.shard->Work();
  EXPECT_EQ(slow.shard->sink().pace(), SinkPace::kNormal);
}

}  // namespace
}  // namespace capstan
