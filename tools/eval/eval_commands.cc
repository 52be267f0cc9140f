#include "tools/eval/eval_commands.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/file_system.h"
#include "storage/checkpoint_root.h"
#include "storage/saved_model.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/predict.h"
#include "tools/output_path.h"
#include "tools/print.h"

namespace capstan {
namespace {

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

absl::Status CheckOptions(const EvalCommandOptions& options) {
  if (options.model.empty())
    return InvalidArgument("--model is missing: the folder of a saved model, or of a run");
  if (options.data.empty()) return InvalidArgument("--data is missing: the file to read");
  return absl::OkStatus();
}

void TellSkipped(std::string_view command, const std::vector<std::string>& skipped) {
  for (const std::string& line : skipped) Print(stderr, "capstan {}: not used: {}\n", command, line);
}

absl::StatusOr<std::unique_ptr<SavedModel>> LoadModel(std::string_view command, const std::string& path) {
  FileSystem& fs = PosixFileSystem();
  std::vector<std::string> skipped;
  const absl::StatusOr<std::string> folder = FindCheckpoint(fs, path, &skipped);
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

// The newest checkpoint of a run whenever there is a new one, until the run has ended.
int Follow(const EvalCommandOptions& options) {
  constexpr auto kPause = std::chrono::milliseconds(300);
  FileSystem& fs = PosixFileSystem();
  const SteadyClock clock;
  const Duration limit = std::chrono::seconds(options.follow_seconds);
  Time last_news = clock.Now();
  std::string shown;
  for (;;) {
    // Asked before the newest checkpoint is: what is found afterwards is then the last one.
    const absl::StatusOr<bool> ended = fs.Exists(options.model + "/result.json");
    if (!ended.ok()) return Complain("eval", ended.status(), ExitCode::kCheckpoint);
    std::vector<std::string> skipped;
    const absl::StatusOr<std::string> newest = FindCheckpoint(fs, options.model, &skipped);
    if (!newest.ok() && !absl::IsNotFound(newest.status())) {
      return Complain("eval", newest.status(), ExitCode::kCheckpoint);
    }
    if (newest.ok() && *newest != shown) {
      const auto model = LoadModel("eval", *newest);
      if (!model.ok() && !absl::IsNotFound(model.status())) {
        return Complain("eval", model.status(), ExitCode::kCheckpoint);
      }
      if (!model.ok()) continue;  // it was removed just now: there is a newer one
      const auto report = Evaluate(fs, **model, options.data, ScoringOptions(options));
      if (!report.ok()) return Complain("eval", report.status(), ScoringCode(report.status()));
      std::string json;
      const absl::Status told = ShowReport(*report, **model, /*name_checkpoint=*/true, &json);
      if (!told.ok()) return Complain("eval", told, ExitCode::kModelError);
      shown = *newest;
      last_news = clock.Now();
      continue;
    }
    if (*ended) return ToInt(ExitCode::kDone);
    if (clock.Now() - last_news >= limit) {
      return Complain("eval", DeadlineExceeded(fmt::format("no new checkpoint in {} for {} s, and the run has not ended",
                                                           options.model, options.follow_seconds)),
                      ExitCode::kStalled);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

int RunEval(const EvalCommandOptions& options) {
  if (const absl::Status status = CheckOptions(options); !status.ok()) {
    return Complain("eval", status, ExitCode::kUsage);
  }
  if (const absl::Status status = CheckOutputPath(options.out, options.data); !options.out.empty() && !status.ok()) {
    return Complain("eval", status, ExitCode::kUsage);
  }
  if (options.follow) {
    if (options.out.empty()) return Follow(options);
    return Complain("eval", InvalidArgument("--follow writes to stdout alone: leave --out away"), ExitCode::kUsage);
  }
  const auto model = LoadModel("eval", options.model);
  if (!model.ok()) return Complain("eval", model.status(), ExitCode::kCheckpoint);
  FileSystem& fs = PosixFileSystem();
  const auto report = Evaluate(fs, **model, options.data, ScoringOptions(options));
  if (!report.ok()) return Complain("eval", report.status(), ScoringCode(report.status()));
  std::string json;
  const absl::Status told = ShowReport(*report, **model, /*name_checkpoint=*/false, &json);
  if (!told.ok()) return Complain("eval", told, ExitCode::kModelError);
  if (options.out.empty()) return ToInt(ExitCode::kDone);
  const absl::Status written = WriteFileAtomically(fs, options.out, json);
  return written.ok() ? ToInt(ExitCode::kDone) : Complain("eval", written, ExitCode::kModelError);
}

int RunPredict(const EvalCommandOptions& options) {
  if (const absl::Status status = CheckOptions(options); !status.ok()) {
    return Complain("predict", status, ExitCode::kUsage);
  }
  const std::string out = options.out.empty() ? "-" : options.out;
  if (const absl::Status status = CheckOutputPath(out, options.data); out != "-" && !status.ok()) {
    return Complain("predict", status, ExitCode::kUsage);
  }
  const auto model = LoadModel("predict", options.model);
  if (!model.ok()) return Complain("predict", model.status(), ExitCode::kCheckpoint);
  const auto report = Predict(PosixFileSystem(), **model, options.data, ScoringOptions(options), out);
  if (!report.ok()) return Complain("predict", report.status(), ScoringCode(report.status()));
  Print(
      stderr, "{} rows{}{}\n", report->rows,
      report->bad_rows > 0 ? fmt::format(", {} of them bad and without a score", report->bad_rows) : "",
      out == "-" ? "" : fmt::format(" scored into '{}'", out));
  return ToInt(ExitCode::kDone);
}

}  // namespace capstan
