// A scheduler beside a slow disk: heartbeats are answered, everything else keeps its order.
#include "scheduler/disk_wait.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/control.pb.h"
#include "proto/control_frame.h"
#include "scheduler/postponed_frames.h"
#include "transport/inproc_transport.h"
#include "transport/node_outbox.h"

namespace capstan {
namespace {

constexpr JobId kOurJob = 7;
constexpr Incarnation kOurIncarnation = 11, kNodeIncarnation = 13;

TEST(DiskWait, TheCallerGoesOnWhileTheWorkWaits) {
  std::atomic<int> looks{0};
  DiskWait wait([&looks] { ++looks; });
  bool done = false;
  wait.Run([&] {
    while (looks < 3) std::this_thread::yield();  // a disk that takes its time
    done = true;
  });
  EXPECT_TRUE(done) << "and it is over afterwards";
  EXPECT_GE(looks, 3);
}

TEST(DiskWait, WithNothingElseToDoThereIsNoThread) {
  DiskWait wait(nullptr);
  std::thread::id ran;
  wait.Run([&ran] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

class PostponedFramesTest : public ::testing::Test {
 protected:
  PostponedFramesTest()
      : scheduler_(NewInprocTransport(hub_, TransportOptions())),
        node_(NewInprocTransport(hub_, TransportOptions())),
        outbox_(*scheduler_) {
    EXPECT_TRUE(scheduler_->Bind("inproc://scheduler").ok());
    peer_ = *node_->Connect("inproc://scheduler");
    own_.job = kOurJob;
    own_.src_incarnation = kOurIncarnation;
  }
  void Send(MessageKind kind, JobId job, uint64_t progress) {
    FrameHeader header;
    header.kind = static_cast<uint16_t>(kind);
    header.job = job;
    header.src_incarnation = kNodeIncarnation;
    Heartbeat beat;
    beat.set_progress(progress);
    ASSERT_TRUE(node_->Send(peer_, MakeControl(header, beat)).ok());
  }
  std::optional<Incoming> Answer() {
    outbox_.Flush();
    return node_->Poll(clock_.Now() + std::chrono::milliseconds(200));
  }

  InprocHub hub_;
  std::unique_ptr<Transport> scheduler_, node_;
  NodeOutbox outbox_;
  SteadyClock clock_;
  FrameHeader own_;
  PeerId peer_ = kNoPeer;
};

TEST_F(PostponedFramesTest, HeartbeatsAreAnsweredAndAllIsHandedOverInOrder) {
  PostponedFrames frames(*scheduler_, outbox_, clock_, own_);
  Send(MessageKind::kHeartbeat, kOurJob, 1);
  Send(MessageKind::kCutState, kOurJob, 2);
  Send(MessageKind::kHeartbeat, kOurJob, 3);
  frames.Take();
  for (int i = 0; i < 2; ++i) {
    const std::optional<Incoming> reply = Answer();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->message.header.Kind(), MessageKind::kHeartbeatReply);
    EXPECT_EQ(reply->message.header.job, kOurJob);
    EXPECT_EQ(reply->message.header.src_incarnation, kOurIncarnation);
    EXPECT_EQ(reply->message.header.dst_incarnation, kNodeIncarnation);
  }
  std::vector<uint64_t> seen;
  frames.Deliver([&](PeerId, Message message, Time) {
    seen.push_back(ParseControl<Heartbeat>(message)->progress());
    if (seen.size() > 1) return;
    Send(MessageKind::kHeartbeat, kOurJob, 4);  // the core waits for the disk once more
    frames.Take();
  });
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 2, 3, 4}));
}

TEST_F(PostponedFramesTest, AStrangersHeartbeatIsLeftToTheCore) {
  PostponedFrames frames(*scheduler_, outbox_, clock_, own_);
  Send(MessageKind::kHeartbeat, kOurJob + 1, 1);
  frames.Take();
  EXPECT_FALSE(Answer().has_value());
  int seen = 0;
  frames.Deliver([&seen](PeerId, Message, Time) { ++seen; });
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace capstan
