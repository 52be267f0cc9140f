// What the mains of servers and workers share.
#pragma once

#include <csignal>
#include <string>

#include "common/exit_code.h"
#include "tools/train/signals.h"
#include "transport/heartbeat.h"
#include "transport/member_core.h"

namespace capstan {

void StartLogging(const char* program);            // glog to stderr, crashes with a stack trace
std::string TimedLine(const std::string& line);    // with date and time before it
void LogLine(const std::string& line);             // time, then the line, on stderr
int UsageError(const absl::Status& status);        // prints it; returns 2
TransportFactory ZmqFactory();

// "HOST:PORT" or "tcp://HOST:PORT" → an endpoint that can be dialed. kInvalidArgument names the flag.
absl::StatusOr<std::string> SchedulerEndpoint(const std::string& flag);
absl::StatusOr<MemberOptions> MemberFromFlags(NodeRole role, const std::string& scheduler, const std::string& name,
                                              uint32_t join_timeout_ms);

// Runs a ServerNode or WorkerNode. SIGINT ends the job; SIGTERM ends it after one more checkpoint; SIGUSR1 is for the
// scheduler and does nothing here. Prints why it ended; returns the exit code.
template <typename Node>
int RunUntilEnd(Node& node) {
  ExitCode code;
  {
    SignalWatcher signals([&node](int signal) {
      if (signal == SIGINT) node.Stop(ExitCode::kInterrupted, "interrupted");
      if (signal == SIGTERM) node.Stop(ExitCode::kPreempted, "asked to end (SIGTERM)");
    });
    code = node.Run();
  }
  if (code != ExitCode::kDone) LogLine(node.reason());
  return ToInt(code);
}

}  // namespace capstan
