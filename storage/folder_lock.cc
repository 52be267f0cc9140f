#include "storage/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace capstan {
namespace {

absl::Status LockError(const std::string& path, int error) {
  return Unavailable(fmt::format("locking '{}': {}", path, std::strerror(error)));
}

// The folder may have been renamed or removed between opening the file and locking it.
bool StillNamedSo(int fd, const std::string& path) {
  struct stat held = {};
  struct stat named = {};
  return fstat(fd, &held) == 0 && stat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

}  // namespace

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Shared(const std::string& manifest_path) {
  std::unique_ptr<FolderLock> lock(new FolderLock(open(manifest_path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (lock->fd_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return lock;
    return LockError(manifest_path, errno);
  }
  if (flock(lock->fd_, LOCK_SH | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return lock;
    return Unavailable(fmt::format("the checkpoint of '{}' is being removed", manifest_path));
  }
  if (!StillNamedSo(lock->fd_, manifest_path)) {
    return Unavailable(fmt::format("the checkpoint of '{}' was removed just now", manifest_path));
  }
  return lock;
}

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::TryExclusive(const std::string& manifest_path) {
  std::unique_ptr<FolderLock> lock(new FolderLock(open(manifest_path.c_str(), O_RDONLY | O_CLOEXEC)));
  if (lock->fd_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return lock;
    return LockError(manifest_path, errno);
  }
  if (flock(lock->fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return LockError(manifest_path, errno);
    return Unavailable(fmt::format("somebody reads the checkpoint of '{}'", manifest_path));
  }
  return lock;
}

}  // namespace capstan
