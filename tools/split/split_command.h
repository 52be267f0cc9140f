// `capstan split`: cuts one file into rows to train on and rows to test on.
#pragma once

#include <cstdint>
#include <string>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

struct SplitOptions {
  std::string data;   // CSV, TSV or libsvm; plain or .gz
  std::string label;  // its label column (libsvm needs none); with it header and delimiter are guessed as `capstan train` does
  double fraction = 0.2;  // of the rows that go to the test file, about; above 0, below 1
  uint64_t seed = 1;
  std::string out_train;  // written plain; a header goes to both
  std::string out_test;
};

struct SplitReport {
  uint64_t train_rows = 0;
  uint64_t test_rows = 0;
};

// kInvalidArgument, naming the flag, for options that make no sense.
absl::Status CheckSplitOptions(const SplitOptions& options);

// A row's side is a function of (seed, its number) alone, so a file that only grew keeps its old rows where
// they were. Records are copied byte by byte (quoted line ends included) with a plain LF behind each; blank
// lines and a byte order mark are dropped. The files are whole or not there: rows go to NAME.tmp, which is
// removed after a failure. kInvalidArgument if the file cannot be cut into records, the label is no column of
// it, or a side gets no row.
absl::StatusOr<SplitReport> SplitFile(FileSystem& fs, const SplitOptions& options);

// SplitFile with a report on stderr. Returns what the process exits with.
int RunSplit(const SplitOptions& options);

}  // namespace capstan
