// What only peers with a socket of their own can do to us.
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/clock.h"
#include "networks.h"
#include "raw_peer.h"
#include "transport/endpoint.h"
#include "transport/zmq_transport.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Parts = std::vector<std::string>;

Parts WireParts(const Message& message) {
  Parts parts = {std::string(reinterpret_cast<const char*>(&message.header), sizeof(FrameHeader))};
  if (!message.body.empty()) {
    parts.emplace_back(reinterpret_cast<const char*>(message.body.data()), message.body.size());
  }
  return parts;
}

class ZmqWire : public ::testing::Test {
 protected:
  void SetUp() override {
    network_ = NewNetwork("tcp");
    server_ = network_->New();
    const auto bound = server_->Bind("tcp://127.0.0.1:0");
    ASSERT_TRUE(bound.ok()) << bound.status();
    endpoint_ = *bound;
    port_ = ParseEndpoint(endpoint_)->port;
  }
  std::optional<Incoming> Next(Duration wait = seconds(10)) { return server_->Poll(network_->Now() + wait); }
  uint64_t Refused() const {
    const TransportStats stats = server_->stats();
    return stats.refused_corrupt + stats.refused_oversize + stats.refused_version;
  }

  std::unique_ptr<Network> network_;
  std::unique_ptr<Transport> server_;
  std::string endpoint_;
  int port_ = 0;
};

TEST_F(ZmqWire, MessagesOfAnotherShapeAreDrainedAndCountedOnce) {
  const Message good = MakeFrame(1, 100);
  const std::string header = WireParts(good)[0], body = WireParts(good)[1];
  std::string flipped = body;
  flipped[50] = static_cast<char>(flipped[50] ^ 4);
  struct Case {
    const char* why;
    Parts parts;
  };
  const Case cases[] = {
      {"one empty part", {""}},
      {"two empty parts", {"", ""}},
      {"a short header", {header.substr(0, 127), body}},
      {"a long header", {header + "x", body}},
      {"128 bytes of something else", {std::string(128, 'x')}},
      {"a body changed on the way", {header, flipped}},
      {"a short body", {header, body.substr(0, 99)}},
      {"a long body", {header, body + "x"}},
      {"no body", {header}},
      {"a body where none is promised", {WireParts(MakeFrame(1, 0))[0], body}},
      {"three parts", {header, body, body}},
      {"an empty third part", {header, body, ""}},
      {"a thousand parts", Parts(1000, header)},
      {"many large parts", Parts(30, std::string(kMaxBodyBytes, 'y'))},
      {"too large a body", {header, std::string(kMaxBodyBytes + 1, 'z')}},
  };
  RawPeer peer(endpoint_);
  uint64_t request = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.why);
    const uint64_t refused = Refused();
    peer.Send(WireParts(MakeFrame(request, 3000)));
    peer.Send(c.parts);
    peer.Send(WireParts(MakeFrame(request + 1, 0)));
    for (const size_t bytes : {size_t{3000}, size_t{0}}) {
      const auto got = Next();
      ASSERT_TRUE(got.has_value());
      EXPECT_TRUE(IsFrame(got->message, request++, bytes));
    }
    EXPECT_EQ(Refused(), refused + 1);
  }
  EXPECT_EQ(server_->stats().refused_oversize, 1u);
}

TEST_F(ZmqWire, NoFlippedBitOfAHeaderGetsThrough) {
  const std::string header = WireParts(MakeFrame(1, 0))[0];
  RawPeer peer(endpoint_);
  for (size_t bit = 0; bit < 8 * header.size(); ++bit) {
    std::string bad = header;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    peer.Send({bad});
  }
  peer.Send({header});
  const auto got = Next();
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(IsFrame(got->message, 1, 0));
  EXPECT_EQ(Refused(), 8 * header.size());
  EXPECT_EQ(server_->stats().refused_version, 16u) << "the bits of the version field";
}

TEST_F(ZmqWire, AFloodOfBadFramesDoesNotHoldPollBeyondItsDeadline) {
  RawPeer peer(endpoint_);
  for (int i = 0; i < 900; ++i) peer.Send({"bad"});
  for (uint64_t polls = 0; Refused() < 900; ++polls) {
    ASSERT_LT(polls, 100'000u);
    EXPECT_FALSE(Next(Duration(1000)).has_value());
  }
}

TEST_F(ZmqWire, PeersThatBreakTheConnectionProtocolOnlyHurtThemselves) {
  auto client = network_->New();
  const auto to = client->Connect(endpoint_);
  ASSERT_TRUE(to.ok());
  ASSERT_TRUE(client->Send(*to, MakeFrame(1, 10)).ok());
  ASSERT_TRUE(Next().has_value());
  std::atomic<int> closed{0};
  std::vector<std::thread> strangers;
  for (const std::string& bytes : {std::string(500, 'G'), std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n")}) {
    strangers.emplace_back(
        [this, &closed, bytes] { closed += WriteGarbageUntilClosed(port_, bytes) ? 1 : 0; });
  }
  // A part beyond the limit of the socket is never read: its connection is cut. The peer dials again.
  RawPeer too_large(endpoint_);
  too_large.Send({std::string(8 * kMaxBodyBytes, 'x')});
  // A message that never ends is never seen.
  RawPeer endless(endpoint_);
  for (int i = 0; i < 100; ++i) endless.SendUnfinished(std::string(1000, 'x'));
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(client->Send(*to, MakeFrame(i, 10'000)).ok());
    const auto got = Next();
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(IsFrame(got->message, i, 10'000));
  }
  for (std::thread& stranger : strangers) stranger.join();
  EXPECT_EQ(closed, 2) << "a stranger's connection stays open";
}

TEST_F(ZmqWire, AnEndpointWhereSomethingElseAnsweredIsDialedAgain) {
  const std::string endpoint = network_->FreeEndpoint();
  auto client = network_->New({.inflight_limit_bytes = 1 << 20});
  const auto to = client->Connect(endpoint);
  ASSERT_TRUE(to.ok());
  {
    ForeignServer foreign(ParseEndpoint(endpoint)->port);
    foreign.AnswerOnce("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" + std::string(100, ' '));
  }
  auto server = network_->New();
  ASSERT_TRUE(server->Bind(endpoint).ok());
  std::optional<Incoming> got;
  for (const Time deadline = network_->Now() + seconds(20); !got.has_value();) {
    ASSERT_LT(network_->Now(), deadline) << "never dialed again";
    const absl::Status status = client->Send(*to, MakeFrame(1, 10));
    ASSERT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
    got = server->Poll(network_->Now() + milliseconds(20));
  }
  EXPECT_TRUE(IsFrame(got->message, 1, 10));
}

// Closing with half-written frames while the connection breaks aborted the process within some such rounds
// before sockets went on sending for a while (libzmq issue 3442).
TEST_F(ZmqWire, AllSidesMayCloseAtOnceInTheMiddleOfFrames) {
  constexpr int kRounds = 20, kClients = 40, kFrames = 2000;
  const Message frame = MakeFrame(1, 10);
  for (int round = 0; round < kRounds; ++round) {
    auto server = network_->New();
    const auto endpoint = server->Bind("tcp://127.0.0.1:0");
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    std::vector<std::unique_ptr<Transport>> clients;
    for (int c = 0; c < kClients; ++c) {
      clients.push_back(network_->New());
      ASSERT_TRUE(clients[c]->Send(*clients[c]->Connect(*endpoint), frame).ok());
    }
    for (int c = 0; c < kClients; ++c) ASSERT_TRUE(server->Poll(network_->Now() + seconds(10)).has_value());
    for (auto& client : clients) {
      const PeerId to = *client->Connect(*endpoint);
      for (int i = 0; i < kFrames; ++i) ASSERT_TRUE(client->Send(to, frame).ok());
    }
    server->Close(Duration::zero());
    for (auto& client : clients) client->Close(Duration::zero());
  }
}

TEST_F(ZmqWire, PortsAreBelowTheEphemeralRangeAndKept) {
  EXPECT_GE(port_, kFirstFreePort);
  EXPECT_LE(port_, kLastFreePort);
  const absl::Status elsewhere = network_->New()->Bind("tcp://192.0.2.1:17000").status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(elsewhere.message()).find("tcp://192.0.2.1:17000: "), std::string::npos) << elsewhere;
  EXPECT_EQ(network_->New()->Bind("tcp://192.0.2.1:0").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ZmqWire, LocalhostIsTheSamePeerAsItsAddress) {
  auto client = network_->New();
  EXPECT_EQ(*client->Connect(endpoint_), *client->Connect(fmt::format("tcp://localhost:{}", port_)));
}

TEST(ZmqIpc, TakesOverTheFileOfADeadServerButNothingElse) {
  auto network = NewNetwork("ipc");
  const std::string endpoint = network->FreeEndpoint();
  const std::string path = endpoint.substr(std::strlen("ipc://"));
  std::ofstream(path) << "somebody's notes";
  EXPECT_EQ(network->New()->Bind(endpoint).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
  std::filesystem::remove(path);
  LeaveStaleIpcFile(path);
  auto server = network->New();
  const auto bound = server->Bind(endpoint);
  ASSERT_TRUE(bound.ok()) << bound.status();
  EXPECT_EQ(network->New()->Bind(endpoint).status().code(), absl::StatusCode::kUnavailable);
  server->Close(Duration::zero());
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace capstan
