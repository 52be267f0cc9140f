#include "transport/node_outbox.h"

#include <gtest/gtest.h>

#include "networks.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;

constexpr size_t kFrameBytes = sizeof(FrameHeader) + 872;  // 1000
constexpr size_t kBodyBytes = 872;

class NodeOutboxTest : public ::testing::Test {
 protected:
  std::unique_ptr<Network> network_ = NewNetwork("inproc");
  std::unique_ptr<Transport> client_ = network_->New({.inflight_limit_bytes = 3 * kFrameBytes});
  std::unique_ptr<Transport> server_ = network_->New();

  std::optional<Incoming> Next() { return server_->Poll(network_->Now()); }
};

TEST_F(NodeOutboxTest, KeepsWhatDoesNotFitAndSendsItInOrder) {
  NodeOutbox outbox(*client_);
  const std::string endpoint = network_->FreeEndpoint(), other = network_->FreeEndpoint();
  const PeerId to = outbox.Connect(endpoint);
  for (uint64_t i = 0; i < 8; ++i) outbox.Send(to, MakeFrame(i, kBodyBytes));
  EXPECT_EQ(outbox.pending_bytes(), 5 * kFrameBytes);
  EXPECT_FALSE(outbox.Flush()) << "nobody listens";
  outbox.Send(outbox.Connect(other), MakeFrame(100, kBodyBytes));
  EXPECT_EQ(outbox.pending_bytes(), 5 * kFrameBytes) << "one peer does not hold up another";

  ASSERT_TRUE(server_->Bind(endpoint).ok());
  uint64_t expected = 0;
  for (const size_t left : {4, 3, 2, 1, 0}) {
    const auto got = Next();
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(IsFrame(got->message, expected++, kBodyBytes));
    EXPECT_EQ(outbox.Flush(), left == 0);
    EXPECT_EQ(outbox.pending_bytes(), left * kFrameBytes);
  }
  // Small enough to fit, but it must not overtake.
  ASSERT_TRUE(Next().has_value());
  ++expected;
  for (uint64_t i = 8; i < 10; ++i) outbox.Send(to, MakeFrame(i, kBodyBytes));
  EXPECT_EQ(outbox.pending_bytes(), kFrameBytes);
  ASSERT_TRUE(Next().has_value());
  ++expected;
  outbox.Send(to, MakeFrame(10, kBodyBytes));
  while (!outbox.Flush()) {
    const auto got = Next();
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(IsFrame(got->message, expected++, kBodyBytes));
  }
  while (const auto got = Next()) EXPECT_TRUE(IsFrame(got->message, expected++, kBodyBytes));
  EXPECT_EQ(expected, 11u);
  EXPECT_EQ(outbox.dropped_gone(), 0u);
  EXPECT_EQ(outbox.dropped_full(), 0u);
}

TEST_F(NodeOutboxTest, DropsFramesToPeersThatAreGone) {
  const auto endpoint = server_->Bind(network_->FreeEndpoint());
  ASSERT_TRUE(endpoint.ok());
  ASSERT_TRUE(client_->Send(*client_->Connect(*endpoint), MakeFrame(1, 10)).ok());
  const auto hello = Next();
  ASSERT_TRUE(hello.has_value());
  client_->Close(Duration::zero());
  NodeOutbox outbox(*server_);
  outbox.Send(hello->from, MakeFrame(2, 10));
  outbox.Send(kNoPeer, MakeFrame(3, 10));
  EXPECT_EQ(outbox.dropped_gone(), 2u);
  EXPECT_EQ(outbox.pending_bytes(), 0u);
  EXPECT_TRUE(outbox.Flush());
}

TEST_F(NodeOutboxTest, FramesThatWaitForAPeerThatGoesAwayAreDropped) {
  auto small = network_->New({.inflight_limit_bytes = kFrameBytes});
  const auto endpoint = small->Bind(network_->FreeEndpoint());
  ASSERT_TRUE(endpoint.ok());
  ASSERT_TRUE(client_->Send(*client_->Connect(*endpoint), MakeFrame(1, 10)).ok());
  const auto hello = small->Poll(network_->Now());
  ASSERT_TRUE(hello.has_value());
  NodeOutbox outbox(*small);
  for (uint64_t i = 0; i < 3; ++i) outbox.Send(hello->from, MakeFrame(i, kBodyBytes));
  EXPECT_EQ(outbox.pending_bytes(), 2 * kFrameBytes);
  client_->Close(Duration::zero());
  EXPECT_TRUE(outbox.Flush());
  EXPECT_EQ(outbox.dropped_gone(), 2u);
  EXPECT_EQ(outbox.pending_bytes(), 0u);
}

TEST_F(NodeOutboxTest, IsBounded) {
  NodeOutbox outbox(*client_, 2 * kFrameBytes);
  const PeerId to = outbox.Connect(network_->FreeEndpoint());
  for (uint64_t i = 0; i < 10; ++i) outbox.Send(to, MakeFrame(i, kBodyBytes));
  EXPECT_EQ(outbox.pending_bytes(), 2 * kFrameBytes);
  EXPECT_EQ(outbox.dropped_full(), 5u) << "3 in the transport, 2 kept";
}

TEST_F(NodeOutboxTest, HasNoPeerForAMalformedEndpoint) {
  NodeOutbox outbox(*client_);
  EXPECT_EQ(outbox.Connect("nonsense"), kNoPeer);
  EXPECT_NE(outbox.Connect("inproc://sense"), kNoPeer);
}

}  // namespace
}  // namespace capstan
