// From a command line to a run: the job, its plan, its folder, and where it begins. Shared by `capstan train` and
// capstan-scheduler.
#pragma once

#include <memory>

#include "common/exit_code.h"
#include "proto/control.pb.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/start_point.h"
#include "tools/train/train_command.h"

namespace capstan {

struct PreparedRun {
  JobConfig config;
  EffectiveJob job;
  StartPoint start;
  std::unique_ptr<ResumeSource> source;  // of a resume
  bool anew = false;  // a resume that found a run without any checkpoint: its folder is used again from the beginning
};

// The checkpoint of a resume (the job file is filled in from it where it is not given), and the job. A resume of a run
// that has no checkpoint yet begins at the beginning. Notes go to stderr, settings that changed among them. kInvalidArgument, kNotFound, kDataLoss: what is wrong with the options, or the checkpoint.
absl::Status ReadRun(TrainOptions* options, PreparedRun* run);
// Then: the plan of the data and where training begins. A resume whose plan changed inside an epoch is refused.
absl::Status PlanStart(const TrainOptions& options, PreparedRun* run);
// A new folder, or the one of the run that goes on.
bool GoesOnInItsFolder(const TrainOptions& options, const PreparedRun& run);
absl::StatusOr<RunFolder> FolderFor(const TrainOptions& options, const PreparedRun& run);
// The run has been trained to its end in this folder already: nothing is left to do.
bool IsTrained(const TrainOptions& options, const PreparedRun& run);
// What a failure of ReadRun (or of PlanStart) means to the shell.
ExitCode CodeOfStart(const TrainOptions& options, const absl::Status& status);

}  // namespace capstan
