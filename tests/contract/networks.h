// The transports that the contract suite runs over, behind one door, and frames to send through them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "transport/transport.h"

namespace capstan {

class Network {
 public:
  virtual ~Network() = default;
  virtual std::unique_ptr<Transport> New(const TransportOptions& options = {}) = 0;
  // A place nobody is bound to, that can be bound and dialed.
  virtual std::string FreeEndpoint() = 0;
  virtual Time Now() const = 0;

  // Frames leave through a socket, so other threads carry them and bytes may change on the way.
  virtual bool uses_sockets() const = 0;
  virtual bool simulated() const { return false; }
};

std::unique_ptr<Network> NewNetwork(const std::string& kind);  // tcp, ipc, inproc, sim
inline const std::vector<std::string> kAllNetworks = {"tcp", "ipc", "inproc", "sim"};

// A sealed frame; the bytes of the body depend on `request`.
Message MakeFrame(uint64_t request, size_t body_bytes, uint64_t job = 1);
// Same header fields and bytes as MakeFrame(request, body_bytes) made?
::testing::AssertionResult IsFrame(const Message& message, uint64_t request, size_t body_bytes);

class TransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { network_ = NewNetwork(GetParam()); }

  // The next frame, or nothing after `wait`.
  std::optional<Incoming> Next(Transport& transport, Duration wait = std::chrono::seconds(10)) {
    return transport.Poll(network_->Now() + wait);
  }
  // A transport bound to a free endpoint.
  std::unique_ptr<Transport> NewServer(std::string& endpoint, const TransportOptions& options = {}) {
    auto server = network_->New(options);
    const auto bound = server->Bind(network_->FreeEndpoint());
    EXPECT_TRUE(bound.ok()) << bound.status();
    endpoint = bound.value_or("");
    return server;
  }

  std::unique_ptr<Network> network_;
};

}  // namespace capstan
