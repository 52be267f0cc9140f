// Starting and stopping: whatever the peers do, a transport ends in time and leaves nothing behind.
#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <poll.h>

#include "common/clock.h"
#include "networks.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // freed memory is kept
#else
constexpr bool kSanitized = false;
#endif

class Lifetime : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Over, Lifetime, ::testing::ValuesIn(kAllNetworks),
                         [](const auto& test) { return test.param; });

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

size_t ResidentBytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_P(Lifetime, ClosesInTimeWithUnsentFramesAndADeadPeer) {
  const SteadyClock clock;
  for (const Duration linger : {Duration::zero(), Duration(milliseconds(200))}) {
    auto client = network_->New();
    const auto dead = client->Connect(network_->FreeEndpoint());
    ASSERT_TRUE(dead.ok());
    std::string endpoint;
    auto deaf = NewServer(endpoint);  // accepts and never reads
    const auto stuck = client->Connect(endpoint);
    ASSERT_TRUE(stuck.ok());
    for (uint64_t i = 0; i < 20; ++i) {
      ASSERT_TRUE(client->Send(*dead, MakeFrame(i, kMaxBodyBytes)).ok());
      ASSERT_TRUE(client->Send(*stuck, MakeFrame(i, kMaxBodyBytes)).ok());
    }
    const Time start = clock.Now();
    client->Close(linger);
    EXPECT_LT(clock.Now() - start, linger + seconds(1));
    client.reset();
    EXPECT_LT(clock.Now() - start, linger + seconds(1)) << "the destructor counts, too";
  }
}

TEST_P(Lifetime, StartsAndStopsFiveHundredTimesWithoutALeak) {
  constexpr int kWarmUp = 50, kCycles = 500;
  size_t files = 0, bytes = 0;
  for (int cycle = 0; cycle < kWarmUp + kCycles; ++cycle) {
    if (cycle == kWarmUp) {
      files = OpenFiles();
      bytes = ResidentBytes();
    }
    std::string endpoint;
    auto server = NewServer(endpoint);
    auto client = network_->New();
    const auto to = client->Connect(endpoint);
    ASSERT_TRUE(to.ok());
    ASSERT_TRUE(client->Send(*to, MakeFrame(1, 2000)).ok());
    if (cycle % 4 != 3) {  // else: closed with a frame under way
      const auto got = Next(*server);
      ASSERT_TRUE(got.has_value()) << "cycle " << cycle;
      ASSERT_TRUE(server->Send(got->from, got->message).ok());
    }
    if (cycle % 2 == 0) client->Close(Duration::zero());
    server->Close(Duration::zero());
  }
  // Sockets are taken down by another thread, those with frames under way a little later.
  const SteadyClock clock;
  for (const Time deadline = clock.Now() + seconds(15); OpenFiles() > files && clock.Now() < deadline;) {
    poll(nullptr, 0, 10);  // nothing tells when the library's thread has closed a socket
  }
  EXPECT_LE(OpenFiles(), files);
  if (!kSanitized) {
    EXPECT_LT(ResidentBytes(), bytes + (size_t{8} << 20));
  }
}

TEST_P(Lifetime, AnEndpointCanBeBoundAgainAtOnce) {
  const std::string endpoint = network_->FreeEndpoint();
  for (int i = 0; i < 20; ++i) {
    auto server = network_->New();
    const auto bound = server->Bind(endpoint);
    ASSERT_TRUE(bound.ok()) << "round " << i << ": " << bound.status();
    server->Close(Duration::zero());
  }
}

TEST_P(Lifetime, BelongsToOneThread) {
  if (network_->simulated()) GTEST_SKIP() << "a simulation has one thread";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto transport = network_->New();
  transport->Poll(Time{});
  EXPECT_DEATH(std::thread([&] { transport->Poll(Time{}); }).join(), "belongs to the thread that first used it");
}

}  // namespace
}  // namespace capstan
