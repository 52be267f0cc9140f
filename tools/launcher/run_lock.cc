#include "tools/launcher/run_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "common/file_system.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxHostName = 1024;

std::string LockFile(const std::string& output) { return output + "/run.lock"; }

std::string ThisHost() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? std::string(name) : std::string();
}

// Of the open file, not of the process: it does not end when another descriptor of the file is closed. It can be asked
// for without being taken, so that who looks is never in the way.
struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

std::unique_ptr<RunLock> RunLock::Hold(const std::string& output) {
  const std::string path = LockFile(output);
  const std::string host = ThisHost();
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return nullptr;
  struct flock lock = WholeFile();
  const bool held = fcntl(fd, F_OFD_SETLK, &lock) == 0 && !host.empty() && ftruncate(fd, 0) == 0 &&
                    write(fd, host.data(), host.size()) == static_cast<ssize_t>(host.size());
  std::unique_ptr<RunLock> result(new RunLock(fd));
  if (!held) unlink(path.c_str());
  return held ? std::move(result) : nullptr;
}

RunLock::~RunLock() { close(fd_); }

absl::Status ForgetRunLock(const std::string& output) {
  const absl::Status removed = PosixFileSystem().Remove(LockFile(output));
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

RunLife LifeOf(const std::string& output) {
  const std::string path = LockFile(output);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return RunLife::kUnknown;
  struct flock lock = WholeFile();
  const bool told = fcntl(fd, F_OFD_GETLK, &lock) == 0;
  close(fd);
  if (!told) return RunLife::kUnknown;
  if (lock.l_type != F_UNLCK) return RunLife::kAlive;
  const absl::StatusOr<std::string> host = ReadWholeFile(PosixFileSystem(), path, kMaxHostName);
  // A lock of another machine may not be seen here.
  return host.ok() && !host->empty() && *host == ThisHost() ? RunLife::kGone : RunLife::kUnknown;
}

}  // namespace capstan
