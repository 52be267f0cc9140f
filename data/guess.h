// A schema for a file that nobody described: enough to train on it at once, and a start for a job file of
// one's own.
#pragma once

#include <string>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class DataConfig;

// Looks at the first 20,000 rows of `path` and fills in what *config leaves open: format, delimiter, header,
// missing values, label and features. Keys that are already set stay as they are; features are guessed only
// if there are none.
//   numbers            NUMERIC, standardised, with an indicator if some are missing
//   few whole numbers  (at most 100 different ones) also CATEGORICAL, as NAME#id
//   anything else      CATEGORICAL
//   label              two different values: the larger number, yes/true, or else the rarer text means 1
// Returns what was decided as text for a person, one line each. Fails with kInvalidArgument, saying what to
// set, if the label is not a column or does not have two values. A libsvm file (by ending or config.format)
// needs no guess.
absl::StatusOr<std::string> GuessSchema(FileSystem& fs, const std::string& path,
                                        const std::string& label_column, DataConfig* config);

}  // namespace capstan
