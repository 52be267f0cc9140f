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

namespace capstan {

struct SchedulerSideOptions {
  std::string bind_endpoint;
  TransportFactory make_transport;
  bool heartbeats = true;
  ProgressView* view = nullptr;                                // null: metrics.jsonl only
  std::function<void(const std::string& endpoint)> on_bound;
  std::function<void(const std::string& line)> log;
  std::function<void()> on_training_end;                       // before evaluation; may be empty
};

class RunRecorder;

class SchedulerSide {
 public:
  // `job` from PlanJob. The folder exists; the model goes to folder.model_path().
  SchedulerSide(SchedulerSideOptions options, const EffectiveJob& job, RunFolder& folder);
  ~SchedulerSide();

  RunResult Run();
  void Stop(ExitCode code, const std::string& reason);  // from any thread; ends an evaluation too

 private:
  absl::Status EvaluateModel(RunResult* result);

  const SchedulerSideOptions options_;
  std::unique_ptr<EffectiveJob> job_;
  RunFolder& folder_;
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<SchedulerNode> node_;
  std::atomic<bool> stopped_{false};
};

// The lines that end a run, for a person.
std::string SummaryOf(const RunResult& result, const std::string& folder);

}  // namespace capstan
