// `capstan gap`: how far a file of predictions on generated rows is from the best possible one, without label
// noise.
#pragma once

#include <cstdint>
#include <string>

#include "common/file_system.h"
#include "common/status.h"
#include "models/bayes.h"

namespace capstan {

struct GapOptions {
  std::string predictions;  // path; tools/gen/predictions.h says what it may hold
  uint64_t seed = 1;        // of the log that was scored
  uint64_t start = 0;       // row of the log that the file's row 0 scores: the --start given to `capstan gen`
  unsigned threads = 0;     // 0: one per processor
};

struct GapResult {
  uint64_t rows = 0;
  GapReport gap;
};

// kInvalidArgument, naming the flag, for options that make no sense.
absl::Status CheckGapOptions(const GapOptions& options);

// kInvalidArgument, naming the flag or the file and line, for bad input; otherwise the error of the disk.
absl::StatusOr<GapResult> MeasureGap(FileSystem& fs, const GapOptions& options);

// MeasureGap with a report on stdout and errors on stderr. Returns what the process exits with
// (common/exit_code.h).
int RunGap(const GapOptions& options);

}  // namespace capstan
