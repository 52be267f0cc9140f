// Addresses of nodes: tcp://IP:PORT, ipc://PATH and inproc://NAME, nothing else. We parse them ourselves so
// that no other protocol of the messaging library can be reached by a flag or a message.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/random.h"
#include "common/status.h"

namespace capstan {

struct Endpoint {
  enum class Kind { kTcp, kIpc, kInproc };
  Kind kind = Kind::kInproc;
  std::string name;   // IPv4 address, path, or name
  uint16_t port = 0;  // tcp only; 0 = a free one, to bind only

  bool operator==(const Endpoint&) const = default;
};

inline constexpr size_t kMaxIpcPathBytes = 107;  // sun_path less its final 0

// Accepts `localhost` and turns it into 127.0.0.1. kInvalidArgument says what is wrong with the text.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
std::string FormatEndpoint(const Endpoint& endpoint);

// An endpoint that can be dialed: as ParseEndpoint, but neither port 0 nor 0.0.0.0.
absl::StatusOr<Endpoint> ParsePeerEndpoint(std::string_view text);

// Ports that a node picks lie below the kernel's ephemeral range (32768 on): inside it, a client that keeps
// reconnecting to a dead local port can connect to itself and then hold the port against the real server.
inline constexpr uint16_t kFirstFreePort = 17000;
inline constexpr uint16_t kLastFreePort = 31999;

// Tries ports from a random start until `bind` succeeds. `bind` returns 0 or an errno; EADDRINUSE goes on to
// the next port, anything else ends the search with kUnavailable.
absl::StatusOr<uint16_t> BindFreePort(std::string_view ip, Random& random,
                                      const std::function<int(uint16_t port)>& bind);

// The local IPv4 address from which this machine reaches the scheduler, for other nodes to dial. 127.0.0.1
// for an ipc or inproc scheduler. Sends nothing. kUnavailable if there is no route.
absl::StatusOr<std::string> AdvertisedAddress(std::string_view scheduler_endpoint);

}  // namespace capstan
