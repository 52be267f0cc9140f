// The scheduler process (or, in local mode, a thread of one): the loop around SchedulerCore, its address, the
// manifest of the saved model.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/file_system.h"
#include "scheduler/scheduler_core.h"
#include "transport/heartbeat.h"

namespace capstan {

struct SchedulerNodeOptions {
  SchedulerOptions core;
  std::string bind_endpoint;  // tcp://IP:PORT, port 0 for a free one
  TransportFactory make_transport;
  FileSystem* file_system = nullptr;
  std::string checkpoint_root;  // seen by all servers; empty: nothing is stored
  std::string state_folder;     // of this job's scheduler alone; empty: its state is not kept
  std::function<void(const std::string& endpoint)> on_bound;  // the real endpoint; before anything else
  std::function<void()> on_ready;  // from here on all that join are told how the job ends; not after an early failure
};

struct SchedulerResult {
  ExitCode exit_code = ExitCode::kDone;
  std::string reason;
  std::string model_sha256;  // of a job that ended well
  std::string checkpoint;    // folder of the newest checkpoint of this run; empty: none
  uint64_t steps = 0;
  uint64_t examples = 0;
  uint64_t bad_rows = 0;
  uint64_t nonfinite_rows = 0;
  uint64_t requests = 0;        // of workers that were answered: leases, ends of ranks
  TransportStats frames;        // of the scheduler's own transport
  double mean_loss = 0;         // over all that was trained, nats per unit of weight
  double training_seconds = 0;  // from the start of training to its end, saving excluded
};

class SchedulerNode {
 public:
  // `events` is called on the thread of Run.
  SchedulerNode(SchedulerNodeOptions options, const EffectiveJob& job, SchedulerEvents& events);
  ~SchedulerNode();

  SchedulerResult Run();
  // From any thread: ends the job for everybody. Once more: does not wait for their goodbyes.
  void Stop(ExitCode code, const std::string& reason);
  // From any thread: one more checkpoint, then the end. Twice: the end.
  void Preempt(const std::string& reason);
  // From any thread: a checkpoint, and training goes on.
  void AskCheckpoint(const std::string& reason);

 private:
  void DoWishes(SchedulerCore& core, Time now);
  RetentionPolicy Retention() const;

  const SchedulerNodeOptions options_;
  std::unique_ptr<EffectiveJob> job_;
  SchedulerEvents& events_;
  const SteadyClock clock_;
  std::atomic<bool> wished_{false};
  std::mutex mutex_;  // guards what follows
  ExitCode stop_code_ = ExitCode::kDone;
  std::string stop_reason_, preempt_reason_, checkpoint_reason_;
};

}  // namespace capstan
