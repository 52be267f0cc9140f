// The scheduler's memory on disk: the job, once, and its state, again whenever a decision must not be forgotten.
//
//   FOLDER/job.pb         EffectiveJob, framed (checkpoint_records.h)
//   FOLDER/state.pb       SchedulerState (scheduler_state.proto), framed
//   FOLDER/state.old.pb   the one written before
//
// Framed records and atomic renames, not a RocksDB database as for rows: the state is a few kilobytes that always change
// as one, and Debian's RocksDB can abort its process when the disk is full. A scheduler that cannot write its state must
// live on, say so, and try again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class EffectiveJob;
class SchedulerState;

inline constexpr uint32_t kSchedulerStateFormat = 1;

// One thread; one owner of the folder. I/O only inside the calls, a few milliseconds each where disks sync slowly: not
// for the thread that answers heartbeats.
class SchedulerStateStore {
 public:
  // Makes the folder, or opens what an earlier scheduler left there, damaged or not.
  static absl::StatusOr<std::unique_ptr<SchedulerStateStore>> Open(FileSystem& fs, const std::string& folder);

  // A job is written once. The same again: fine. Another one: kInvalidArgument, the folder belongs to that job.
  absl::Status WriteJob(const EffectiveJob& job);
  // kNotFound: never written. kDataLoss: damaged.
  absl::StatusOr<EffectiveJob> ReadJob();

  // Replaces the state; format and sequence are set here. After OK a crash or power cut leaves this state or a later one.
  // After an error (a full disk) the one before is still there, and the call may be repeated.
  absl::Status Write(const SchedulerState& state);
  // The newest that can be used; `damaged`, if not null, is told which could not and why. kNotFound: none was ever
  // written. kDataLoss: there are some, none can be used. kInvalidArgument: a newer release wrote the newest one.
  absl::StatusOr<SchedulerState> Load(std::vector<std::string>* damaged);

 private:
  SchedulerStateStore(FileSystem& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}
  std::string Path(const char* name) const { return folder_ + "/" + name; }

  FileSystem& fs_;
  const std::string folder_;
  uint64_t sequence_ = 0;  // of the newest state that was or may have been written
};

}  // namespace capstan
