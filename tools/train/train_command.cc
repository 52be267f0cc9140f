#include "tools/train/train_command.h"

#include <cstdio>
#include <ctime>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "proto/control.pb.h"
#include "ps/optimizers.h"
#include "tools/job/job_file.h"
#include "tools/job/job_text.h"
#include "tools/job/plan_job.h"
#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/local_run.h"
#include "tools/train/process_run.h"
#include "tools/train/programs.h"
#include "tools/train/scheduler_side.h"
#include "tools/train/train_job.h"
#include "tools/print.h"

namespace capstan {
namespace {

int Complain(ExitCode code, const absl::Status& status) {
  Print(stderr, "{}\n", std::string(status.message()));
  return ToInt(code);
}

std::vector<std::string> KnownOptimizers() {
  std::vector<std::string> names;
  for (const std::string_view name : OptimizerNames()) names.emplace_back(name);
  return names;
}

}  // namespace

int RunTrain(const TrainOptions& options) {
  FileSystem& fs = PosixFileSystem();
  JobConfig config;
  std::vector<std::string> notes;
  const absl::Status made = MakeTrainJob(fs, options, ProcessSurroundings(KnownOptimizers()), &config, &notes);
  for (const std::string& note : notes) Print(stderr, "{}\n", note);
  if (!made.ok()) return Complain(ExitCode::kUsage, made);
  EffectiveJob job;
  const absl::Status planned = PlanJob(fs, config, &job);
  if (!planned.ok()) return Complain(ExitCode::kData, planned);
  absl::StatusOr<RunFolder> folder = RunFolder::Create(options.output, config.name(), std::time(nullptr));
  if (!folder.ok()) return Complain(ExitCode::kUsage, folder.status());
  const absl::Status written = folder->WriteJob(PrintJob(job.config()));
  if (!written.ok()) return Complain(ExitCode::kUsage, written);

  Print(stderr, "{}: {} rows in {} splits, {} epoch{}, {} ranks, {}; output in {}\n", config.name(),
             job.plan().rows(), job.plan().split_size(), config.epochs(), config.epochs() == 1 ? "" : "s",
             config.ranks(), config.consistency(), folder->path());
  ProgressView view(stdout);
  const RunResult result = options.servers.has_value()
                               ? RunProcesses(job, *folder, FolderOfThisProgram(), view)
                               : RunLocally(job, *folder, view);
  view.EndLine();
  Print(stderr, "{}", SummaryOf(result, folder->path()));
  return result.exit_code;
}

}  // namespace capstan
