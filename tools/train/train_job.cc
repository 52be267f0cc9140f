#include "tools/train/train_job.h"

#include <fmt/core.h>

#include "data/guess.h"
#include "proto/job.pb.h"
#include "tools/job/job_file.h"
#include "tools/train/train_command.h"

namespace capstan {
namespace {

absl::Status SetFiles(const std::vector<std::string>& files, const char* flag, const char* key,
                      JobFile* job) {
  for (size_t i = 0; i < files.size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(job->Override(flag, key, files[i], /*append=*/i > 0));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status SetNumber(const std::optional<T>& value, const char* flag, const char* key, JobFile* job) {
  return value ? job->Override(flag, key, std::to_string(*value)) : absl::OkStatus();
}

absl::Status ApplyFlags(const TrainOptions& options, JobFile* job) {
  CAPSTAN_RETURN_IF_ERROR(SetFiles(options.data, "--data", "data.train", job));
  CAPSTAN_RETURN_IF_ERROR(SetFiles(options.eval_data, "--eval_data", "data.eval", job));
  if (!options.label.empty())
    CAPSTAN_RETURN_IF_ERROR(job->Override("--label", "data.label.column", options.label));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.epochs, "--epochs", "epochs", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.servers, "--servers", "cluster.servers", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.workers, "--workers", "cluster.workers", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.shards, "--shards", "cluster.shards", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.seed, "--seed", "seed", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.checkpoint_steps, "--checkpoint_steps", "checkpoint.steps", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.checkpoint_examples, "--checkpoint_examples", "checkpoint.examples", job));
  CAPSTAN_RETURN_IF_ERROR(SetNumber(options.checkpoint_seconds, "--checkpoint_seconds", "checkpoint.seconds", job));
  if (!options.consistency.empty()) {
    CAPSTAN_RETURN_IF_ERROR(job->Override("--consistency", "consistency", options.consistency));
  }
  for (const std::string& set : options.sets) CAPSTAN_RETURN_IF_ERROR(job->Set(set));
  return absl::OkStatus();
}

// Guesses from the job as the flags have left it, so that --set data.delimiter and the like are heeded.
absl::Status GuessInto(FileSystem& fs, const TrainOptions& options, JobFile* job,
                       std::vector<std::string>* notes) {
  DataConfig data = job->raw().data();
  absl::StatusOr<std::string> guess = GuessSchema(fs, options.data[0], options.label, &data);
  if (!guess.ok()) return guess.status();
  notes->push_back(*std::move(guess));
  job->ReplaceData(data);
  if (job->raw().model().kind_case() != ModelConfig::KIND_NOT_SET) return absl::OkStatus();
  return job->Override("the default model", "model.wide_deep", "");
}

}  // namespace

absl::Status MakeTrainJob(FileSystem& fs, const TrainOptions& options, const JobSurroundings& surroundings,
                          JobConfig* job, std::vector<std::string>* notes) {
  JobFile file;
  if (!options.job.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(file, JobFile::Load(fs, options.job));
  } else if (options.data.empty()) {
    return InvalidArgument("nothing to train: give a job file, or --data=FILE --label=COLUMN");
  }
  CAPSTAN_RETURN_IF_ERROR(ApplyFlags(options, &file));
  if (options.job.empty()) CAPSTAN_RETURN_IF_ERROR(GuessInto(fs, options, &file, notes));
  return file.Finish(fs, surroundings, job, notes);
}

}  // namespace capstan
