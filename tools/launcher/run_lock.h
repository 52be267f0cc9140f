// Who goes on in an output folder: one process at a time, the launcher or a scheduler started by hand. The kernel lets go
// of its lock however it ends, so that others can tell a run that goes on from one that was cut off.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

namespace capstan {

inline constexpr char kRunLockFile[] = "run.lock";

enum class RunLife {
  kUnknown,  // no lock was ever held, the run is of another machine, or the disk knows no locks
  kAlive,
  kGone,
};

// Held until it is destroyed or the process has ended. Children do not inherit it.
class RunLock {
 public:
  // folder: exists. kFailedPrecondition: another process holds it, and which. A file system without locks: none is
  // held and there is no file, no error.
  static absl::StatusOr<std::unique_ptr<RunLock>> Take(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  const int fd_;
};

// Asks without being in anybody's way.
RunLife LifeOf(const std::string& folder);

}  // namespace capstan
