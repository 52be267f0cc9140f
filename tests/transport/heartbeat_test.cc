#include "transport/heartbeat.h"

#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/control.pb.h"
#include "proto/control_frame.h"
#include "tests/support/core_testing.h"
#include "transport/inproc_transport.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

HeartbeatOptions Beats(Duration limit) {
  HeartbeatOptions options;
  options.scheduler_endpoint = "inproc://scheduler";
  options.identity.job = testing::kJob;
  options.interval = std::chrono::milliseconds(1);
  options.limit = limit;
  options.progress = [] { return uint64_t{7}; };
  options.waiting_for = [] { return std::string("rank 3"); };
  options.on_lost = [](std::string) {};
  return options;
}

TEST(HeartbeatThread, SaysHowFarItsNodeIs) {
  InprocHub hub;
  const std::unique_ptr<Transport> scheduler = NewInprocTransport(hub, TransportOptions());
  ASSERT_TRUE(scheduler->Bind("inproc://scheduler").ok());
  HeartbeatThread thread(Beats(std::chrono::hours(1)), [&hub] { return NewInprocTransport(hub, TransportOptions()); });
  const std::optional<Incoming> beat = scheduler->Poll(SteadyClock().Now() + std::chrono::minutes(1));
  ASSERT_TRUE(beat.has_value());
  EXPECT_EQ(beat->message.header.Kind(), MessageKind::kHeartbeat);
  const absl::StatusOr<Heartbeat> heartbeat = ParseControl<Heartbeat>(beat->message);
  ASSERT_TRUE(heartbeat.ok());
  EXPECT_EQ(heartbeat->progress(), 7u);
  EXPECT_EQ(heartbeat->waiting_for(), "rank 3");
}

TEST(HeartbeatThread, NoticesSilenceOnce) {
  InprocHub hub;
  std::promise<std::string> lost;
  std::atomic<int> calls{0};
  HeartbeatOptions options = Beats(std::chrono::milliseconds(30));
  options.on_lost = [&](std::string reason) {
    if (calls++ == 0) lost.set_value(std::move(reason));
  };
  {
    HeartbeatThread thread(std::move(options), [&hub] { return NewInprocTransport(hub, TransportOptions()); });
    EXPECT_THAT(lost.get_future().get(), HasSubstr("inproc://scheduler is lost"));
  }
  EXPECT_EQ(calls, 1);
}

TEST(HeartbeatThread, StartsAndStopsAtAnyMoment) {
  InprocHub hub;
  for (int i = 0; i < 200; ++i) {
    HeartbeatThread thread(Beats(std::chrono::milliseconds(i % 5)),
                           [&hub] { return NewInprocTransport(hub, TransportOptions()); });
  }
}

}  // namespace
}  // namespace capstan
