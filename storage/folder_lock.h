// Keeps retention from removing a checkpoint that somebody reads: readers share a lock on its manifest, the
// remover wants it alone. Advisory (flock); it ends with the process that holds it.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

namespace capstan {

class FolderLock {
 public:
  // A path that is not on the real disk (a test's memory) gives a lock that holds nothing.
  // kUnavailable: somebody removes the checkpoint just now. A file system without locks: none is held, no
  // error.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Shared(const std::string& manifest_path);
  // kUnavailable: somebody reads it, or the file system knows no locks.
  static absl::StatusOr<std::unique_ptr<FolderLock>> TryExclusive(const std::string& manifest_path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_ = -1;  // -1: nothing is held
};

}  // namespace capstan
