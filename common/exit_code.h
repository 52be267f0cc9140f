// What a Capstan process returns to the shell. 1–127: do not retry. 128 and up: a retry may help.
#pragma once

namespace capstan {

enum class ExitCode : int {
  kDone = 0,
  kModelError = 1,     // the model or the user's request failed while running
  kUsage = 2,          // command line or job file
  kData = 3,           // a data file
  kCheckpoint = 4,     // a saved model or checkpoint cannot be read or written
  kInterrupted = 130,  // Ctrl-C
  kSchedulerLost = 200,
  kServerLost = 201,
  kJoinTimeout = 202,
  kPreempted = 203,
  kStalled = 204,
  kWorkerLost = 205,
};

constexpr int ToInt(ExitCode code) { return static_cast<int>(code); }

}  // namespace capstan
