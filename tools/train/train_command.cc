#include "tools/train/train_command.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "proto/control.pb.h"
#include "tools/job/job_text.h"
#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"
#include "tools/train/local_run.h"
#include "tools/train/prepare_run.h"
#include "tools/train/process_run.h"
#include "tools/train/programs.h"
#include "tools/train/scheduler_side.h"
#include "tools/train/signals.h"
#include "tools/print.h"

namespace capstan {
namespace {

int Complain(ExitCode code, const absl::Status& status) {
  Print(stderr, "{}\n", std::string(status.message()));
  return ToInt(code);
}

RunResult RunOnce(const TrainOptions& options, const PreparedRun& run, RunFolder& folder) {
  Print(stderr, "{}: {} rows in {} splits, {} epoch{}, {} ranks, {}; output in {}\n", run.config.name(),
        run.job.plan().rows(), run.job.plan().split_size(), run.config.epochs(), run.config.epochs() == 1 ? "" : "s",
        run.config.ranks(), run.config.consistency(), folder.path());
  if (run.source != nullptr) {
    const uint32_t epoch = std::min(run.start.from.epoch + 1, run.config.epochs());
    Print(stderr, "goes on from {}: epoch {} of {}, step {}, {} examples done\n", run.source->folder(), epoch,
          run.config.epochs(), run.start.from.version, run.start.from.examples);
  }
  ProgressView view(stdout);
  const RunResult result = options.servers.has_value()
                               ? RunProcesses(run.job, folder, run.start, FolderOfThisProgram(), view)
                               : RunLocally(run.job, folder, run.start, view);
  view.EndLine();
  Print(stderr, "{}", SummaryOf(result, folder.path()));
  return result;
}

// A changed plan of batches begins with an epoch: the one under way is finished first, as it was begun.
absl::StatusOr<RunResult> FinishEpoch(const TrainOptions& options, const JobConfig& wanted, PreparedRun* run,
                                      RunFolder& folder) {
  PreparedRun rest;
  rest.config = run->source->job().config();
  *rest.config.mutable_cluster() = wanted.cluster();
  if (rest.config.cluster().workers() > rest.config.ranks()) {
    rest.config.mutable_cluster()->set_workers(rest.config.ranks());
  }
  rest.config.set_epochs(run->source->EpochsBegun());
  rest.config.mutable_data()->clear_eval();
  Print(stderr, "{}: epoch {} is finished as it was begun\n", run->source->ChangedPlan(wanted), rest.config.epochs());
  CAPSTAN_RETURN_IF_ERROR(run->source->PlanJob(rest.config, &rest.job));
  // The epochs say where this part ends, and must not shorten a schedule that spans the whole run.
  for (TableSpec& table : *rest.job.mutable_table()) {
    for (const TableSpec& before : run->source->job().table()) {
      if (before.name() == table.name()) *table.mutable_optimizer() = before.optimizer();
    }
  }
  CAPSTAN_ASSIGN_OR_RETURN(rest.start, run->source->Start(rest.job));
  RunResult result = RunOnce(options, rest, folder);
  if (result.exit_code != 0) return result;
  std::vector<std::string> notes;
  CAPSTAN_ASSIGN_OR_RETURN(run->source, ResumeSource::Open(PosixFileSystem(), result.checkpoint,
                                                            CheckpointCheck::kRecords, &notes));
  return result;
}

}  // namespace

int RunTrain(const TrainOptions& given) {
  OutliveEarlySigusr1();
  TrainOptions options = given;
  PreparedRun run;
  const absl::Status read = ReadRun(&options, &run);
  if (!read.ok()) return Complain(options.resume.empty() ? ExitCode::kUsage : CodeOfStart(options, read), read);
  const absl::Status programs = CheckPrograms(options.servers.has_value());
  if (!programs.ok()) return Complain(ExitCode::kUsage, programs);
  const bool finish_first =
      run.source != nullptr && !run.source->ChangedPlan(run.config).empty() && !run.source->AtEpochStart();
  if (!finish_first) {
    const absl::Status planned = PlanStart(options, &run);
    if (!planned.ok()) return Complain(CodeOfStart(options, planned), planned);
  }
  if (IsTrained(options, run)) {
    Print(stderr, "'{}' is trained already: all {} epochs are done; --epochs=N goes on to more\n", options.output,
          run.config.epochs());
    return ToInt(ExitCode::kDone);
  }
  absl::StatusOr<RunFolder> folder = FolderFor(options, run);
  if (!folder.ok()) return Complain(ExitCode::kUsage, folder.status());
  const absl::Status space = folder->CheckSpace();
  if (!space.ok()) return Complain(ExitCode::kCheckpoint, space);
  // Also before an epoch is finished as it was begun: a resume after an interruption goes on to what is wanted.
  const absl::Status written = folder->WriteJob(PrintJob(finish_first ? run.config : run.job.config()));
  if (!written.ok()) return Complain(ExitCode::kUsage, written);
  if (finish_first) {
    const absl::StatusOr<RunResult> finished = FinishEpoch(options, run.config, &run, *folder);
    if (!finished.ok()) return Complain(CodeOfStart(options, finished.status()), finished.status());
    if (finished->exit_code != 0) return finished->exit_code;
    const absl::Status rewound = folder->Rewind(run.source->examples());
    if (!rewound.ok()) return Complain(ExitCode::kUsage, rewound);
    const absl::Status planned = PlanStart(options, &run);
    if (!planned.ok()) return Complain(CodeOfStart(options, planned), planned);
  }
  return RunOnce(options, run, *folder).exit_code;
}

}  // namespace capstan
