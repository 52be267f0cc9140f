// What the scheduler's process does around SchedulerNode: records the run, evaluates the saved model, writes
// result.json. Local mode runs the same on a thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "scheduler/scheduler_node.h"
#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/start_point.h"

namespace capstan {

struct SchedulerSideOptions {
  std::string bind_endpoint;
  TransportFactory make_transport;
  bool heartbeats = true;
  ProgressView* view = nullptr;                                // null: metrics.jsonl only
  std::function<void(const std::string& endpoint)> on_bound;
  std::function<void()> on_ready;                              // SchedulerNodeOptions::on_ready; may be empty
  std::function<void(const std::string& line)> log;
  std::function<void()> on_training_end;                       // before evaluation; may be empty
  StartPoint start;                                            // where training begins
};

class RunRecorder;

class SchedulerSide {
 public:
  // `job` from PlanJob. The folder exists; checkpoints, of which the last one is the model, go to
  // folder.checkpoints_path().
  SchedulerSide(SchedulerSideOptions options, const EffectiveJob& job, RunFolder& folder);
  ~SchedulerSide();

  RunResult Run();
  void Stop(ExitCode code, const std::string& reason);  // from any thread; ends an evaluation too
  // From any thread. SIGINT ends the job, SIGTERM ends it after one more checkpoint, SIGUSR1 takes a checkpoint.
  void OnSignal(int signal);

 private:
  absl::Status EvaluateModel(const std::string& checkpoint, RunResult* result);

  const SchedulerSideOptions options_;
  std::unique_ptr<EffectiveJob> job_;
  RunFolder& folder_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<SchedulerNode> node_;
  std::atomic<bool> stopped_{false}, terminated_{false};
};

// The lines that end a run, for a person.
std::string SummaryOf(const RunResult& result, const std::string& folder);

}  // namespace capstan
