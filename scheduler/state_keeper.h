// Keeps the scheduler's state on disk in step with its core. A disk that fails never ends the scheduler: it is told, and
// the state is written as soon as that works again.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/file_system.h"
#include "scheduler/disk_wait.h"
#include "scheduler/scheduler_core.h"
#include "storage/scheduler_state_store.h"

namespace capstan {

class StateKeeper {
 public:
  // folder: of this job's scheduler alone; "": nothing is kept. log: lines for a person.
  // wait outlives it.
  StateKeeper(FileSystem& fs, std::string folder, DiskWait& wait, std::function<void(const std::string& line)> log);
  ~StateKeeper();

  // Every tick: writes what changed.
  void Keep(const SchedulerCore& core, Time now);

 private:
  absl::Status Write(const SchedulerCore& core);

  FileSystem& fs_;
  const std::string folder_;
  DiskWait& wait_;
  const std::function<void(const std::string& line)> log_;
  std::unique_ptr<SchedulerStateStore> store_;
  bool job_written_ = false;
  uint64_t written_ = ~uint64_t{0};  // state_changes() of the state on disk
  Time not_before_{};
};

}  // namespace capstan
