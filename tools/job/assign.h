// Setting one key of a job by its dotted path, as `--set key=value` does.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"

namespace capstan {

class JobConfig;

struct Assignment {
  std::string key;      // "optimizer.learning_rate", "data.feature[2].kind"
  bool append = false;  // +=: add to a repeated key, merge into a message
  std::string value;  // a number, true or false, the name of an enum value, text; for a message, text format
};

// Splits "key=value" or "key+=value". kInvalidArgument if there is no '=' or the key is no path.
absl::StatusOr<Assignment> ParseAssignment(std::string_view text);

// Sets the key. '=' on a repeated key replaces all its values; several numbers may be given with commas.
// kInvalidArgument for an unknown key (with the nearest name), an index past the end, or a value that does
// not fit.
absl::Status Assign(const Assignment& assignment, JobConfig* job);

}  // namespace capstan
