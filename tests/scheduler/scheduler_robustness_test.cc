// A scheduler under thousands of damaged frames in every phase.
#include <gtest/gtest.h>

#include "scheduler_harness.h"
#include "tests/support/frame_mutator.h"

namespace capstan {
namespace {

using testing::FrameMutator;
using testing::JobOptions;
using testing::Member;
using testing::SchedulerHarness;

std::vector<Message> FramesOf(const SchedulerHarness& scheduler, uint64_t turn) {
  std::vector<Message> frames;
  const Member server = scheduler.Server(0), worker = scheduler.Worker(0);
  const auto add = [&frames, &scheduler](const Member& member, NodeId id, MessageKind kind, const auto& proto) {
    frames.push_back(MakeControl(scheduler.From(member, id, kind), proto));
  };
  for (const Member& member : {server, worker, scheduler.Worker(1)}) {
    FrameHeader join;
    join.kind = static_cast<uint16_t>(MessageKind::kJoin);
    join.src_incarnation = member.incarnation;
    frames.push_back(MakeControl(join, scheduler.JoinOf(member)));
  }
  add(server, 1, MessageKind::kHelloReply, HelloReply());
  add(server, 1, MessageKind::kStarted, Started());
  add(worker, 2, MessageKind::kStarted, Started());
  Heartbeat beat;
  beat.set_waiting_for("rank 1");
  add(worker, 2, MessageKind::kHeartbeat, beat);
  LeaseRequest request;
  request.set_rank(0);
  request.set_term(1);
  request.set_sequence(1 + turn / 8);
  add(worker, 2, MessageKind::kLeaseRequest, request);
  LeaseDone lease_done;
  lease_done.set_rank(0);
  lease_done.set_term(1);
  lease_done.set_lease(1 + turn / 8);
  add(worker, 2, MessageKind::kLeaseDone, lease_done);
  LeaseClose closed;
  closed.set_sequence(3);
  add(server, 1, MessageKind::kLeaseClosed, closed);
  RankDone done;
  done.set_rank(0);
  done.set_term(1);
  add(worker, 2, MessageKind::kRankDone, done);
  Progress progress;
  progress.set_version(turn);
  add(server, 1, MessageKind::kProgress, progress);
  add(server, 1, MessageKind::kCutState, scheduler.WrittenBy(0));
  Nack nack;
  nack.set_code(6);
  nack.set_reason("not yet");
  add(server, 1, MessageKind::kNack, nack);
  add(worker, 2, MessageKind::kBye, End());
  if (turn % 50 == 0) add(worker, 2, MessageKind::kFailed, Failed());
  return frames;
}

TEST(SchedulerRobustness, SurvivesDamagedFramesInEveryPhase) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    JobOptions options;
    options.consistency = seed % 2 == 0 ? "async" : "sync";
    SchedulerHarness scheduler(options, /*heartbeats=*/seed % 3 == 0);
    FrameMutator mutator(seed);
    const uint64_t start_at = mutator.random().Below(200);
    const PeerId shard = scheduler.outbox().Connect("test://server-0/shard-0");
    for (uint64_t turn = 0; turn < 400; ++turn) {
      if (turn == start_at) scheduler.StartTraining();
      const PeerId peers[] = {shard, 10, 50, 51, 999};
      scheduler.Deliver(peers[mutator.random().Below(5)], mutator.Pick(FramesOf(scheduler, turn)));
      if (turn % 10 == 0) scheduler.Tick(std::chrono::milliseconds(100));
      ASSERT_LT(scheduler.outbox().bytes(), size_t{1} << 20);
      scheduler.outbox().Take();
      for (const std::string& line : scheduler.events().phases) {
        ASSERT_EQ(CleanText(line, line.size()), line) << "a peer's bytes reach the terminal";
        ASSERT_LT(line.size(), 20'000u);
      }
      scheduler.events().phases.clear();
      ASSERT_LE(scheduler.core().WaitingFor(scheduler.clock().Now()).size(), 20'000u);
    }
    scheduler.core().Fail(ExitCode::kInterrupted, "enough", scheduler.clock().Now());
    scheduler.Wait(std::chrono::seconds(5));
    EXPECT_TRUE(scheduler.core().finished());
    const bool done = scheduler.core().exit_code() == ExitCode::kDone;
    EXPECT_TRUE(!done || !scheduler.store().heads.empty()) << "done without a model";
  }
}

}  // namespace
}  // namespace capstan
