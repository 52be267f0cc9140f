// Who goes on in an output folder: one process at a time.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

namespace capstan {

inline constexpr char kRunLockFile[] = "run.lock";

// Held until it is destroyed or the process has ended, however it ends (flock). Children do not inherit it.
class RunLock {
 public:
  // folder: exists. kFailedPrecondition: another process holds it, and which. A file system without locks: none is
  // held, no error.
  static absl::StatusOr<std::unique_ptr<RunLock>> Take(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace capstan
