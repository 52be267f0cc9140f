#include "tools/launcher/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/core.h>

namespace capstan {
namespace {

std::string LockFile(const std::string& folder) { return folder + "/" + kRunLockFile; }

std::string ThisHost() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? std::string(name) : std::string("?");
}

// "process 123 on host", for people and for LifeOf: the lock itself is the kernel's.
std::string TextOf(int fd) {
  char text[512];
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : "another process";
}

bool SayWhoHolds(int fd) {
  const std::string text = fmt::format("process {} on {}", getpid(), ThisHost());
  return ftruncate(fd, 0) == 0 && pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

// Of the open file, not of the process: it does not end when another descriptor of the file is closed, and it can be
// asked for without being taken.
struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<RunLock>> RunLock::Take(const std::string& folder) {
  const std::string path = LockFile(folder);
  std::unique_ptr<RunLock> lock(new RunLock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)));
  if (lock->fd_ < 0) return Unavailable(fmt::format("opening '{}': {}", path, std::strerror(errno)));
  struct flock wanted = WholeFile();
  if (fcntl(lock->fd_, F_OFD_SETLK, &wanted) == 0) {
    if (!SayWhoHolds(lock->fd_)) unlink(path.c_str());  // a full disk: nobody is told then whether the run is alive
    return lock;
  }
  if (errno != EAGAIN && errno != EACCES) {
    unlink(path.c_str());
    return lock;
  }
  return absl::FailedPreconditionError(
      fmt::format("a run goes on in the output folder '{}' just now ({}); wait until it has ended, or choose another "
                  "--output", folder, TextOf(lock->fd_)));
}

RunLife LifeOf(const std::string& folder) {
  const int fd = open(LockFile(folder).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return RunLife::kUnknown;
  struct flock lock = WholeFile();
  const bool told = fcntl(fd, F_OFD_GETLK, &lock) == 0;
  const std::string holder = TextOf(fd);
  close(fd);
  if (!told) return RunLife::kUnknown;
  if (lock.l_type != F_UNLCK) return RunLife::kAlive;
  // A lock of another machine may not be seen here.
  return holder.ends_with(" on " + ThisHost()) ? RunLife::kGone : RunLife::kUnknown;
}

}  // namespace capstan
