// Starting one process.
#pragma once

#include <sys/types.h>

#include "common/status.h"

namespace capstan {

struct ChildSpec;

// The child has a process group of its own, stdin from /dev/null, stdout and stderr appended to its log,
// our signal mask, default signal actions, and is killed when the calling thread ends. kNotFound: no such
// program.
absl::StatusOr<pid_t> SpawnProcess(const ChildSpec& spec);

}  // namespace capstan
