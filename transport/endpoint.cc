#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr std::string_view kTcpPrefix = "tcp://";
constexpr std::string_view kIpcPrefix = "ipc://";
constexpr std::string_view kInprocPrefix = "inproc://";

absl::Status BadEndpoint(std::string_view text, std::string_view why) {
  return InvalidArgument(
      fmt::format("endpoint '{}': {}; want tcp://IP:PORT, ipc://PATH or inproc://NAME", text, why));
}

bool IsIpv4(const std::string& ip) {
  in_addr address;
  return inet_pton(AF_INET, ip.c_str(), &address) == 1;
}

absl::StatusOr<Endpoint> ParseTcp(std::string_view text, std::string_view rest) {
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return BadEndpoint(text, "no port");
  Endpoint endpoint{.kind = Endpoint::Kind::kTcp, .name = std::string(rest.substr(0, colon)), .port = 0};
  if (endpoint.name == "localhost") endpoint.name = "127.0.0.1";
  if (endpoint.name == "*") return BadEndpoint(text, "write 0.0.0.0 for all interfaces");
  if (!IsIpv4(endpoint.name)) {
    return BadEndpoint(text, fmt::format("'{}' is not an IPv4 address", endpoint.name));
  }
  const std::string_view digits = rest.substr(colon + 1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, endpoint.port);
  if (error != std::errc() || stop != end) {
    return BadEndpoint(text, fmt::format("'{}' is not a port (0 to 65535)", digits));
  }
  return endpoint;
}

absl::StatusOr<Endpoint> ParseIpc(std::string_view text, std::string_view path) {
  if (path.empty()) return BadEndpoint(text, "no path");
  if (path.size() > kMaxIpcPathBytes) {
    return BadEndpoint(text,
                       fmt::format("the path has {} bytes, the limit is {}", path.size(), kMaxIpcPathBytes));
  }
  // To the library behind, '*' is a wildcard and '@' an abstract name without file permissions.
  if (path.front() == '@' || path.front() == '*' || path.find('\0') != std::string_view::npos) {
    return BadEndpoint(text, "not a path of a file");
  }
  return Endpoint{.kind = Endpoint::Kind::kIpc, .name = std::string(path), .port = 0};
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  if (text.starts_with(kTcpPrefix)) return ParseTcp(text, text.substr(kTcpPrefix.size()));
  if (text.starts_with(kIpcPrefix)) return ParseIpc(text, text.substr(kIpcPrefix.size()));
  if (text.starts_with(kInprocPrefix)) {
    const std::string_view name = text.substr(kInprocPrefix.size());
    if (name.empty()) return BadEndpoint(text, "no name");
    return Endpoint{.kind = Endpoint::Kind::kInproc, .name = std::string(name), .port = 0};
  }
  return BadEndpoint(text, "unknown kind");
}

std::string FormatEndpoint(const Endpoint& endpoint) {
  switch (endpoint.kind) {
    case Endpoint::Kind::kTcp:
      return fmt::format("{}{}:{}", kTcpPrefix, endpoint.name, endpoint.port);
    case Endpoint::Kind::kIpc:
      return fmt::format("{}{}", kIpcPrefix, endpoint.name);
    case Endpoint::Kind::kInproc:
      break;
  }
  return fmt::format("{}{}", kInprocPrefix, endpoint.name);
}

absl::StatusOr<Endpoint> ParsePeerEndpoint(std::string_view text) {
  CAPSTAN_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
  if (endpoint.kind == Endpoint::Kind::kTcp && (endpoint.port == 0 || endpoint.name == "0.0.0.0")) {
    return BadEndpoint(text, "port 0 and 0.0.0.0 can be bound, not dialed");
  }
  return endpoint;
}

absl::StatusOr<uint16_t> BindFreePort(std::string_view ip, Random& random,
                                      const std::function<int(uint16_t port)>& bind) {
  constexpr uint32_t kPorts = kLastFreePort - kFirstFreePort + 1;
  const auto start = static_cast<uint32_t>(random.Next() % kPorts);
  for (uint32_t i = 0; i < kPorts; ++i) {
    const auto port = static_cast<uint16_t>(kFirstFreePort + (start + i) % kPorts);
    const int error = bind(port);
    if (error == 0) return port;
    if (error != EADDRINUSE) {
      return Unavailable(fmt::format("cannot listen at tcp://{}:{}: {}", ip, port, std::strerror(error)));
    }
  }
  return Unavailable(fmt::format("cannot listen at tcp://{}: every port from {} to {} is in use", ip,
                                 kFirstFreePort, kLastFreePort));
}

absl::StatusOr<std::string> AdvertisedAddress(std::string_view scheduler_endpoint) {
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint scheduler, ParsePeerEndpoint(scheduler_endpoint));
  if (scheduler.kind != Endpoint::Kind::kTcp) return std::string("127.0.0.1");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(scheduler.port);
  inet_pton(AF_INET, scheduler.name.c_str(), &address.sin_addr);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Unavailable(fmt::format("cannot make a socket: {}", std::strerror(errno)));
  // Connecting a UDP socket only looks up the route and fixes the local address.
  sockaddr_in local{};
  socklen_t length = sizeof local;
  const bool found = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
  const int error = errno;
  close(fd);
  if (!found) {
    return Unavailable(
        fmt::format("no route to the scheduler at {}: {}; check the address, or give the address "
                    "to advertise",
                    scheduler_endpoint, std::strerror(error)));
  }
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &local.sin_addr, text, sizeof text);
  return std::string(text);
}

}  // namespace capstan
