// Paths of data files as a person writes them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Replaces every ${NAME}; a '$' without '{' stays. kInvalidArgument names a variable that is not set.
absl::StatusOr<std::string> ExpandVariables(const std::string& text, const Environment& environment);

struct PathRule {
  std::string current_folder;  // put before relative paths that were found there; may be ""
  std::string job_folder;      // second place to look; "" is none
};
// The expanded path of a file that exists. kNotFound says where it was looked for.
absl::StatusOr<std::string> FindDataFile(FileSystem& fs, const std::string& written,
                                         const Environment& environment, const PathRule& rule);

}  // namespace capstan
