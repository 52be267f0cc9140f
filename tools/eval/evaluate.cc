#include "tools/eval/evaluate.h"

#include <chrono>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

nlohmann::ordered_json FigureOrNull(const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

std::string Figure(std::string_view name, const std::optional<double>& value) {
  return value ? fmt::format("  {} {:.4f}", name, *value) : fmt::format("  {} -", name);
}

}  // namespace

absl::StatusOr<EvalReport> Evaluate(FileSystem& fs, const SavedModel& model,
                                    const std::vector<std::string>& files, const ScoreOptions& options) {
  EvalReport report;
  MetricsAccumulator rows;
  const auto begin = std::chrono::steady_clock::now();
  const auto add = [&](const ScoredRows& scored) {
    std::vector<float> scores = *scored.scores;
    for (float& score : scores) {
      if (!std::isnan(score)) continue;
      // A bad row: it weighs 0. (A NaN that the model itself made is counted by the metrics.)
      const size_t row = static_cast<size_t>(&score - scores.data());
      if (scored.rows->weights[row] == 0) score = 0;
    }
    report.input_rows += scored.rows->rows;
    report.bad_rows += scored.rows->bad_rows;
    rows.Add(scores, scored.rows->labels, scored.rows->weights);
    return absl::OkStatus();
  };
  CAPSTAN_RETURN_IF_ERROR(ScoreFiles(fs, model, files, options, add));
  report.metrics = rows.Compute();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

std::string EvalJson(const EvalReport& report, const CheckpointManifest* manifest) {
  nlohmann::ordered_json json;
  if (manifest != nullptr) {
    json["checkpoint"] = manifest->id();
    json["step"] = manifest->version();
    json["examples"] = manifest->examples();
  }
  json["rows"] = report.metrics.rows;
  json["bad_rows"] = report.bad_rows;
  json["auc"] = FigureOrNull(report.metrics.auc);
  json["logloss"] = FigureOrNull(report.metrics.logloss);
  json["accuracy"] = FigureOrNull(report.metrics.accuracy);
  json["calibration"] = FigureOrNull(report.metrics.calibration);
  json["normalized_entropy"] = FigureOrNull(report.metrics.normalized_entropy);
  json["seconds"] = report.seconds;
  return json.dump();
}

std::string EvalLine(const EvalReport& report) {
  const EvalMetrics& m = report.metrics;
  std::string line = fmt::format("{} rows", m.rows);
  if (report.bad_rows > 0) line += fmt::format(" ({} bad ones left out)", report.bad_rows);
  line += Figure("AUC", m.auc) + Figure("log loss", m.logloss) + Figure("accuracy", m.accuracy) +
          Figure("calibration", m.calibration) + fmt::format("  in {:.1f} s", report.seconds);
  if (m.bad_rows > 0) line += fmt::format("; {} scores are not finite, so nothing can be said", m.bad_rows);
  return line;
}

}  // namespace capstan
