// When the loop gives a node its slices of work beside the messages. The transport is played: each Poll takes as long as
// the deadline says, or a frame is there at once.
#include "transport/node_loop.h"

#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class PlayedTransport final : public Transport {
 public:
  PlayedTransport(ManualClock& clock, Duration between_frames) : clock_(clock), between_frames_(between_frames) {}
  absl::StatusOr<std::string> Bind(const std::string& endpoint) override { return endpoint; }
  absl::StatusOr<PeerId> Connect(const std::string&) override { return PeerId{1}; }
  absl::Status Send(PeerId, const Message&) override { return absl::OkStatus(); }
  std::optional<Incoming> Poll(Time deadline) override {
    if (next_frame_ <= std::max(deadline, clock_.Now())) {
      clock_.Set(std::max(clock_.Now(), next_frame_));
      next_frame_ = clock_.Now() + between_frames_;
      return Incoming{PeerId{1}, Message()};
    }
    clock_.Set(std::max(deadline, clock_.Now()));
    return std::nullopt;
  }
  void Wake() override {}
  size_t InFlightBytes(PeerId) const override { return 0; }
  void Close(Duration) override {}
  TransportStats stats() const override { return {}; }

 private:
  ManualClock& clock_;
  const Duration between_frames_;
  Time next_frame_ = clock_.Now() + between_frames_;
};

// The moments, since the start, at which slices began; each takes 100 µs and asks for `pause`.
std::vector<Duration> SlicesOf(Duration pause, Duration between_frames, Duration length) {
  ManualClock clock;
  const Time begin = clock.Now();
  PlayedTransport transport(clock, between_frames);
  NodeOutbox outbox(transport);
  std::vector<Duration> slices;
  NodeHandlers handlers;
  handlers.on_message = [&](PeerId, Message, Time) { clock.Advance(microseconds(10)); };
  handlers.on_tick = [](Time) {};
  handlers.done = [&] { return clock.Now() - begin >= length; };
  handlers.on_idle = [&] {
    slices.push_back(clock.Now() - begin);
    clock.Advance(microseconds(100));
    return pause;
  };
  RunNodeLoop(transport, outbox, clock, handlers);
  return slices;
}

TEST(NodeLoop, SlicesFollowOneAnotherWhileNoFrameComes) {
  const std::vector<Duration> slices = SlicesOf(Duration::zero(), std::chrono::hours(1), milliseconds(10));
  EXPECT_EQ(slices.size(), 100u);
}

TEST(NodeLoop, APauseIsKeptWithAndWithoutFrames) {
  for (const Duration between_frames : {Duration(std::chrono::hours(1)), Duration(microseconds(70))}) {
    const std::vector<Duration> slices = SlicesOf(milliseconds(3), between_frames, milliseconds(100));
    ASSERT_GE(slices.size(), 10u);
    for (size_t i = 1; i < slices.size(); ++i) EXPECT_GE(slices[i] - slices[i - 1], microseconds(3100));
  }
}

TEST(NodeLoop, AFrameDoesNotWaitForTheEndOfAPause) {
  const std::vector<Duration> slices = SlicesOf(milliseconds(3), milliseconds(1), milliseconds(100));
  ASSERT_GE(slices.size(), 2u);
  EXPECT_LT(slices[1] - slices[0], milliseconds(5)) << "nor does the next slice wait for long";
}

TEST(NodeLoop, SlicesComeAlsoWhileFramesKeepComing) {
  // A frame is always there: without a word of its own a node gets a slice every few milliseconds.
  const size_t calm = SlicesOf(Duration::zero(), microseconds(1), milliseconds(100)).size();
  EXPECT_GE(calm, 10u);
  EXPECT_LE(calm, 30u);
  EXPECT_GT(SlicesOf(Duration(-1), microseconds(1), milliseconds(100)).size(), calm)
      << "one that must not wait for a quiet moment gets them with every look at time";
}

}  // namespace
}  // namespace capstan
