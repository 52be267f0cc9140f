// Turns what the scheduler reports into metrics.jsonl, a progress line and log lines. One thread.
#pragma once

#include <functional>
#include <string>

#include "common/clock.h"
#include "scheduler/scheduler_core.h"
#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"

namespace capstan {

class RunRecorder final : public SchedulerEvents {
 public:
  struct Settings {
    uint64_t total_examples = 0;   // rows × epochs
    uint32_t epochs = 1;
    uint32_t workers = 1;
    uint64_t done_examples = 0;    // before this run, by the checkpoint it goes on from
    Duration interval = std::chrono::seconds(1);
  };
  // `view` may be null: then nothing is shown. `log` gets the lines for a person.
  RunRecorder(Settings settings, RunFolder& folder, ProgressView* view,
              std::function<void(const std::string& line)> log);

  void OnPhase(const std::string& what) override;
  void OnTraining() override;
  void OnProgress(const ProgressReport& report) override;
  void OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) override;

  // Writes the last sample; kUnavailable if any line could not be written.
  absl::Status Finish();

 private:
  void Record(const ProgressReport& report, Time now);

  const Settings settings_;
  RunFolder& folder_;
  ProgressView* const view_;
  const std::function<void(const std::string&)> log_;
  const SteadyClock clock_;
  Time began_{};
  Time next_{};
  bool training_ = false;
  bool unrecorded_ = false;
  ProgressReport newest_;
  ProgressReport recorded_;
  ProgressSample last_sample_;
  absl::Status status_;
};

}  // namespace capstan
