// capstan-scheduler: plans a job, brings its nodes together, ends it.
#include <gflags/gflags.h>
#include <unistd.h>

#include <ctime>
#include <memory>

#include <fmt/core.h>

#include "common/version.h"
#include "proto/control.pb.h"
#include "ps/optimizer.h"
#include "tools/flags.h"
#include "tools/job/job_file.h"
#include "tools/job/job_text.h"
#include "tools/job/plan_job.h"
#include "tools/train/node_main.h"
#include "tools/train/scheduler_side.h"
#include "tools/train/train_command.h"
#include "tools/train/train_job.h"
#include "transport/endpoint.h"
#include "tools/print.h"

DEFINE_string(job, "", "Job file.");
DEFINE_string(bind, "127.0.0.1:0", "HOST:PORT to listen at; port 0 takes a free one. Servers and workers dial it.");
DEFINE_string(address_file, "", "File that gets the address once the scheduler listens.");
DEFINE_uint32(servers, 1, "Servers to wait for. Default: as the job file says.");
DEFINE_uint32(workers, 1, "Workers to wait for. Default: as the job file says.");
DEFINE_uint32(shards, 1, "Shards per server. Default: as the job file says.");
DEFINE_string(output, "", "Output folder, seen by all servers under this path. Default: runs/<job>-<time>.");
DEFINE_string(effective_job, "", "Planned job (binary), written by `capstan train`; instead of --job.");

namespace capstan {
namespace {

constexpr uint64_t kMaxJobBytes = uint64_t{16} << 20;

absl::Status LoadPlanned(EffectiveJob* job) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(PosixFileSystem(), FLAGS_effective_job, kMaxJobBytes));
  if (!job->ParseFromString(bytes)) {
    return InvalidArgument(fmt::format("--effective_job={} is no planned job", FLAGS_effective_job));
  }
  return absl::OkStatus();
}

absl::Status Plan(const CommandLine& line, EffectiveJob* job) {
  if (FLAGS_job.empty()) return InvalidArgument("--job=FILE is missing");
  TrainOptions options;
  options.job = FLAGS_job;
  options.sets = line.sets;
  if (FlagGiven("servers")) options.servers = FLAGS_servers;
  if (FlagGiven("workers")) options.workers = FLAGS_workers;
  if (FlagGiven("shards")) options.shards = FLAGS_shards;
  std::vector<std::string> optimizers, notes;
  for (const std::string_view name : OptimizerNames()) optimizers.emplace_back(name);
  JobConfig config;
  const absl::Status made =
      MakeTrainJob(PosixFileSystem(), options, ProcessSurroundings(std::move(optimizers)), &config, &notes);
  for (const std::string& note : notes) LogLine(note);
  CAPSTAN_RETURN_IF_ERROR(made);
  return PlanJob(PosixFileSystem(), config, job);
}

int RunScheduler(const CommandLine& line) {
  const std::string bind = FLAGS_bind.find("://") == std::string::npos ? "tcp://" + FLAGS_bind : FLAGS_bind;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(bind);
  if (!endpoint.ok()) return UsageError(While("--bind=" + FLAGS_bind, endpoint.status()));
  EffectiveJob job;
  const bool planned = !FLAGS_effective_job.empty();
  const absl::Status ready = planned ? LoadPlanned(&job) : Plan(line, &job);
  if (!ready.ok()) return UsageError(ready);
  absl::StatusOr<RunFolder> folder = planned ? RunFolder::Open(FLAGS_output)
                                             : RunFolder::Create(FLAGS_output, job.config().name(), std::time(nullptr));
  if (!folder.ok()) return UsageError(folder.status());
  if (!planned) {
    const absl::Status written = folder->WriteJob(PrintJob(job.config()));
    if (!written.ok()) return UsageError(written);
  }
  std::unique_ptr<ProgressView> view;
  if (!planned) view = std::make_unique<ProgressView>(stdout);

  SchedulerSideOptions options;
  options.bind_endpoint = FormatEndpoint(*endpoint);
  options.make_transport = ZmqFactory();
  options.view = view.get();
  options.log = LogLine;
  options.on_bound = [](const std::string& bound) {
    LogLine(fmt::format("the scheduler listens at {}", bound));
    if (FLAGS_address_file.empty()) return;
    const absl::Status written = WriteFileAtomically(PosixFileSystem(), FLAGS_address_file, bound);
    if (!written.ok()) LogLine(std::string(written.message()));
  };
  SchedulerSide side(std::move(options), job, *folder);
  RunResult result;
  {
    SignalWatcher signals([&side](int) { side.Stop(ExitCode::kInterrupted, "interrupted"); });
    result = side.Run();
  }
  Print(stderr, "{}", SummaryOf(result, folder->path()));
  return result.exit_code;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  const capstan::Command command{
      .name = "capstan-scheduler",
      .summary = "plans a job, brings its servers and workers together, and ends it",
      .usage = "  capstan-scheduler --job=job.textproto --bind=10.0.0.1:17100 --servers=2 --workers=4 --output=/shared/run1\n"
               "Exit codes: README.md.",
      .flags = {"job", "bind", "address_file", "servers", "workers", "shards", "output", "effective_job"},
      .takes_sets = true,
      .run = capstan::RunScheduler};
  capstan::StartLogging(argv[0]);
  return capstan::RunCommand(command, argc, argv);
}
