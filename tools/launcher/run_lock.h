// Tells whether a run is alive: its scheduler's process holds a lock on a file in the output folder, which the kernel
// lets go of however that process ends.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"

namespace capstan {

enum class RunLife {
  kUnknown,  // no lock was ever held, the run is of another machine, or the disk knows no locks
  kAlive,
  kGone,
};

// One thread.
class RunLock {
 public:
  // OUTPUT/run.lock, with this machine's name in it. Where the disk knows no locks there is no such file afterwards,
  // and no error: nobody is then told that the run is gone.
  static std::unique_ptr<RunLock> Hold(const std::string& output);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  const int fd_;
};

// Before a run goes on in that folder: until its scheduler holds the lock again, nothing is known.
absl::Status ForgetRunLock(const std::string& output);
RunLife LifeOf(const std::string& output);

}  // namespace capstan
