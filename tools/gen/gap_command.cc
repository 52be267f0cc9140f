#include "tools/gen/gap_command.h"

#include <cstdio>
#include <vector>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "data/generator.h"
#include "data/generator_blocks.h"
#include "tools/gen/command_util.h"
#include "tools/gen/predictions.h"
#include "tools/print.h"

namespace capstan {

namespace {

void PrintGap(const GapOptions& options, const GapResult& result) {
  const GapReport& gap = result.gap;
  Print("{}: {} predictions for rows of seed {} from row {}, judged by the true click probabilities\n",
             options.predictions, result.rows, options.seed, options.start);
  Print("             {:>10}  {:>10}  {:>10}\n", "expected", "best", "gap");
  if (gap.auc && gap.best_auc) {
    Print("  AUC        {:>10.5f}  {:>10.5f}  {:>10.5f}\n", *gap.auc, *gap.best_auc,
               *gap.best_auc - *gap.auc);
  } else {
    Print("  AUC        not defined: there is no pair of rows\n");
  }
  Print("  log loss   {:>10.5f}  {:>10.5f}  {:>10.5f}  (nats)\n", gap.logloss, gap.best_logloss,
             gap.logloss_gap);
  if (gap.auc && *gap.auc < 0.5) {
    Print(
        "these scores rank worse than chance: are --seed and --start those of the rows that were scored?\n");
  }
}

}  // namespace

absl::Status CheckGapOptions(const GapOptions& options) {
  if (options.predictions.empty()) {
    return InvalidArgument("--predictions is missing: give the file that capstan predict wrote");
  }
  if (options.start >= kFirstReservedRow) {
    return InvalidArgument(fmt::format("--start={} is beyond the last row, 2^62 - 1", options.start));
  }
  return absl::OkStatus();
}

absl::StatusOr<GapResult> MeasureGap(FileSystem& fs, const GapOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckGapOptions(options));
  CAPSTAN_ASSIGN_OR_RETURN(Predictions predictions, ReadPredictions(fs, options.predictions));
  if (predictions.rows.back() >= kFirstReservedRow - options.start) {
    return InvalidArgument(
        fmt::format("'{}': row {} counted from --start={} is beyond the last row, 2^62 - 1",
                    options.predictions, predictions.rows.back(), options.start));
  }
  for (uint64_t& row : predictions.rows) row += options.start;
  const ClickLog log(options.seed);
  const std::vector<double> truth = ClickProbabilities(log, predictions.rows, ThreadsOrAll(options.threads));
  return GapResult{predictions.rows.size(), CompareToOptimum(truth, predictions.scores)};
}

int RunGap(const GapOptions& options) {
  if (const absl::Status status = CheckGapOptions(options); !status.ok()) {
    return ReportFailure("gap", status, ExitCode::kUsage);
  }
  const absl::StatusOr<GapResult> result = MeasureGap(PosixFileSystem(), options);
  if (!result.ok()) return ReportFailure("gap", result.status(), ExitCode::kData);
  PrintGap(options, *result);
  return ToInt(ExitCode::kDone);
}

}  // namespace capstan
