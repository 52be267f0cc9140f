#include "scheduler/state_keeper.h"

#include <utility>

#include <fmt/core.h>

#include "proto/scheduler_state.pb.h"

namespace capstan {
namespace {

constexpr Duration kPauseAfterFailure = std::chrono::seconds(10);

}  // namespace

StateKeeper::StateKeeper(FileSystem& fs, std::string folder, DiskWait& wait,
                         std::function<void(const std::string& line)> log)
    : fs_(fs), folder_(std::move(folder)), wait_(wait), log_(std::move(log)) {}
StateKeeper::~StateKeeper() = default;

void StateKeeper::Keep(const SchedulerCore& core, Time now) {
  if (folder_.empty() || core.state_changes() == written_ || now < not_before_) return;
  absl::Status status;
  wait_.Run([&] { status = Write(core); });
  if (status.ok()) {
    written_ = core.state_changes();
    return;
  }
  not_before_ = now + kPauseAfterFailure;
  log_(fmt::format("the scheduler's state is not on disk: {}; the job goes on", std::string(status.message())));
}

absl::Status StateKeeper::Write(const SchedulerCore& core) {
  if (store_ == nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(store_, SchedulerStateStore::Open(fs_, folder_));
  }
  // The job is complete once all have joined: only then are its instruction set and its map known.
  if (!job_written_ && core.phase() >= SchedulerCore::Phase::kStartingWorkers) {
    CAPSTAN_RETURN_IF_ERROR(store_->WriteJob(core.job()));
    job_written_ = true;
  }
  SchedulerState state;
  core.FillState(&state);
  return store_->Write(state);
}

}  // namespace capstan
