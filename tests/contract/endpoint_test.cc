#include "transport/endpoint.h"

#include <cerrno>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(ParseEndpoint, FollowsTheTable) {
  struct Case {
    const char* text;
    const char* formatted;  // nullptr: refused
    const char* reason;
  };
  const std::string longest = "ipc:///" + std::string(kMaxIpcPathBytes - 1, 'p');
  const std::string too_long = longest + "p";
  const Case cases[] = {
      {"tcp://127.0.0.1:17000", "tcp://127.0.0.1:17000", ""},
      {"tcp://localhost:1", "tcp://127.0.0.1:1", ""},
      {"tcp://0.0.0.0:0", "tcp://0.0.0.0:0", ""},
      {"tcp://10.0.0.1:65535", "tcp://10.0.0.1:65535", ""},
      {"ipc:///tmp/x", "ipc:///tmp/x", ""},
      {"ipc://relative/x", "ipc://relative/x", ""},
      {longest.c_str(), longest.c_str(), ""},
      {"inproc://name", "inproc://name", ""},
      {"", nullptr, "unknown kind"},
      {"127.0.0.1:17000", nullptr, "unknown kind"},
      {"TCP://127.0.0.1:17000", nullptr, "unknown kind"},
      {"udp://127.0.0.1:17000", nullptr, "unknown kind"},
      {"pgm://1.2.3.4:5", nullptr, "unknown kind"},
      {"tcp://127.0.0.1", nullptr, "no port"},
      {"tcp://127.0.0.1:", nullptr, "'' is not a port"},
      {"tcp://127.0.0.1:65536", nullptr, "'65536' is not a port"},
      {"tcp://127.0.0.1:-1", nullptr, "'-1' is not a port"},
      {"tcp://127.0.0.1:80x", nullptr, "'80x' is not a port"},
      {"tcp://127.0.0.1: 80", nullptr, "' 80' is not a port"},
      {"tcp://127.0.0.256:80", nullptr, "'127.0.0.256' is not an IPv4 address"},
      {"tcp://example.org:80", nullptr, "'example.org' is not an IPv4 address"},
      {"tcp://[::1]:80", nullptr, "'[::1]' is not an IPv4 address"},
      {"tcp://*:80", nullptr, "write 0.0.0.0"},
      {"tcp://:80", nullptr, "'' is not an IPv4 address"},
      {"tcp://127.0.0.1;10.0.0.1:80", nullptr, "is not an IPv4 address"},
      {"ipc://", nullptr, "no path"},
      {"ipc://@abstract", nullptr, "not a path"},
      {"ipc://*", nullptr, "not a path"},
      {too_long.c_str(), nullptr, "the path has 108 bytes, the limit is 107"},
      {"inproc://", nullptr, "no name"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const auto parsed = ParseEndpoint(c.text);
    ASSERT_EQ(parsed.ok(), c.formatted != nullptr);
    if (parsed.ok()) {
      EXPECT_EQ(FormatEndpoint(*parsed), c.formatted);
      EXPECT_EQ(*ParseEndpoint(c.formatted), *parsed);
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(std::string(parsed.status().message()).find(c.reason), std::string::npos) << parsed.status();
    }
  }
}

TEST(ParsePeerEndpoint, RefusesWhatCanOnlyBeBound) {
  EXPECT_TRUE(ParsePeerEndpoint("tcp://127.0.0.1:1").ok());
  EXPECT_TRUE(ParsePeerEndpoint("ipc:///x").ok());
  EXPECT_FALSE(ParsePeerEndpoint("tcp://127.0.0.1:0").ok());
  EXPECT_FALSE(ParsePeerEndpoint("tcp://0.0.0.0:17000").ok());
}

TEST(BindFreePort, TriesEveryPortOfTheRangeOnce) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SeededRandom random(seed);
    std::set<uint16_t> tried;
    const auto port = BindFreePort("127.0.0.1", random, [&](uint16_t p) {
      EXPECT_TRUE(tried.insert(p).second) << "tried twice";
      return EADDRINUSE;
    });
    EXPECT_EQ(port.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(tried.size(), size_t{kLastFreePort - kFirstFreePort + 1});
    EXPECT_EQ(*tried.begin(), kFirstFreePort);
    EXPECT_EQ(*tried.rbegin(), kLastFreePort);
  }
}

TEST(BindFreePort, TakesTheFirstThatWorksAndStopsAtOtherErrors) {
  SeededRandom random(1);
  int calls = 0;
  const auto third =
      BindFreePort("127.0.0.1", random, [&](uint16_t) { return ++calls < 3 ? EADDRINUSE : 0; });
  EXPECT_TRUE(third.ok());
  EXPECT_EQ(calls, 3);
  const auto denied = BindFreePort("10.9.8.7", random, [](uint16_t) { return EACCES; });
  EXPECT_EQ(denied.status().code(), absl::StatusCode::kUnavailable);
  const std::string text(denied.status().message());
  EXPECT_NE(text.find("tcp://10.9.8.7:"), std::string::npos) << text;
  EXPECT_NE(text.find("Permission denied"), std::string::npos) << text;
}

TEST(BindFreePort, StartsAtRandom) {
  std::set<uint16_t> first;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SeededRandom random(seed);
    first.insert(*BindFreePort("127.0.0.1", random, [](uint16_t) { return 0; }));
  }
  EXPECT_GT(first.size(), 40u) << "two nodes that start together would race for the same ports";
}

TEST(AdvertisedAddress, IsTheLocalEndOfTheRoute) {
  EXPECT_EQ(*AdvertisedAddress("tcp://127.0.0.1:17000"), "127.0.0.1");
  EXPECT_EQ(*AdvertisedAddress("tcp://localhost:17000"), "127.0.0.1");
  EXPECT_EQ(*AdvertisedAddress("ipc:///tmp/scheduler"), "127.0.0.1");
  EXPECT_EQ(AdvertisedAddress("tcp://0.0.0.0:17000").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AdvertisedAddress("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace capstan
