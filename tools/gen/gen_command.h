// `capstan gen`: writes rows of the generated click log (data/generator.h) as a Criteo-style TSV file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

struct GenOptions {
  uint64_t rows = 0;  // ≥ 1
  uint64_t seed = 1;
  uint64_t start = 0;    // number of the first row; training rows start at 0, test rows at kFirstTestRow
  std::string out;       // path of the file; replaced whole once all rows are written
  unsigned threads = 0;  // 0: one per processor
  // If set, called after each block of rows with the number of rows written so far; from any one thread at a
  // time.
  std::function<void(uint64_t rows_done)> progress;
};

// Of the rows written; the last two are expectations over the labels, exact from the true probabilities.
struct GenReport {
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t clicks = 0;
  double seconds = 0;              // making and writing rows; without calibration
  double best_logloss = 0;         // nats, over all rows
  std::optional<double> best_auc;  // over `auc_rows` rows; absent for fewer than two
  uint64_t auc_rows = 0;           // evenly spaced, at most kMaxAucRows: an AUC needs all its rows in memory
};

inline constexpr uint64_t kMaxAucRows = 4'000'000;

// kInvalidArgument, naming the flag, for options that make no sense.
absl::Status CheckGenOptions(const GenOptions& options);

// The error of CheckGenOptions or of the disk. The file is
// whole or not there: rows go to `out`.tmp, which is removed after a failure.
absl::StatusOr<GenReport> GenerateFile(FileSystem& fs, const GenOptions& options);

// GenerateFile with a report on stdout, errors on stderr and, if that is a terminal, a line of progress.
// `progress` is replaced. Returns what the process exits with (common/exit_code.h).
int RunGen(const GenOptions& options);

}  // namespace capstan
