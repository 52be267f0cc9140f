#include "tools/eval/eval_commands.h"

#include <cstdio>
#include <memory>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "common/file_system.h"
#include "storage/model_store.h"
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

absl::StatusOr<std::unique_ptr<SavedModel>> LoadModel(const std::string& folder) {
  FileSystem& fs = PosixFileSystem();
  CAPSTAN_ASSIGN_OR_RETURN(const bool is_run, fs.Exists(folder + "/model/manifest.pb"));
  absl::StatusOr<std::unique_ptr<SavedModel>> model =
      SavedModel::Load(fs, is_run ? folder + "/model" : folder);
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

}  // namespace

int RunEval(const EvalCommandOptions& options) {
  if (const absl::Status status = CheckOptions(options); !status.ok()) {
    return Complain("eval", status, ExitCode::kUsage);
  }
  if (const absl::Status status = CheckOutputPath(options.out, options.data); !options.out.empty() && !status.ok()) {
    return Complain("eval", status, ExitCode::kUsage);
  }
  const auto model = LoadModel(options.model);
  if (!model.ok()) return Complain("eval", model.status(), ExitCode::kCheckpoint);
  FileSystem& fs = PosixFileSystem();
  const auto report = Evaluate(fs, **model, options.data, ScoringOptions(options));
  if (!report.ok()) return Complain("eval", report.status(), ScoringCode(report.status()));
  const std::string json = EvalJson(*report) + "\n";
  if (!Print("{}", json) || std::fflush(stdout) != 0) {
    return Complain("eval", Unavailable("stdout cannot be written"), ExitCode::kModelError);
  }
  Print(stderr, "{}\n", EvalLine(*report));
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
  const auto model = LoadModel(options.model);
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
