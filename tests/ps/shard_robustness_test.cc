// A shard under thousands of damaged frames: nothing aborts, memory stays bounded, no weight is spoiled, and the job
// can go on afterwards.
#include <cmath>

#include <gtest/gtest.h>

#include "ps/table.h"
#include "shard_harness.h"
#include "tests/support/frame_mutator.h"

namespace capstan {
namespace {

using testing::DataHeader;
using testing::FrameMutator;
using testing::JobOptions;
using testing::ShardHarness;

std::vector<Message> ValidFrames(Step step) {
  PushInfo info = testing::Info(2, 2);
  std::vector<Message> frames;
  for (const Rank rank : {0u, 1u}) {
    frames.push_back(testing::PullFrame(rank, step, 10, {{0, {1, 5, 9}, {}}, {1, {5}, {}}}));
    Message push = testing::PushFrame(rank, step, 11, info, {{0, {1, 5}, {1, 2}}, {1, {5}, {1, 2}}});
    push.header.lease = 1 + step;
    frames.push_back(push);
    push.header.parts = 3;
    frames.push_back(push);
    Message end = testing::PushFrame(rank, step, 12, testing::Info(0, 0), {});
    end.header.flags = kFlagEnd;
    frames.push_back(end);
    Message enter{DataHeader(MessageKind::kCommit, rank, step, 13), Buffer()};
    enter.header.flags = kFlagEnter;
    frames.push_back(enter);
    enter.header.flags = kFlagLeave;
    frames.push_back(enter);
  }
  LeaseClose close;
  close.set_below(2);
  close.add_lease(4);
  frames.push_back(MakeControl(testing::OrderHeader(MessageKind::kLeaseClose, testing::kServerIncarnation), close));
  Cut cut;
  cut.set_id(step + 1);
  cut.set_folder("cuts/C000001/shard-0000");
  if (step % 2 == 0) cut.set_now(true);
  if (step % 2 == 1) cut.set_step(step + 1);
  frames.push_back(MakeControl(testing::OrderHeader(MessageKind::kCut, testing::kServerIncarnation), cut));
  CutAbort abort;
  abort.set_id(step + 1);
  frames.push_back(MakeControl(testing::OrderHeader(MessageKind::kCutAbort, testing::kServerIncarnation), abort));
  frames.push_back(MakeControl(testing::OrderHeader(MessageKind::kHello, testing::kServerIncarnation), Hello()));
  return frames;
}

void ExpectFiniteWeights(const ShardCore& core) {
  for (const TableId table : {TableId{0}, TableId{1}}) {
    core.state()->tables().table(table).store().ForEach([](Key key, RowRef row) {
      ASSERT_FALSE(std::isnan(row.weights()[0])) << "key " << key;
    });
  }
}

class ShardRobustness : public ::testing::TestWithParam<const char*> {};

TEST_P(ShardRobustness, SurvivesDamagedFrames) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    JobOptions options;
    options.consistency = GetParam();
    options.epochs = 1000;
    options.shard_buffer_bytes = 20'000;
    ShardHarness shard(options);
    FrameMutator mutator(seed);
    for (int i = 0; i < 1000; ++i) {
      const std::vector<Message> frames = ValidFrames(shard.core().state()->version());
      shard.Deliver(1 + mutator.random().Below(4), mutator.Pick(frames));
      if (i % 10 == 0) shard.Tick(std::chrono::milliseconds(300));
      shard.core().Work(shard.clock().Now());
      ASSERT_LE(shard.core().held_bytes(), 2 * options.shard_buffer_bytes);
      ASSERT_LT(shard.outbox().bytes(), size_t{1} << 20) << "a few frames must not make many";
      shard.outbox().Take();
    }
    ExpectFiniteWeights(shard.core());
    shard.core().WaitingFor();
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ShardRobustness, ::testing::Values("sync", "ssp:2", "async"), [](const auto& param) {
  return std::string(param.param).substr(0, 3);
});

TEST(ShardStartRobustness, SurvivesDamagedStarts) {
  FrameMutator mutator(1);
  for (int i = 0; i < 3000; ++i) {
    ShardHarness shard(JobOptions(), /*start=*/false);
    shard.Hello();
    const Message order =
        MakeControl(testing::OrderHeader(MessageKind::kStart, testing::kServerIncarnation), shard.StartOrder());
    const Message damaged = mutator.Mutate(order);
    // A size that a table may well have is no defect a shard could see; it only takes the memory.
    const absl::StatusOr<Start> start = ParseControl<Start>(damaged);
    bool huge = false;
    for (int t = 0; start.ok() && t < start->job().table_size(); ++t) {
      huge = huge || start->job().table(t).elements() > 1'000'000;
    }
    if (huge) continue;
    shard.Deliver(1, damaged);
    shard.FromWorker(testing::PullFrame(0, 0, 1, {{0, {5}, {}}}));
    shard.Tick(std::chrono::seconds(2));
  }
}

}  // namespace
}  // namespace capstan
