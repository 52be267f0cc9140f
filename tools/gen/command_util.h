// What the commands of this folder share.
#pragma once

#include <string_view>

#include "common/exit_code.h"
#include "common/status.h"

namespace capstan {

// `threads`, or for 0 the number of processors; at least 1.
unsigned ThreadsOrAll(unsigned threads);

// Prints "capstan COMMAND: MESSAGE" to stderr and returns `code` for the shell.
int ReportFailure(std::string_view command, const absl::Status& status, ExitCode code);

}  // namespace capstan
