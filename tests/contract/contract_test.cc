// What every transport promises (transport/transport.h), over all of them.
#include <cstring>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "common/hash.h"
#include "networks.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Contract : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Over, Contract, ::testing::ValuesIn(kAllNetworks),
                         [](const auto& test) { return test.param; });

PeerId MustConnect(Transport& transport, const std::string& endpoint) {
  const auto peer = transport.Connect(endpoint);
  EXPECT_TRUE(peer.ok()) << peer.status();
  return peer.value_or(kNoPeer);
}

TEST_P(Contract, CarriesFramesOfEverySizeInOrderAndUnchanged) {
  // Around every size at which a transport changes its ways.
  const std::vector<size_t> sizes = {0,
                                     1,
                                     7,
                                     8,
                                     33,
                                     34,
                                     256,
                                     1023,
                                     1024,
                                     1025,
                                     8191,
                                     8193,
                                     65536,
                                     kTargetPartBytes,
                                     kMaxBodyBytes - 1,
                                     kMaxBodyBytes};
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  for (size_t i = 0; i < sizes.size(); ++i) ASSERT_TRUE(client->Send(to, MakeFrame(i, sizes[i])).ok());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_TRUE(IsFrame(got->message, i, sizes[i]));
    ASSERT_TRUE(server->Send(got->from, got->message).ok());
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto got = Next(*client);
    ASSERT_TRUE(got.has_value()) << "answer " << i;
    EXPECT_EQ(got->from, to);
    EXPECT_TRUE(IsFrame(got->message, i, sizes[i]));
  }
  EXPECT_EQ(server->stats().frames_received, sizes.size());
  EXPECT_EQ(client->stats().frames_sent, sizes.size());
  EXPECT_EQ(server->stats().bytes_received, client->stats().bytes_sent);
}

TEST_P(Contract, ManyPeersEachGetTheirOwnAnswersInOrder) {
  constexpr uint64_t kClients = 40, kFrames = 20;
  std::string endpoint;
  auto server = NewServer(endpoint);
  std::vector<std::unique_ptr<Transport>> clients;
  for (uint64_t c = 0; c < kClients; ++c) {
    clients.push_back(network_->New());
    const PeerId to = MustConnect(*clients[c], endpoint);
    for (uint64_t f = 0; f < kFrames; ++f)
      ASSERT_TRUE(clients[c]->Send(to, MakeFrame(c * 1000 + f, 100 * f)).ok());
  }
  std::map<PeerId, uint64_t> seen;  // frames so far, by peer
  for (uint64_t i = 0; i < kClients * kFrames; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_EQ(got->message.header.request % 1000, seen[got->from]++) << "order of one peer";
    ASSERT_TRUE(server->Send(got->from, got->message).ok());
  }
  EXPECT_EQ(seen.size(), kClients);
  for (uint64_t c = 0; c < kClients; ++c) {
    for (uint64_t f = 0; f < kFrames; ++f) {
      const auto got = Next(*clients[c]);
      ASSERT_TRUE(got.has_value()) << "client " << c << ", answer " << f;
      EXPECT_TRUE(IsFrame(got->message, c * 1000 + f, 100 * f));
    }
  }
}

TEST_P(Contract, OneTransportDialsManyAndBindsToo) {
  constexpr uint64_t kServers = 24;  // more than the 16 that the socket library polls without allocating
  auto hub = network_->New();
  const auto hub_endpoint = hub->Bind(network_->FreeEndpoint());
  ASSERT_TRUE(hub_endpoint.ok());
  std::vector<std::unique_ptr<Transport>> servers;
  std::map<PeerId, uint64_t> dialed;
  for (uint64_t s = 0; s < kServers; ++s) {
    std::string endpoint;
    servers.push_back(NewServer(endpoint));
    const PeerId peer = MustConnect(*hub, endpoint);
    dialed[peer] = s;
    ASSERT_TRUE(hub->Send(peer, MakeFrame(s, 10)).ok());
    ASSERT_TRUE(servers[s]->Send(MustConnect(*servers[s], *hub_endpoint), MakeFrame(1000 + s, 20)).ok());
  }
  for (uint64_t s = 0; s < kServers; ++s) {
    const auto got = Next(*servers[s]);
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(IsFrame(got->message, s, 10));
    ASSERT_TRUE(servers[s]->Send(got->from, MakeFrame(2000 + s, 30)).ok());
  }
  uint64_t answers = 0, calls = 0;
  while (answers + calls < 2 * kServers) {
    const auto got = Next(*hub);
    ASSERT_TRUE(got.has_value()) << answers << " answers, " << calls << " calls";
    const uint64_t request = got->message.header.request;
    if (request >= 2000) {
      EXPECT_EQ(dialed.at(got->from), request - 2000);
      ++answers;
    } else {
      EXPECT_EQ(dialed.count(got->from), 0u) << "a call comes from a peer that was not dialed";
      ++calls;
    }
  }
}

TEST_P(Contract, FramesSentBeforeAnybodyListensArriveLater) {
  const std::string endpoint = network_->FreeEndpoint();
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(client->Send(to, MakeFrame(i, 5000)).ok());
  EXPECT_FALSE(Next(*client, milliseconds(20)).has_value());
  auto server = network_->New();
  ASSERT_TRUE(server->Bind(endpoint).ok());
  for (uint64_t i = 0; i < 10; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_TRUE(IsFrame(got->message, i, 5000));
  }
}

TEST_P(Contract, TheInFlightLimitCountsBytesAndRefusedFramesAreNotQueued) {
  constexpr size_t kLimit = size_t{4} << 20;
  const size_t frame_bytes = sizeof(FrameHeader) + kTargetPartBytes;
  const std::string endpoint = network_->FreeEndpoint();
  auto client = network_->New({.inflight_limit_bytes = kLimit});
  const PeerId to = MustConnect(*client, endpoint);
  const uint64_t fit = kLimit / frame_bytes;  // nobody listens, so nothing leaves
  for (uint64_t i = 0; i < fit; ++i) {
    ASSERT_TRUE(client->Send(to, MakeFrame(i, kTargetPartBytes)).ok()) << "frame " << i;
    EXPECT_EQ(client->InFlightBytes(to), (i + 1) * frame_bytes);
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client->Send(to, MakeFrame(99, kTargetPartBytes)).code(), absl::StatusCode::kResourceExhausted);
  }
  // Bytes, not frames: a small one still fits.
  ASSERT_TRUE(client->Send(to, MakeFrame(fit, 64)).ok());
  auto server = network_->New();
  ASSERT_TRUE(server->Bind(endpoint).ok());
  for (uint64_t i = 0; i <= fit; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_TRUE(IsFrame(got->message, i, i < fit ? kTargetPartBytes : 64));
  }
  for (const Time deadline = network_->Now() + seconds(10); client->InFlightBytes(to) > 0;) {
    ASSERT_LT(network_->Now(), deadline) << "bytes that arrived stay counted as in flight";
    Next(*client, milliseconds(1));
  }
  ASSERT_TRUE(client->Send(to, MakeFrame(100, kTargetPartBytes)).ok());
  const auto got = Next(*server);
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(IsFrame(got->message, 100, kTargetPartBytes)) << "a refused frame was queued after all";
}

TEST_P(Contract, AFrameLargerThanTheLimitGoesAlone) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto client = network_->New({.inflight_limit_bytes = 1000});
  const PeerId to = MustConnect(*client, endpoint);
  ASSERT_TRUE(client->Send(to, MakeFrame(1, 50'000)).ok());
  const auto got = Next(*server);
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(IsFrame(got->message, 1, 50'000));
}

TEST_P(Contract, AReceiverThatDoesNotReadStopsTheSender) {
  constexpr size_t kLimit = size_t{8} << 20;
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto client = network_->New({.inflight_limit_bytes = kLimit});
  const PeerId to = MustConnect(*client, endpoint);
  const Message frame = MakeFrame(7, kMaxBodyBytes);
  // Sockets take what fits into their own buffers as well: 64 frames for one connection, and the kernel's.
  uint64_t sent = 0;
  for (const Time deadline = network_->Now() + seconds(10); network_->Now() < deadline;) {
    if (client->Send(to, frame).ok()) {
      ++sent;
    } else if (Next(*client, milliseconds(100)); !client->Send(to, frame).ok()) {
      break;  // no room after a pause either
    } else {
      ++sent;
    }
    ASSERT_LT(sent, 200u) << "the sender is not stopped";
  }
  EXPECT_GE(client->InFlightBytes(to) + sizeof(FrameHeader) + frame.body.size(), kLimit);
  for (uint64_t i = 0; i < sent; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i << " of " << sent;
    ASSERT_EQ(got->message.body.size(), kMaxBodyBytes);
  }
  EXPECT_FALSE(Next(*server, milliseconds(20)).has_value());
}

TEST_P(Contract, BodiesAreNotCopied) {
  const std::string endpoint = network_->FreeEndpoint();
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  Message sent = MakeFrame(1, kTargetPartBytes);
  const std::byte* const place = sent.body.data();
  const size_t live = GetBufferPoolStats().live_bytes;
  ASSERT_TRUE(client->Send(to, sent).ok());
  EXPECT_FALSE(sent.body.unique()) << "the transport keeps the buffer itself";
  auto server = network_->New();
  ASSERT_TRUE(server->Bind(endpoint).ok());
  const auto got = Next(*server);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(GetBufferPoolStats().live_bytes, live) << "somebody made a buffer to copy into";
  if (!network_->uses_sockets()) {
    EXPECT_EQ(got->message.body.data(), place);
    return;
  }
  for (const Time deadline = network_->Now() + seconds(10); !sent.body.unique();) {
    ASSERT_LT(network_->Now(), deadline) << "the buffer is never let go";
    Next(*client, milliseconds(1));
  }
}

TEST_P(Contract, FramesThatFailACheckAreCountedAndDoNotDisturbTheOthers) {
  struct Case {
    const char* why;
    void (*damage)(Message&);
    uint64_t corrupt, oversize, version;
  };
  const Case cases[] = {
      {"a changed field", [](Message& m) { m.header.step ^= 1; }, 1, 0, 0},
      {"another magic", [](Message& m) { m.header.magic = 0; }, 1, 0, 0},
      {"an unknown kind",
       [](Message& m) {
         m.header.kind = 999;
         SealFrame(m);
       },
       1, 0, 0},
      {"no kind",
       [](Message& m) {
         m.header.kind = 0;
         SealFrame(m);
       },
       1, 0, 0},
      {"an unknown flag",
       [](Message& m) {
         m.header.flags = 1u << 31;
         SealFrame(m);
       },
       1, 0, 0},
      {"spare bits",
       [](Message& m) {
         m.header.spare = 1;
         SealFrame(m);
       },
       1, 0, 0},
      {"part 1 of 1",
       [](Message& m) {
         m.header.part = 1;
         SealFrame(m);
       },
       1, 0, 0},
      {"the next version",
       [](Message& m) {
         m.header.version = kFrameVersion + 1;
         SealFrame(m);
       },
       0, 0, 1},
      {"one byte too large",
       [](Message& m) {
         m.body = Buffer::CopyOf(std::vector<char>(kMaxBodyBytes + 1).data(), kMaxBodyBytes + 1);
         m.header.body_len = kMaxBodyBytes + 1;
         m.header.body_xxh3 = HashBytes(m.body.data(), m.body.size());
         m.header.header_xxh3 = HashBytes(&m.header, 120);
       },
       0, 1, 0},
  };
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  TransportStats want;
  uint64_t request = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.why);
    Message bad = MakeFrame(9999, 100);
    c.damage(bad);
    ASSERT_TRUE(client->Send(to, MakeFrame(request, 50)).ok());
    ASSERT_TRUE(client->Send(to, bad).ok());
    ASSERT_TRUE(client->Send(to, MakeFrame(request + 1, 60)).ok());
    for (const size_t bytes : {50, 60}) {
      const auto got = Next(*server);
      ASSERT_TRUE(got.has_value());
      EXPECT_TRUE(IsFrame(got->message, request++, bytes));
    }
    want.refused_corrupt += c.corrupt;
    want.refused_oversize += c.oversize;
    want.refused_version += c.version;
    EXPECT_EQ(server->stats().refused_corrupt, want.refused_corrupt);
    EXPECT_EQ(server->stats().refused_oversize, want.refused_oversize);
    EXPECT_EQ(server->stats().refused_version, want.refused_version);
  }
  EXPECT_EQ(server->stats().frames_received, request);
}

TEST_P(Contract, AServerThatRestartsIsReachedAgain) {
  std::string endpoint;
  auto first = NewServer(endpoint);
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  ASSERT_TRUE(client->Send(to, MakeFrame(1, 10)).ok());
  ASSERT_TRUE(Next(*first).has_value());
  first->Close(Duration::zero());
  ASSERT_TRUE(client->Send(to, MakeFrame(2, 10)).ok()) << "a server that is away is not gone for good";
  auto second = network_->New();
  ASSERT_TRUE(second->Bind(endpoint).ok());
  // What was under way at the restart may be lost; whoever repeats a request gets through.
  std::optional<Incoming> got;
  for (uint64_t request = 3; !got.has_value() || got->message.header.request < 3; ++request) {
    ASSERT_LT(request, 1000u) << "the new server hears nothing";
    ASSERT_TRUE(client->Send(to, MakeFrame(request, 10)).ok());
    got = Next(*second, milliseconds(50));
  }
  ASSERT_TRUE(second->Send(got->from, MakeFrame(5000, 10)).ok());
  const auto answer = Next(*client);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->from, to);
  EXPECT_TRUE(IsFrame(answer->message, 5000, 10));
}

TEST_P(Contract, AClientThatRestartsIsAnotherPeerAndNeverGetsTheOldOnesFrames) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto old_client = network_->New();
  ASSERT_TRUE(old_client->Send(MustConnect(*old_client, endpoint), MakeFrame(1, 10)).ok());
  const auto old_hello = Next(*server);
  ASSERT_TRUE(old_hello.has_value());
  old_client->Close(Duration::zero());
  auto new_client = network_->New();
  ASSERT_TRUE(new_client->Send(MustConnect(*new_client, endpoint), MakeFrame(2, 10)).ok());
  const auto new_hello = Next(*server);
  ASSERT_TRUE(new_hello.has_value());
  EXPECT_NE(new_hello->from, old_hello->from);
  absl::Status status;
  for (const Time deadline = network_->Now() + seconds(10); status.ok();) {
    ASSERT_LT(network_->Now(), deadline) << "the old client is never found gone";
    status = server->Send(old_hello->from, MakeFrame(3, 10));
    EXPECT_FALSE(Next(*server, milliseconds(1)).has_value());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(server->stats().peers_gone, 1u);
  EXPECT_EQ(server->InFlightBytes(old_hello->from), 0u);
  ASSERT_TRUE(server->Send(new_hello->from, MakeFrame(4, 10)).ok());
  const auto got = Next(*new_client);
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(IsFrame(got->message, 4, 10)) << "the first frame to reach the new client is its own";
}

TEST_P(Contract, ClosingSendsWhatIsQueued) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto client = network_->New();
  const PeerId to = MustConnect(*client, endpoint);
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(client->Send(to, MakeFrame(i, kTargetPartBytes)).ok());
  client->Close(seconds(10));
  for (uint64_t i = 0; i < 20; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value()) << "frame " << i;
    EXPECT_TRUE(IsFrame(got->message, i, kTargetPartBytes));
  }
}

TEST_P(Contract, PollKeepsItsDeadline) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  for (const Duration wait :
       {Duration(milliseconds(30)), Duration(std::chrono::microseconds(300)), Duration::zero()}) {
    const Time deadline = network_->Now() + wait;
    EXPECT_FALSE(server->Poll(deadline).has_value());
    EXPECT_GE(network_->Now(), deadline);
    EXPECT_LT(network_->Now(), deadline + seconds(5));
  }
  EXPECT_FALSE(server->Poll(network_->Now() - seconds(1)).has_value());
}

TEST_P(Contract, WakeEndsAPoll) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  const Time start = network_->Now();
  std::thread other([&server] { server->Wake(); });
  if (network_->simulated()) other.join();
  EXPECT_FALSE(server->Poll(start + std::chrono::hours(1)).has_value());
  EXPECT_LT(network_->Now() - start, std::chrono::minutes(1));
  if (other.joinable()) other.join();
  // Once used up, it does not end the next one.
  const Time deadline = network_->Now() + milliseconds(20);
  EXPECT_FALSE(server->Poll(deadline).has_value());
  EXPECT_GE(network_->Now(), deadline);
}

TEST_P(Contract, FramesOfTwoJobsAreJustCarried) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto one = network_->New();
  auto two = network_->New();
  ASSERT_TRUE(one->Send(MustConnect(*one, endpoint), MakeFrame(1, 10, 0xAAAA)).ok());
  ASSERT_TRUE(two->Send(MustConnect(*two, endpoint), MakeFrame(1, 10, 0xBBBB)).ok());
  std::map<uint64_t, PeerId> jobs;
  for (int i = 0; i < 2; ++i) {
    const auto got = Next(*server);
    ASSERT_TRUE(got.has_value());
    jobs[got->message.header.job] = got->from;
  }
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_NE(jobs.at(0xAAAA), jobs.at(0xBBBB));
}

TEST_P(Contract, RefusesWhatItCannotDo) {
  std::string endpoint;
  auto server = NewServer(endpoint);
  auto other = network_->New();
  const absl::Status in_use = other->Bind(endpoint).status();
  EXPECT_EQ(in_use.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(in_use.message()).find(endpoint), std::string::npos) << in_use;
  EXPECT_NE(std::string(in_use.message()).find("Address already in use"), std::string::npos) << in_use;
  EXPECT_EQ(server->Bind(network_->FreeEndpoint()).status().code(), absl::StatusCode::kInvalidArgument)
      << "twice";
  const std::string foreign = network_->uses_sockets() ? "inproc://x" : "tcp://127.0.0.1:17000";
  EXPECT_EQ(other->Bind(foreign).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other->Connect(foreign).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other->Connect("pgm://1.2.3.4:5").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other->Send(kNoPeer, MakeFrame(1, 1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(other->Send(12345, MakeFrame(1, 1)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(MustConnect(*other, endpoint), MustConnect(*other, endpoint)) << "one peer per endpoint";
  // After all that it still works.
  ASSERT_TRUE(other->Send(MustConnect(*other, endpoint), MakeFrame(5, 5)).ok());
  const auto got = Next(*server);
  ASSERT_TRUE(got.has_value());
  EXPECT_TRUE(IsFrame(got->message, 5, 5));
}

TEST_P(Contract, ABusyPeerDoesNotStarveTheOthers) {
  std::string endpoint;
  std::string quiet_endpoint;
  auto server = NewServer(endpoint);
  auto quiet = NewServer(quiet_endpoint);
  ASSERT_TRUE(server->Send(MustConnect(*server, quiet_endpoint), MakeFrame(1, 10)).ok());
  const auto call = Next(*quiet);
  ASSERT_TRUE(call.has_value());
  auto busy = network_->New();
  const PeerId to = MustConnect(*busy, endpoint);
  constexpr uint64_t kBacklog = 2000;
  for (uint64_t i = 0; i < kBacklog; ++i) ASSERT_TRUE(busy->Send(to, MakeFrame(100, 10)).ok());
  ASSERT_TRUE(Next(*server).has_value());
  ASSERT_TRUE(quiet->Send(call->from, MakeFrame(2, 10)).ok());
  // The busy peer's queue never runs empty: one in for each one out.
  std::optional<Incoming> got;
  for (const Time deadline = network_->Now() + seconds(10); !got || got->message.header.request != 2;) {
    ASSERT_LT(network_->Now(), deadline) << "the quiet peer is never heard";
    got = Next(*server);
    ASSERT_TRUE(busy->Send(to, MakeFrame(100, 10)).ok());
  }
}

}  // namespace
}  // namespace capstan
