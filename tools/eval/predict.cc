#include "tools/eval/predict.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>

#include <fmt/core.h>

namespace capstan {
namespace {

using TextSink = std::function<absl::Status(std::string_view text)>;

absl::StatusOr<PredictReport> WriteScores(FileSystem& fs, const SavedModel& model,
                                          const std::vector<std::string>& files, const ScoreOptions& options,
                                          const TextSink& write) {
  PredictReport report;
  CAPSTAN_RETURN_IF_ERROR(write("row,score\n"));
  std::string text;
  const auto add = [&](const ScoredRows& scored) {
    text.clear();
    for (const float score : *scored.scores) {
      if (std::isnan(score)) {
        fmt::format_to(std::back_inserter(text), "{},\n", report.rows++);
      } else {
        fmt::format_to(std::back_inserter(text), "{},{}\n", report.rows++, score);
      }
    }
    report.bad_rows += scored.rows->bad_rows;
    return write(text);
  };
  CAPSTAN_RETURN_IF_ERROR(ScoreFiles(fs, model, files, options, add));
  return report;
}

absl::Status WriteToStdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return absl::OkStatus();
  }
  return Unavailable(fmt::format("writing to stdout: {}", std::strerror(errno)));
}

absl::StatusOr<PredictReport> WriteScoresToFile(FileSystem& fs, const SavedModel& model,
                                                const std::vector<std::string>& files,
                                                const ScoreOptions& options, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(path));
  CAPSTAN_ASSIGN_OR_RETURN(const PredictReport report,
                           WriteScores(fs, model, files, options, [&](std::string_view text) {
                             return file->Append(text.data(), text.size());
                           }));
  CAPSTAN_RETURN_IF_ERROR(file->Sync());
  CAPSTAN_RETURN_IF_ERROR(file->Close());
  return report;
}

}  // namespace

absl::StatusOr<PredictReport> Predict(FileSystem& fs, const SavedModel& model,
                                      const std::vector<std::string>& files, ScoreOptions options,
                                      const std::string& out) {
  options.labels = false;
  if (out == "-") return WriteScores(fs, model, files, options, WriteToStdout);
  const std::string temporary = out + ".tmp";
  absl::StatusOr<PredictReport> report = WriteScoresToFile(fs, model, files, options, temporary);
  absl::Status status = report.status();
  if (status.ok()) status = fs.Rename(temporary, out);
  if (status.ok()) return report;
  // Best effort: the error that matters is the one before.
  const absl::Status removed = fs.Remove(temporary);
  return removed.ok() || absl::IsNotFound(removed)
             ? status
             : While(fmt::format("('{}' is left behind)", temporary), status);
}

}  // namespace capstan
