// How good a saved model is on files with labels.
#pragma once

#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "models/metrics.h"
#include "tools/eval/score_files.h"

namespace capstan {

class CheckpointManifest;

struct EvalReport {
  EvalMetrics metrics;
  uint64_t input_rows = 0;  // bad ones included
  uint64_t bad_rows = 0;    // left out
  double seconds = 0;       // without loading the model
};

// Figures depend on model and rows alone: sums run over splits in order. Errors as ScoreFiles. Memory: 8
// bytes a row.
absl::StatusOr<EvalReport> Evaluate(FileSystem& fs, const SavedModel& model,
                                    const std::vector<std::string>& files, const ScoreOptions& options);

// {"rows":…,"bad_rows":…,"auc":…,"logloss":…,"accuracy":…,"calibration":…,"normalized_entropy":…,"seconds":…};
// null: not defined on these rows. With a manifest: also "checkpoint", "step" and "examples", of what was measured.
std::string EvalJson(const EvalReport& report, const CheckpointManifest* manifest = nullptr);
// The same for a person, one line.
std::string EvalLine(const EvalReport& report);

}  // namespace capstan
