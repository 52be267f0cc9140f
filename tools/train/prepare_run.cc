#include "tools/train/prepare_run.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "ps/optimizer.h"
#include "storage/checkpoint_format.h"
#include "tools/job/job_file.h"
#include "tools/job/plan_job.h"
#include "tools/print.h"
#include "tools/train/train_job.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxResultBytes = uint64_t{1} << 20;

// RUN of RUN/checkpoints/C000007.
std::string RunOf(const std::string& checkpoint) {
  std::filesystem::path folder = std::filesystem::absolute(checkpoint).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "C000007/"
  return folder.parent_path().parent_path().string();
}

bool SameFolder(const std::string& a, const std::string& b) {
  std::error_code error;  // one that is not there is another one
  return std::filesystem::equivalent(a, b, error);
}

std::vector<std::string> KnownOptimizers() {
  std::vector<std::string> names;
  for (const std::string_view name : OptimizerNames()) names.emplace_back(name);
  return names;
}

void Tell(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) Print(stderr, "{}\n", note);
}

// Not one, complete or not, readable or not.
bool HoldsNoCheckpoint(const std::string& output) {
  const absl::StatusOr<std::vector<std::string>> names = PosixFileSystem().List(output + "/checkpoints");
  if (!names.ok()) return absl::IsNotFound(names.status());
  return std::none_of(names->begin(), names->end(),
                      [](const std::string& name) { return ParseCheckpointFolderName(name).ok(); });
}

// Whoever restarts a run after every failure says --resume each time, also where it ended before its first checkpoint.
absl::Status BeginAnew(TrainOptions* options, PreparedRun* run) {
  FileSystem& fs = PosixFileSystem();
  const absl::StatusOr<std::string> origin =
      ReadWholeFile(fs, options->output + "/" + kOriginFile, kMaxResultBytes);
  if (origin.ok()) {
    return InvalidArgument(fmt::format("'{}' was begun with {} and has no checkpoint of its own yet: move it away and "
                                       "begin again with these flags and --output={}", options->output, *origin,
                                       options->output));
  }
  CAPSTAN_ASSIGN_OR_RETURN(run->anew, fs.Exists(options->output + "/job.textproto"));
  if (options->job.empty() && options->data.empty()) options->job = options->output + "/job.textproto";
  options->resume.clear();
  Print(stderr, "'{}' has no checkpoint yet: training begins at the beginning\n", options->output);
  return absl::OkStatus();
}

// The options of a resume, completed: which checkpoint, whose job file.
absl::Status CompleteResume(TrainOptions* options, PreparedRun* run) {
  if (!options->warm_start.empty()) return InvalidArgument("--resume and --warm_start exclude each other");
  if (options->resume == "newest") {
    if (options->output.empty()) {
      return InvalidArgument("--resume goes on in a run's folder: give --output=RUN, or --resume=CHECKPOINT");
    }
    const bool job_known = !options->job.empty() || !options->data.empty() ||
                           PosixFileSystem().Exists(options->output + "/job.textproto").value_or(false);
    if (job_known && HoldsNoCheckpoint(options->output)) return BeginAnew(options, run);
    options->resume = options->output;
  }
  std::vector<std::string> notes;
  CAPSTAN_ASSIGN_OR_RETURN(run->source, ResumeSource::Open(PosixFileSystem(), options->resume, CheckpointCheck::kFiles,
                                                           &notes));
  Tell(notes);
  if (options->job.empty() && options->data.empty()) {
    options->job = RunOf(run->source->folder()) + "/job.textproto";
  }
  return absl::OkStatus();
}

std::string OriginFlags(const TrainOptions& options) {
  if (!options.resume.empty()) return "--resume=" + options.resume;
  return fmt::format("--warm_start={}{}", options.warm_start,
                     options.tables.empty() ? "" : fmt::format(" --tables='{}'", options.tables));
}

}  // namespace

absl::Status ReadRun(TrainOptions* options, PreparedRun* run) {
  if (!options->tables.empty() && options->warm_start.empty()) {
    return InvalidArgument("--tables says what --warm_start takes: give --warm_start=CHECKPOINT as well");
  }
  if (!options->resume.empty()) CAPSTAN_RETURN_IF_ERROR(CompleteResume(options, run));
  std::vector<std::string> notes;
  const absl::Status made =
      MakeTrainJob(PosixFileSystem(), *options, ProcessSurroundings(KnownOptimizers()), &run->config, &notes);
  Tell(notes);
  if (!made.ok() || run->source == nullptr) return made;
  CAPSTAN_RETURN_IF_ERROR(run->source->CheckData(run->config));
  if (const std::string changed = run->source->ChangedSettings(run->config); !changed.empty()) {
    Print(stderr, "other settings than the checkpoint's:\n{}", changed);
  }
  return absl::OkStatus();
}

bool GoesOnInItsFolder(const TrainOptions& options, const PreparedRun& run) {
  if (run.anew) return true;
  // Only the checkpoint's own run goes on in its folder.
  return run.source != nullptr && !options.output.empty() && SameFolder(options.output, RunOf(run.source->folder()));
}

absl::StatusOr<RunFolder> FolderFor(const TrainOptions& options, const PreparedRun& run) {
  if (GoesOnInItsFolder(options, run)) {
    return RunFolder::Continue(options.output, run.anew ? 0 : run.source->examples());
  }
  CAPSTAN_ASSIGN_OR_RETURN(RunFolder folder,
                           RunFolder::Create(options.output, run.config.name(), std::time(nullptr)));
  if (!options.resume.empty() || !options.warm_start.empty()) {
    CAPSTAN_RETURN_IF_ERROR(folder.WriteOrigin(OriginFlags(options)));
  }
  return folder;
}

bool IsTrained(const TrainOptions& options, const PreparedRun& run) {
  if (run.source == nullptr || !GoesOnInItsFolder(options, run)) return false;
  if (!run.source->AtEpochStart() || run.source->EpochsBegun() < run.config.epochs()) return false;
  const absl::StatusOr<std::string> text =
      ReadWholeFile(PosixFileSystem(), options.output + "/result.json", kMaxResultBytes);
  if (!text.ok()) return false;
  const nlohmann::json result = nlohmann::json::parse(*text, nullptr, false);
  return result.is_object() && result.value("status", "") == "done";
}

absl::Status PlanStart(const TrainOptions& options, PreparedRun* run) {
  if (run->source != nullptr) {
    CAPSTAN_RETURN_IF_ERROR(run->source->PlanJob(run->config, &run->job));
  } else {
    CAPSTAN_RETURN_IF_ERROR(PlanJob(PosixFileSystem(), run->config, &run->job));
  }
  if (!options.freeze.empty()) {
    const absl::Status frozen = FreezeTables(options.freeze, &run->job);
    // Of the command line, whatever training begins with: not the data's fault.
    if (!frozen.ok()) return absl::FailedPreconditionError(frozen.message());
  }
  if (run->source != nullptr) {
    CAPSTAN_ASSIGN_OR_RETURN(run->start, run->source->Start(run->job));
  } else if (!options.warm_start.empty()) {
    std::vector<std::string> notes;
    CAPSTAN_ASSIGN_OR_RETURN(run->start,
                             WarmStart(PosixFileSystem(), options.warm_start, CheckpointCheck::kFiles,
                                                   options.tables, run->job, &notes));
    Tell(notes);
    std::string names;
    for (const auto& [there, here] : run->start.from.imports) {
      names += (names.empty() ? "" : ", ") + run->job.table(here).name();
    }
    Print(stderr, "begins with the weights of {} from {}\n", names, run->start.from.folder);
  }
  return absl::OkStatus();
}

ExitCode CodeOfStart(const TrainOptions& options, const absl::Status& status) {
  const bool from_checkpoint = !options.resume.empty() || !options.warm_start.empty();
  if (from_checkpoint && (absl::IsDataLoss(status) || absl::IsNotFound(status))) return ExitCode::kCheckpoint;
  return from_checkpoint || absl::IsFailedPrecondition(status) ? ExitCode::kUsage : ExitCode::kData;
}

}  // namespace capstan
