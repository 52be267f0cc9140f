// A worker process (or, in local mode, a thread of one): the loop around ClientCore, the trainers' threads, the
// heartbeat. Blocks in Run.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/exit_code.h"
#include "common/file_system.h"
#include "transport/heartbeat.h"
#include "transport/member_core.h"
#include "transport/node_stop.h"

namespace capstan {

struct WorkerOptions {
  MemberOptions member;             // role, name, scheduler, version …
  TransportFactory make_transport;  // called on the thread that will own it
  FileSystem* file_system = nullptr;
  std::function<void(const std::string& line)> log;
};

class WorkerNode {
 public:
  explicit WorkerNode(WorkerOptions options) : options_(std::move(options)) {}

  // Until the scheduler ends the job, the node gives up, or Stop. Returns how it ended; reason() says why.
  ExitCode Run();
  // From any thread, for example on a signal: ends the job for everybody. A second call does not wait for that.
  void Stop(ExitCode code, const std::string& reason) { stop_.Ask(code, reason); }
  const std::string& reason() const { return reason_; }

 private:
  WorkerOptions options_;
  const SteadyClock clock_;
  NodeStop stop_;
  std::atomic<uint64_t> progress_{0};
  std::mutex mutex_;                // guards waiting_for_
  std::string waiting_for_;
  std::string reason_;
};

}  // namespace capstan
