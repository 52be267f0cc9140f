#include "tools/eval/eval_commands.h"

#include <cstdio>
#include <string>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "common/file_system.h"
#include "tools/eval/evaluate.h"
#include "tools/eval/follow.h"
#include "tools/eval/predict.h"
#include "tools/output_path.h"
#include "tools/print.h"

namespace capstan {
namespace {

absl::Status CheckOptions(const EvalCommandOptions& options) {
  if (options.model.empty())
    return InvalidArgument("--model is missing: the folder of a saved model, or of a run");
  if (options.data.empty()) return InvalidArgument("--data is missing: the file to read");
  return absl::OkStatus();
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
    if (options.out.empty()) return FollowRun(options);
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
