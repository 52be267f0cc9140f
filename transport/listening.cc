#include "transport/listening.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "common/clock.h"

namespace capstan {
namespace {

constexpr std::chrono::milliseconds kReleaseWait{500};

bool TcpPortReleased(const Endpoint& endpoint) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;  // cannot tell
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  inet_pton(AF_INET, endpoint.name.c_str(), &address.sin_addr);
  const bool released =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 || errno != EADDRINUSE;
  close(fd);
  return released;
}

}  // namespace

int IpcPathInUse(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return errno == ENOENT ? 0 : errno;
  if (!S_ISSOCK(info.st_mode)) return EEXIST;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const bool refused =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno == ECONNREFUSED;
  close(fd);
  return refused ? 0 : EADDRINUSE;  // refused: a file that a dead server left
}

void AwaitPortReleased(const Endpoint& endpoint) {
  const SteadyClock clock;
  const Time deadline = clock.Now() + kReleaseWait;
  while (!TcpPortReleased(endpoint) && clock.Now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace capstan
