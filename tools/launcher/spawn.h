// Starting one process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "common/status.h"

namespace capstan {

struct ChildSpec;

// The child has a process group of its own, stdin from /dev/null, stdout and stderr appended to its log, the
// signal mask given, default signal actions, and is killed when the calling thread ends. kNotFound: no such
// program.
absl::StatusOr<pid_t> SpawnProcess(const ChildSpec& spec, const sigset_t& mask);

}  // namespace capstan
