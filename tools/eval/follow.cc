#include "tools/eval/follow.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/file_system.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_root.h"
#include "tools/launcher/run_lock.h"
#include "tools/print.h"

namespace capstan {

int Complain(std::string_view command, const absl::Status& status, ExitCode code) {
  const std::string message(status.message());
  Print(stderr, "capstan {}: {}\n", command, message);
  return ToInt(code);
}

// What a failed scoring says to the shell: the data is wrong, the saved model is, or the run itself failed.
ExitCode ScoringCode(const absl::Status& status) {
  if (absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsUnavailable(status))
    return ExitCode::kData;
  return absl::IsDataLoss(status) ? ExitCode::kCheckpoint : ExitCode::kModelError;
}

static void TellSkipped(std::string_view command, const std::vector<std::string>& skipped) {
  for (const std::string& line : skipped) Print(stderr, "capstan {}: not used: {}\n", command, line);
}

absl::StatusOr<std::unique_ptr<SavedModel>> LoadModel(std::string_view command, const std::string& path) {
  FileSystem& fs = PosixFileSystem();
  std::vector<std::string> skipped;
  const absl::StatusOr<std::string> folder = FindCheckpoint(fs, path, CheckpointCheck::kFiles, &skipped);
  TellSkipped(command, skipped);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<std::unique_ptr<SavedModel>> model = SavedModel::Load(fs, *folder);
  if (!model.ok()) return model.status();
  CAPSTAN_RETURN_IF_ERROR(PinIsaOf(**model));
  return model;
}

ScoreOptions ScoringOptions(const EvalCommandOptions& options) {
  ScoreOptions scoring;
  scoring.threads = options.threads;
  scoring.max_bad_rows = options.max_bad_rows;
  return scoring;
}

// One line of JSON on stdout, one for a person on stderr.
absl::Status ShowReport(const EvalReport& report, const SavedModel& model, bool name_checkpoint, std::string* json) {
  *json = EvalJson(report, name_checkpoint ? &model.manifest() : nullptr) + "\n";
  if (!Print("{}", *json) || std::fflush(stdout) != 0) return Internal("stdout cannot be written");
  Print(stderr, "{}{}\n", name_checkpoint ? fmt::format("{}: ", model.folder()) : "", EvalLine(report));
  return absl::OkStatus();
}

namespace {

constexpr auto kPause = std::chrono::milliseconds(300);
// A launcher that outlives its scheduler still writes the result.
constexpr Duration kGoneFor = std::chrono::seconds(5);

// RUN of RUN and of RUN/checkpoints, which need not be there yet.
std::string RunFolderOf(FileSystem& fs, const std::string& model) {
  if (!fs.Exists(model + "/capstan-root.pb").value_or(false)) return model;
  return std::filesystem::absolute(model + "/.").lexically_normal().parent_path().parent_path().string();
}

class Follower {
 public:
  explicit Follower(const EvalCommandOptions& options)
      : options_(options), run_(RunFolderOf(PosixFileSystem(), options.model)), last_news_(clock_.Now()) {}

  int Run() {
    for (;;) {
      // Asked before the newest checkpoint is: what is found afterwards is then the last one.
      const absl::StatusOr<bool> ended = fs_.Exists(run_ + "/result.json");
      if (!ended.ok()) return Complain("eval", ended.status(), ExitCode::kCheckpoint);
      std::vector<std::string> skipped;
      const absl::StatusOr<std::string> newest =
          FindCheckpoint(fs_, options_.model, CheckpointCheck::kRecords, &skipped);
      if (!newest.ok() && !absl::IsNotFound(newest.status())) {
        return Complain("eval", newest.status(), ExitCode::kCheckpoint);
      }
      if (newest.ok() && *newest != seen_) {
        if (const std::optional<int> code = Measure(*newest); code.has_value()) return *code;
        continue;
      }
      if (*ended && !none_good_.ok()) return Complain("eval", none_good_, ExitCode::kCheckpoint);
      if (*ended) return ToInt(ExitCode::kDone);
      if (const std::optional<int> code = GiveUp(); code.has_value()) return *code;
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  // Nothing: go on. newest: by its records alone; what is good is found by reading it, once.
  std::optional<int> Measure(const std::string& newest) {
    seen_ = newest;
    const auto model = LoadModel("eval", options_.model);
    none_good_ = absl::IsNotFound(model.status()) ? model.status() : absl::OkStatus();
    if (!none_good_.ok()) return std::nullopt;  // of the run's next one more may be good
    if (!model.ok()) return Complain("eval", model.status(), ExitCode::kCheckpoint);
    if ((*model)->folder() == shown_) return std::nullopt;
    const auto report = Evaluate(fs_, **model, options_.data, ScoringOptions(options_));
    if (!report.ok()) return Complain("eval", report.status(), ScoringCode(report.status()));
    std::string json;
    const absl::Status told = ShowReport(*report, **model, /*name_checkpoint=*/true, &json);
    if (!told.ok()) return Complain("eval", told, ExitCode::kModelError);
    shown_ = (*model)->folder();
    last_news_ = clock_.Now();
    if (shown_ == options_.model) return ToInt(ExitCode::kDone);  // one by its name: nothing follows it
    return std::nullopt;
  }

  std::optional<int> GiveUp() {
    const Time now = clock_.Now();
    if (LifeOf(run_) != RunLife::kGone) last_alive_ = now;
    if (now - last_alive_ >= kGoneFor) {
      return Complain("eval", Unavailable(fmt::format("the run in {} was cut off: its scheduler is gone and it has no "
                                                      "result.json; go on with capstan train --output={} --resume",
                                                      run_, run_)),
                      ExitCode::kSchedulerLost);
    }
    if (now - last_news_ < std::chrono::seconds(options_.follow_seconds)) return std::nullopt;
    return Complain("eval", DeadlineExceeded(fmt::format("no new checkpoint in {} for {} s, and the run has not ended",
                                                         options_.model, options_.follow_seconds)),
                    ExitCode::kStalled);
  }

  const EvalCommandOptions& options_;
  FileSystem& fs_ = PosixFileSystem();
  const SteadyClock clock_;
  const std::string run_;
  std::string seen_, shown_;
  absl::Status none_good_;
  Time last_news_;
  Time last_alive_ = last_news_;
};

}  // namespace

int FollowRun(const EvalCommandOptions& options) { return Follower(options).Run(); }

}  // namespace capstan
