// Where a command may write its result file.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace capstan {

// Results are written beside their place and renamed into it. kInvalidArgument if that would replace one of the inputs,
// or something that is no ordinary file (a device, a folder).
absl::Status CheckOutputPath(const std::string& out, const std::vector<std::string>& inputs);

}  // namespace capstan
