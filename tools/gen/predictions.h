// The text files that `capstan predict` writes, read back: one score per line, or CSV whose last field is the
// score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

struct Predictions {
  std::vector<uint64_t> rows;  // number of the row within its input, from 0; strictly growing
  std::vector<double> scores;  // one per row, in [0, 1]
};

// Accepts: an optional header line (one whose last field starts with a letter, '_' or '"'); LF or CRLF; a
// byte order mark; fields separated by commas. The last field of a line is the score. If the header's first
// field is "row" (and there is another), the first field of each line is the number of the row; otherwise
// lines are rows 0, 1, 2, … Fails with kInvalidArgument naming file, line and text for anything else, for an
// empty file included; with the file system's error if the file cannot be read. Memory: 16 bytes per line.
absl::StatusOr<Predictions> ReadPredictions(FileSystem& fs, const std::string& path);

}  // namespace capstan
