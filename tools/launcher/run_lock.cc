#include "tools/launcher/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/core.h>

namespace capstan {
namespace {

// For people only: the lock is the kernel's.
std::string HolderSays(int fd) {
  char text[256];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : "another process";
}

void SayWhoHolds(int fd) {
  char host[128] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '?';
  const std::string text = fmt::format("process {} on {}", getpid(), host);
  if (ftruncate(fd, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
}

}  // namespace

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Take(const std::string& folder) {
  const std::string path = folder + "/" + kRunLockFile;
  std::unique_ptr<RunLock> lock(new RunLock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)));
  if (lock->fd_ < 0) return Unavailable(fmt::format("opening '{}': {}", path, std::strerror(errno)));
  if (flock(lock->fd_, LOCK_EX | LOCK_NB) == 0) {
    SayWhoHolds(lock->fd_);
    return lock;
  }
  if (errno != EWOULDBLOCK) return lock;
  return absl::FailedPreconditionError(
      fmt::format("a run goes on in the output folder '{}' just now ({}); wait until it has ended, or choose another "
                  "--output", folder, HolderSays(lock->fd_)));
}

}  // namespace capstan
