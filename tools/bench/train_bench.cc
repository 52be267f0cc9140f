#include "tools/bench/train_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/core.h>

#include "common/file_system.h"
#include "data/dataset.h"
#include "kernels/compute_thread.h"
#include "kernels/cpu_isa.h"
#include "models/step_benchmark.h"
#include "proto/control.pb.h"
#include "ps/optimizer.h"
#include "tools/gen/gen_command.h"
#include "tools/job/job_file.h"
#include "tools/job/plan_job.h"
#include "tools/train/local_run.h"
#include "tools/train/process_run.h"
#include "tools/train/train_command.h"
#include "tools/train/train_job.h"

namespace capstan {
namespace {

constexpr int kFloorRepeats = 20;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(fmt::format("{}/capstan-bench-{}", std::filesystem::temp_directory_path().string(), getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // a leftover in the temporary folder harms nobody
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

absl::StatusOr<EffectiveJob> MakeJob(const TrainBenchOptions& options, const std::string& folder) {
  GenOptions gen;
  gen.rows = options.rows;
  gen.out = folder + "/rows.tsv";
  CAPSTAN_RETURN_IF_ERROR(GenerateFile(PosixFileSystem(), gen).status());
  const std::string text = fmt::format(
      "name: \"bench\" batch {{ global: {} }} data {{ format: CRITEO train: \"{}\" }}\n"
      "model {{ wide_deep {{ embedding_dim: 16 hidden: 256 hidden: 128 hidden: 64 }} }}\n"
      "optimizer {{ name: \"adam\" learning_rate: 0.001 }}\n",
      options.global_batch, gen.out);
  CAPSTAN_RETURN_IF_ERROR(WriteFileAtomically(PosixFileSystem(), folder + "/job.textproto", text));
  TrainOptions train;
  train.job = folder + "/job.textproto";
  std::vector<std::string> optimizers, notes;
  for (const std::string_view name : OptimizerNames()) optimizers.emplace_back(name);
  JobConfig config;
  CAPSTAN_RETURN_IF_ERROR(
      MakeTrainJob(PosixFileSystem(), train, ProcessSurroundings(std::move(optimizers)), &config, &notes));
  EffectiveJob job;
  CAPSTAN_RETURN_IF_ERROR(PlanJob(PosixFileSystem(), config, &job));
  return job;
}

// Examples per second that the matrix products alone allow: each rank computes its part of the batch on a core.
absl::StatusOr<double> FloorOf(const EffectiveJob& job) {
  const JobConfig& config = job.config();
  CAPSTAN_RETURN_IF_ERROR(PinCpuIsa(BestCpuIsa()));  // as the runs will
  std::optional<absl::StatusOr<StepTimes>> times;
  std::thread thread([&] {
    SetFloatMode();
    SetThreadsOfThisThread(1);
    times = MeasureStep(config.model(), ShapeOf(config.data()), config.batch().micro(), kFloorRepeats);
  });
  thread.join();
  CAPSTAN_RETURN_IF_ERROR(times->status());
  const uint32_t cores = std::max(1u, std::min(config.ranks(), std::thread::hardware_concurrency()));
  return cores * config.batch().micro() / (*times)->floor_seconds;
}

absl::Status RunOnce(const std::string& name, const EffectiveJob& job, const std::string& output, double floor,
                     const std::function<RunResult(RunFolder&, ProgressView&)>& run,
                     const std::function<void(const Figure&)>& report) {
  CAPSTAN_ASSIGN_OR_RETURN(RunFolder folder, RunFolder::Create(output, job.config().name(), 0));
  ProgressView view(stderr);
  const RunResult result = run(folder, view);
  if (result.exit_code != 0) return Internal(fmt::format("{}: {}", name, result.reason));
  Figure figure;
  figure.name = name;
  figure.unit = "examples/s";
  figure.value = static_cast<double>(result.examples) / result.seconds;
  figure.limit_name = "matrix products";
  figure.limit = floor;
  figure.ratio = figure.value / floor;
  report(figure);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunTrainBench(const TrainBenchOptions& options, const std::function<void(const Figure&)>& report) {
  const TemporaryFolder folder;
  CAPSTAN_ASSIGN_OR_RETURN(const EffectiveJob job, MakeJob(options, folder.path()));
  CAPSTAN_ASSIGN_OR_RETURN(const double floor, FloorOf(job));
  CAPSTAN_RETURN_IF_ERROR(RunOnce(
      "train.processes_1x1", job, folder.path() + "/processes", floor,
      [&](RunFolder& run, ProgressView& view) { return RunProcesses(job, run, StartPoint(), options.programs, view); }, report));
  return RunOnce(
      "train.one_process", job, folder.path() + "/local", floor,
      [&](RunFolder& run, ProgressView& view) { return RunLocally(job, run, StartPoint(), view); }, report);
}

}  // namespace capstan
