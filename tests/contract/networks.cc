#include "networks.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/hash.h"
#include "transport/inproc_transport.h"
#include "transport/sim_transport.h"
#include "transport/zmq_transport.h"

namespace capstan {
namespace {

class ZmqNetwork final : public Network {
 public:
  explicit ZmqNetwork(bool tcp) : tcp_(tcp) {}
  std::unique_ptr<Transport> New(const TransportOptions& options) override {
    return NewZmqTransport(options);
  }
  std::string FreeEndpoint() override {
    if (!tcp_) {
      static std::atomic<int> next{0};
      return fmt::format("ipc://{}capstan-{}-{}", ::testing::TempDir(), getpid(), next++);
    }
    auto probe = NewZmqTransport({});
    const auto bound = probe->Bind("tcp://127.0.0.1:0");
    EXPECT_TRUE(bound.ok()) << bound.status();
    probe->Close(Duration::zero());
    return bound.value_or("");
  }
  Time Now() const override { return SteadyClock().Now(); }
  bool uses_sockets() const override { return true; }

 private:
  const bool tcp_;
};

class InprocNetwork final : public Network {
 public:
  std::unique_ptr<Transport> New(const TransportOptions& options) override {
    return NewInprocTransport(hub_, options);
  }
  std::string FreeEndpoint() override { return fmt::format("inproc://place-{}", next_++); }
  Time Now() const override { return SteadyClock().Now(); }
  bool uses_sockets() const override { return false; }

 private:
  InprocHub hub_;
  int next_ = 0;
};

class SimulatedNetwork final : public Network {
 public:
  std::unique_ptr<Transport> New(const TransportOptions& options) override {
    return sim_.NewTransport(options);
  }
  std::string FreeEndpoint() override { return fmt::format("inproc://place-{}", next_++); }
  Time Now() const override { return sim_.Now(); }
  bool uses_sockets() const override { return false; }
  bool simulated() const override { return true; }

 private:
  SimNetwork sim_{SimOptions{}};
  int next_ = 0;
};

}  // namespace

std::unique_ptr<Network> NewNetwork(const std::string& kind) {
  if (kind == "inproc") return std::make_unique<InprocNetwork>();
  if (kind == "sim") return std::make_unique<SimulatedNetwork>();
  return std::make_unique<ZmqNetwork>(kind == "tcp");
}

Message MakeFrame(uint64_t request, size_t body_bytes, uint64_t job) {
  Message message;
  message.header.kind = static_cast<uint16_t>(MessageKind::kPush);
  message.header.request = request;
  message.header.job = job;
  message.body = Buffer::Allocate(body_bytes);
  for (size_t at = 0; at < body_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = Mix64(request * 1'000'003 + at);
    std::memcpy(message.body.data() + at, &word, std::min(sizeof word, body_bytes - at));
  }
  SealFrame(message);
  return message;
}

::testing::AssertionResult IsFrame(const Message& message, uint64_t request, size_t body_bytes) {
  const Message want = MakeFrame(request, body_bytes, message.header.job);
  if (message.header.request != request) {
    return ::testing::AssertionFailure() << "request " << message.header.request << ", want " << request;
  }
  if (std::memcmp(&message.header, &want.header, sizeof(FrameHeader)) != 0) {
    return ::testing::AssertionFailure() << "request " << request << ": another header";
  }
  if (!std::ranges::equal(message.body.bytes(), want.body.bytes())) {
    return ::testing::AssertionFailure() << "request " << request << ": another body";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace capstan
