#include "storage/scheduler_state_store.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/scheduler_state.pb.h"
#include "storage/checkpoint_records.h"

namespace capstan {
namespace {

constexpr char kJobFile[] = "job.pb";
constexpr char kStateFile[] = "state.pb";
constexpr char kOldStateFile[] = "state.old.pb";
constexpr uint64_t kMaxStateBytes = uint64_t{256} << 20;  // a plan of a million splits is 30 MiB

absl::StatusOr<SchedulerState> ReadState(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs, path, kMaxStateBytes));
  SchedulerState state;
  if (!state.ParseFromString(bytes) || !state.has_format() || !state.has_sequence())
    return DataLoss(fmt::format("'{}' is damaged: its checksum fits, its contents cannot be read", path));
  if (state.format() != kSchedulerStateFormat) {
    return InvalidArgument(fmt::format("'{}' has format {}, this release reads {}: continue with the release that wrote it",
                                       path, state.format(), kSchedulerStateFormat));
  }
  return state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerStateStore>> SchedulerStateStore::Open(FileSystem& fs, const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(MakeFoldersDurably(fs, folder));
  std::unique_ptr<SchedulerStateStore> store(new SchedulerStateStore(fs, folder));
  for (const char* name : {kStateFile, kOldStateFile}) {
    const absl::StatusOr<SchedulerState> state = ReadState(fs, store->Path(name));
    if (state.ok()) store->sequence_ = std::max(store->sequence_, state->sequence());
    if (absl::IsUnavailable(state.status())) return state.status();
  }
  return store;
}

absl::Status SchedulerStateStore::WriteJob(const EffectiveJob& job) {
  const std::string framed = FrameRecord(job.SerializeAsString());
  const std::string path = Path(kJobFile);
  const absl::StatusOr<std::string> there = ReadWholeFile(fs_, path, kMaxStateBytes);
  if (absl::IsNotFound(there.status())) return WriteFileAtomically(fs_, path, framed);
  CAPSTAN_RETURN_IF_ERROR(there.status());
  // Not taken for granted that it reached the disk: the call that wrote it may have failed at its last sync.
  if (*there == framed) return fs_.SyncFolder(folder_);
  return InvalidArgument(fmt::format("'{}' holds another job or is damaged; resume that job, or give this one a folder of its "
                                     "own",
                                     path));
}

absl::StatusOr<EffectiveJob> SchedulerStateStore::ReadJob() {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs_, Path(kJobFile), kMaxStateBytes));
  EffectiveJob job;
  if (job.ParseFromString(bytes)) return job;
  return DataLoss(fmt::format("'{}' is damaged: its checksum fits, its contents cannot be read", Path(kJobFile)));
}

absl::Status SchedulerStateStore::Write(const SchedulerState& state) {
  SchedulerState next = state;
  next.set_format(kSchedulerStateFormat);
  next.set_sequence(++sequence_);
  const std::string path = Path(kStateFile);
  // Only a good one becomes the old one, so that a damaged one never takes the place of the last good one.
  const absl::StatusOr<SchedulerState> there = ReadState(fs_, path);
  if (there.ok()) {
    // By link and rename: under one of the two names the last state is there at every moment.
    const std::string link = Path(kOldStateFile) + ".tmp";
    const absl::Status gone = fs_.Remove(link);
    if (!gone.ok() && !absl::IsNotFound(gone)) return gone;
    CAPSTAN_RETURN_IF_ERROR(fs_.HardLink(path, link));
    CAPSTAN_RETURN_IF_ERROR(fs_.Rename(link, Path(kOldStateFile)));
  } else if (absl::IsUnavailable(there.status()) || absl::IsInvalidArgument(there.status())) {
    return there.status();
  }
  return WriteFileAtomically(fs_, path, FrameRecord(next.SerializeAsString()));
}

absl::StatusOr<SchedulerState> SchedulerStateStore::Load(std::vector<std::string>* damaged) {
  std::optional<SchedulerState> newest;
  absl::Status problem;
  for (const char* name : {kStateFile, kOldStateFile}) {
    absl::StatusOr<SchedulerState> state = ReadState(fs_, Path(name));
    if (state.ok() && (!newest.has_value() || state->sequence() > newest->sequence())) newest = *std::move(state);
    if (state.ok() || absl::IsNotFound(state.status())) continue;
    // An older state than that of a newer release would be a step back unnoticed; so would one chosen by a passing error.
    if (!absl::IsDataLoss(state.status())) return state.status();
    if (damaged != nullptr) damaged->emplace_back(state.status().message());
    if (problem.ok()) problem = state.status();
  }
  if (newest.has_value()) return *std::move(newest);
  if (!problem.ok()) return problem;
  return NotFound(fmt::format("'{}' holds no state of a scheduler", folder_));
}

}  // namespace capstan
