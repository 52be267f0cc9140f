// Scores of a file's rows, in the order of the rows.
#pragma once

#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "tools/eval/score_files.h"

namespace capstan {

struct PredictReport {
  uint64_t rows = 0;
  uint64_t bad_rows = 0;
};

// Writes CSV to `out`: the header "row,score", then one line per row of the input, rows counted from 0 over
// all files; a bad row has an empty score ("17,"). The shortest text that reads back as the same float. "-"
// is stdout; a file is whole or not there: rows go to `out`.tmp, which is removed after a failure. The files
// need no label column. Errors as ScoreFiles, and kUnavailable if `out` cannot be written.
absl::StatusOr<PredictReport> Predict(FileSystem& fs, const SavedModel& model,
                                      const std::vector<std::string>& files, ScoreOptions options,
                                      const std::string& out);

}  // namespace capstan
