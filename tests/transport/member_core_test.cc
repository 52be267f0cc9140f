#include "transport/member_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock.h"
#include "tests/support/core_testing.h"
#include "transport/node_stop.h"

namespace capstan {
namespace {

using testing::Body;
using testing::kJob;
using testing::kSchedulerIncarnation;
using testing::kWorkerIncarnation;
using testing::RecordingOutbox;
using testing::Sent;
using ::testing::HasSubstr;

constexpr Duration kMs = std::chrono::milliseconds(1);

class MemberHarness {
 public:
  MemberHarness() : member_(Options(), outbox_), scheduler_(outbox_.Connect("test://scheduler")) {
    member_.Tick(clock_.Now());
  }
  static MemberOptions Options() {
    MemberOptions options;
    options.name = "worker-0";
    options.incarnation = kWorkerIncarnation;
    options.scheduler_endpoint = "test://scheduler";
    return options;
  }
  template <typename Proto>
  bool Deliver(MessageKind kind, const Proto& proto, PeerId from = kNoPeer) {
    FrameHeader header = testing::OrderHeader(kind, kWorkerIncarnation);
    return member_.OnMessage(from == kNoPeer ? scheduler_ : from, MakeControl(header, proto), clock_.Now());
  }
  void Accept() {
    JoinReply reply;
    reply.set_accepted(true);
    reply.set_node_id(4);
    reply.set_job_id(kJob);
    reply.set_heartbeat_ms(1);
    reply.set_heartbeat_limit_ms(1);
    Deliver(MessageKind::kJoinReply, reply);
    outbox_.Take();
  }
  void Wait(Duration duration) {
    for (; duration > Duration::zero(); duration -= 20 * kMs) {
      clock_.Advance(20 * kMs);
      member_.Tick(clock_.Now());
    }
  }
  MemberCore& member() { return member_; }
  RecordingOutbox& outbox() { return outbox_; }
  ManualClock& clock() { return clock_; }
  PeerId scheduler() const { return scheduler_; }

 private:
  ManualClock clock_;
  RecordingOutbox outbox_;
  MemberCore member_;
  PeerId scheduler_;
};

End EndOf(int code, const std::string& reason) {
  End end;
  end.set_exit_code(code);
  end.set_reason(reason);
  return end;
}

TEST(MemberCore, AsksToJoinWithBackOffUntilItGivesUp) {
  MemberHarness node;
  node.Wait(1000 * kMs);
  const size_t first = node.outbox().Take(MessageKind::kJoin).size();
  EXPECT_GE(first, 3u);
  EXPECT_LE(first, 6u);
  node.Wait(10'000 * kMs);
  EXPECT_LE(node.outbox().Take(MessageKind::kJoin).size(), 11u);
  EXPECT_THAT(node.member().WaitingFor(node.clock().Now()), HasSubstr("test://scheduler"));
  node.Wait(50'000 * kMs);
  EXPECT_EQ(node.member().state(), MemberCore::State::kEnded);
  EXPECT_EQ(node.member().exit_code(), ExitCode::kJoinTimeout);
  EXPECT_THAT(node.member().reason(), HasSubstr("never answered"));
}

TEST(MemberCore, TellsApartRefusalsForNowAndForGood) {
  MemberHarness node;
  JoinReply reply;
  reply.set_reason("the name is taken\x07");
  reply.set_retry(true);
  node.Deliver(MessageKind::kJoinReply, reply);
  EXPECT_EQ(node.member().state(), MemberCore::State::kJoining);
  EXPECT_THAT(node.member().WaitingFor(node.clock().Now()), HasSubstr("the name is taken?"));
  reply.set_retry(false);
  node.Deliver(MessageKind::kJoinReply, reply);
  EXPECT_EQ(node.member().state(), MemberCore::State::kEnded);
  EXPECT_EQ(node.member().exit_code(), ExitCode::kUsage);
}

TEST(MemberCore, TheFirstAcceptanceCounts) {
  MemberHarness node;
  node.Accept();
  EXPECT_EQ(node.member().node_id(), 4u);
  EXPECT_GE(node.member().heartbeat_limit(), 2 * node.member().heartbeat_interval());
  EXPECT_GE(node.member().heartbeat_interval(), 10 * kMs) << "no flood, whatever the scheduler says";
  JoinReply other;
  other.set_accepted(true);
  other.set_node_id(9);
  other.set_job_id(1);
  node.Deliver(MessageKind::kJoinReply, other);
  node.Deliver(MessageKind::kJoinReply, JoinReply());
  EXPECT_EQ(node.member().node_id(), 4u);
  EXPECT_EQ(node.member().job_id(), kJob);
  EXPECT_EQ(node.member().state(), MemberCore::State::kJoined);
}

TEST(MemberCore, SaysNowAndThenThatItIsStillHere) {
  MemberHarness node;
  node.Accept();
  node.Wait(20'000 * kMs);
  const std::vector<Sent> joins = node.outbox().Take(MessageKind::kJoin);
  EXPECT_EQ(joins.size(), 4u);
  EXPECT_EQ(Body<Join>(joins[0]).job_id(), kJob) << "never into another job";
}

TEST(MemberCore, EndsOnceAndSaysByeEachTime) {
  MemberHarness node;
  node.Accept();
  EXPECT_TRUE(node.Deliver(MessageKind::kEnd, EndOf(3, "bad data\x1b")));
  EXPECT_TRUE(node.Deliver(MessageKind::kEnd, EndOf(0, "")));
  EXPECT_EQ(node.outbox().Take(MessageKind::kBye).size(), 2u) << "the first BYE may be lost";
  EXPECT_EQ(node.member().exit_code(), ExitCode::kData);
  EXPECT_EQ(node.member().reason(), "bad data?");
}

TEST(MemberCore, EndCountsFromItsSchedulerOnly) {
  MemberHarness node;
  node.Accept();
  EXPECT_FALSE(node.Deliver(MessageKind::kEnd, EndOf(3, ""), 12345));
  FrameHeader header = testing::OrderHeader(MessageKind::kEnd, kWorkerIncarnation);
  header.job = 1;
  node.member().OnMessage(node.scheduler(), MakeControl(header, EndOf(3, "")), node.clock().Now());
  header = testing::OrderHeader(MessageKind::kEnd, 1);
  node.member().OnMessage(node.scheduler(), MakeControl(header, EndOf(3, "")), node.clock().Now());
  header = testing::OrderHeader(MessageKind::kEnd, kWorkerIncarnation);
  node.member().OnMessage(node.scheduler(), MakeControlFrame(header, "\xff\xff"), node.clock().Now());
  EXPECT_EQ(node.member().state(), MemberCore::State::kJoined);
  EXPECT_TRUE(node.outbox().Take().empty());
}

TEST(MemberCore, AnExitCodeOfAPeerIsOneThatAProcessCanReturn) {
  struct Case { int wire; bool failed; ExitCode code; };
  const Case cases[] = {
      {0, false, ExitCode::kDone},         {0, true, ExitCode::kModelError},  {3, true, ExitCode::kData},
      {255, false, ExitCode{255}},         {256, false, ExitCode::kModelError}, {-1, false, ExitCode::kModelError},
      {1 << 30, true, ExitCode::kModelError},
  };
  for (const Case& c : cases) EXPECT_EQ(ExitCodeOf(c.wire, c.failed), c.code) << c.wire;
}

TEST(MemberCore, AFailureIsToldUntilTheJobEnds) {
  MemberHarness node;
  node.Accept();
  node.member().Fail(ExitCode::kData, std::string(5'000'000, 'x'), node.clock().Now());
  node.member().Fail(ExitCode::kUsage, "later", node.clock().Now());
  node.Wait(1000 * kMs);
  const std::vector<Sent> told = node.outbox().Take(MessageKind::kFailed);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(Body<Failed>(told[0]).exit_code(), 3);
  EXPECT_THAT(Body<Failed>(told[0]).reason(), HasSubstr("worker-0: xxx"));
  EXPECT_LT(told[0].message.body.size(), 3000u);
  EXPECT_EQ(node.member().state(), MemberCore::State::kJoined);
  node.Wait(4200 * kMs);
  EXPECT_EQ(node.member().state(), MemberCore::State::kEnded) << "nobody answers";
  EXPECT_EQ(node.member().exit_code(), ExitCode::kData);
}

TEST(NodeStop, ASignalTellsTheSchedulerAndASecondOneDoesNotWait) {
  MemberHarness node;
  node.Accept();
  NodeStop stop;
  stop.ApplyTo(node.member(), node.clock().Now());
  EXPECT_TRUE(node.outbox().Take().empty());
  stop.Ask(ExitCode::kInterrupted, "interrupted");
  for (int i = 0; i < 3; ++i) stop.ApplyTo(node.member(), node.clock().Now());
  const std::vector<Sent> told = node.outbox().Take(MessageKind::kFailed);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(Body<Failed>(told[0]).exit_code(), 205) << "for the job it is a lost worker";
  EXPECT_EQ(Body<Failed>(told[0]).reason(), "worker-0: interrupted");
  EXPECT_EQ(node.member().state(), MemberCore::State::kJoined);
  stop.Ask(ExitCode::kUsage, "again");
  stop.ApplyTo(node.member(), node.clock().Now());
  EXPECT_EQ(node.member().state(), MemberCore::State::kEnded);
  EXPECT_EQ(node.member().exit_code(), ExitCode::kInterrupted);
  EXPECT_EQ(node.member().reason(), "worker-0: interrupted");
}

TEST(NodeStop, ALostSchedulerIsNotTold) {
  MemberHarness node;
  node.Accept();
  NodeStop stop;
  stop.SchedulerLost("the scheduler is lost");
  stop.ApplyTo(node.member(), node.clock().Now());
  EXPECT_TRUE(node.outbox().Take().empty());
  EXPECT_EQ(node.member().exit_code(), ExitCode::kSchedulerLost);
  EXPECT_EQ(node.member().reason(), "worker-0: the scheduler is lost");
}

TEST(NodeStop, WhoHasNotJoinedLeavesAtOnce) {
  MemberHarness node;
  NodeStop stop;
  stop.Ask(ExitCode::kInterrupted, "interrupted");
  stop.ApplyTo(node.member(), node.clock().Now());
  EXPECT_EQ(node.member().state(), MemberCore::State::kEnded);
  EXPECT_EQ(node.member().exit_code(), ExitCode::kInterrupted);
}

}  // namespace
}  // namespace capstan
