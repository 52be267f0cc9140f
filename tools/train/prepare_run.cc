#include "tools/train/prepare_run.h"

#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "ps/optimizer.h"
#include "tools/job/job_file.h"
#include "tools/job/plan_job.h"
#include "tools/print.h"
#include "tools/train/train_job.h"

namespace capstan {
namespace {

// RUN of RUN/checkpoints/C000007.
std::string RunOf(const std::string& checkpoint) {
  const std::filesystem::path folder = std::filesystem::absolute(checkpoint).lexically_normal();
  return folder.parent_path().parent_path().string();
}

std::vector<std::string> KnownOptimizers() {
  std::vector<std::string> names;
  for (const std::string_view name : OptimizerNames()) names.emplace_back(name);
  return names;
}

void Tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) Print(stderr, "{}\n", note);
}

// The options of a resume, completed: which checkpoint, which folder, whose job file.
absl::Status CompleteResume(TrainOptions* options, std::unique_ptr<ResumeSource>* source) {
  if (!options->warm_start.empty()) return InvalidArgument("--resume and --warm_start exclude each other");
  if (options->resume == "newest") {
    if (options->output.empty()) {
      return InvalidArgument("--resume goes on in a run's folder: give --output=RUN, or --resume=CHECKPOINT");
    }
    options->resume = options->output;
  }
  std::vector<std::string> notes;
  CAPSTAN_ASSIGN_OR_RETURN(*source, ResumeSource::Open(PosixFileSystem(), options->resume, CheckpointCheck::kFiles, &notes));
  Tell(notes);
  const std::string run = RunOf((*source)->folder());
  if (options->output.empty()) options->output = run;
  if (options->job.empty() && options->data.empty()) options->job = run + "/job.textproto";
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRun(TrainOptions* options, PreparedRun* run) {
  if (!options->resume.empty()) CAPSTAN_RETURN_IF_ERROR(CompleteResume(options, &run->source));
  std::vector<std::string> notes;
  const absl::Status made =
      MakeTrainJob(PosixFileSystem(), *options, ProcessSurroundings(KnownOptimizers()), &run->config, &notes);
  Tell(notes);
  return made;
}

absl::StatusOr<RunFolder> FolderFor(const TrainOptions& options, const PreparedRun& run) {
  FileSystem& fs = PosixFileSystem();
  const absl::StatusOr<bool> there = options.output.empty() ? false : fs.Exists(options.output + "/job.textproto");
  if (!there.ok()) return there.status();
  // Only the checkpoint's own run goes on in its folder.
  const bool own = run.source != nullptr && *there &&
                   std::filesystem::absolute(options.output).lexically_normal().string() == RunOf(run.source->folder());
  if (!own) return RunFolder::Create(options.output, run.config.name(), std::time(nullptr));
  return RunFolder::Continue(options.output, run.source->examples());
}

absl::Status PlanStart(const TrainOptions& options, PreparedRun* run) {
  if (run->source != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(run->source->PlanJob(run->config, &run->job));
  } else {
    CAPSTAN_RETURN_IF_ERROR(PlanJob(PosixFileSystem(), run->config, &run->job));
  }
  if (!options.freeze.empty()) CAPSTAN_RETURN_IF_ERROR(FreezeTables(options.freeze, &run->job));
  if (run->source != nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(run->start, run->source->Start(run->job));
  } else if (!options.warm_start.empty()) {
    std::vector<std::string> notes;
    CAPSTAN_ASSIGN_OR_RETURN(run->start,
                             WarmStart(PosixFileSystem(), options.warm_start, CheckpointCheck::kFiles,
                                                   options.tables, run->job, &notes));
    Tell(notes);
  }
  return absl::OkStatus();
}

ExitCode CodeOfStart(const TrainOptions& options, const absl::Status& status) {
  const bool from_checkpoint = !options.resume.empty() || !options.warm_start.empty();
  if (from_checkpoint && (absl::IsDataLoss(status) || absl::IsNotFound(status))) return ExitCode::kCheckpoint;
  return from_checkpoint ? ExitCode::kUsage : ExitCode::kData;
}

}  // namespace capstan
