// The output folder of one run:
//   job.textproto   everything effective
//   metrics.jsonl   one line per interval
//   result.json     written last
//   run.lock        held while the run is alive (tools/launcher/run_lock.h)
//   checkpoints/    C000001 …; the newest is the model (storage/checkpoint_format.h)
//   scheduler/      the scheduler's state, a folder for each job id (storage/scheduler_state_store.h)
//   logs/           one file per process
//   begun_from.txt  only of a run that began with another's checkpoint: how
//   run.lock        held by the process that goes on here
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/file_system.h"
#include "common/status.h"
#include "tools/launcher/run_lock.h"

namespace capstan {

inline constexpr char kOriginFile[] = "begun_from.txt";

// Figures of an evaluation; those that are not defined on its rows are absent.
struct RunEval {
  uint64_t rows = 0;
  std::optional<double> auc;
  std::optional<double> logloss;
  std::optional<double> accuracy;
  std::optional<double> calibration;
};

// What result.json says. Absent figures are null there.
struct RunResult {
  std::string status;  // "done", or why not: "failed", "interrupted"
  std::string reason;  // left out if empty
  int exit_code = 0;
  uint64_t examples = 0;
  uint64_t steps = 0;
  double seconds = 0;
  std::string model_sha256;
  std::string checkpoint;  // folder of the newest checkpoint of this run; empty: none
  std::optional<RunEval> eval;
};
std::string ResultJson(const RunResult& result);

// One thread. Movable.
class RunFolder {
 public:
  // Makes the folder, on the real disk. With an empty `output`: runs/<job>-<time>, with a number after it if
  // that is taken. kInvalidArgument if `output` is there and not empty: a run never writes into another one's
  // folder.
  //   now  seconds since 1970, for the name
  static absl::StatusOr<RunFolder> Create(const std::string& output, const std::string& job_name,
                                          int64_t now);

  // A folder that Create made in another process.
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // A folder that a run has ended in, to go on in it after its first `examples` examples (Rewind).
  static absl::StatusOr<RunFolder> Continue(const std::string& path, uint64_t examples);

  // metrics.jsonl is continued after the lines of the first `examples` examples, result.json is removed.
  absl::Status Rewind(uint64_t examples);

  const std::string& path() const { return path_; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  std::string log_path(std::string_view process) const;

  // kResourceExhausted: the disk has not even room for what every run writes (logs, figures, the result).
  absl::Status CheckSpace() const;
  absl::Status WriteJob(std::string_view text);
  // The flags that named the checkpoint of another run.
  absl::Status WriteOrigin(std::string_view flags);
  // Appends a line to metrics.jsonl, where other processes see it. Not synced: a power cut may cost the last lines, but
  // nobody waits for a slow disk.
  absl::Status AppendMetrics(std::string_view line);
  absl::Status WriteResult(const RunResult& result);

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> metrics_{nullptr, std::fclose};
  std::unique_ptr<RunLock> lock_;
};

}  // namespace capstan
