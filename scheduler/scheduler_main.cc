// capstan-scheduler: plans a job, brings its nodes together, ends it.
#include <gflags/gflags.h>
#include <unistd.h>

#include <memory>

#include <fmt/core.h>

#include "common/version.h"
#include "proto/control.pb.h"
#include "tools/flags.h"
#include "tools/job/job_text.h"
#include "tools/train/node_main.h"
#include "tools/train/prepare_run.h"
#include "tools/train/scheduler_side.h"
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

DEFINE_uint64(checkpoint_steps, 0, "A checkpoint every so many steps; 0: not by steps. Default: as the job file says.");
DEFINE_uint64(checkpoint_examples, 0, "A checkpoint every so many examples; 0: not by examples. Default: as the job file says.");
DEFINE_uint64(checkpoint_seconds, 0, "A checkpoint every so many seconds; 0: not by time. Default: as the job file says.");
DEFINE_string(resume, "",
              "Checkpoint (or a run, or its checkpoints folder) of the same job to go on from. Alone: of --output.");
DEFINE_string(warm_start, "", "Checkpoint whose weights the job begins with.");
DEFINE_string(tables, "", "Tables that --warm_start takes: a regular expression over whole names. Default: all.");
DEFINE_string(freeze, "", "Tables that do not change: a regular expression over whole names.");

namespace capstan {
namespace {

constexpr uint64_t kMaxJobBytes = uint64_t{16} << 20;

TrainOptions OptionsFromFlags(const CommandLine& line) {
  TrainOptions options;
  options.job = FLAGS_job;
  options.sets = line.sets;
  options.output = FLAGS_output;
  options.resume = FLAGS_resume;
  options.warm_start = FLAGS_warm_start;
  options.tables = FLAGS_tables;
  options.freeze = FLAGS_freeze;
  if (FlagGiven("servers")) options.servers = FLAGS_servers;
  if (FlagGiven("workers")) options.workers = FLAGS_workers;
  if (FlagGiven("shards")) options.shards = FLAGS_shards;
  if (FlagGiven("checkpoint_steps")) options.checkpoint_steps = FLAGS_checkpoint_steps;
  if (FlagGiven("checkpoint_examples")) options.checkpoint_examples = FLAGS_checkpoint_examples;
  if (FlagGiven("checkpoint_seconds")) options.checkpoint_seconds = FLAGS_checkpoint_seconds;
  return options;
}

// `capstan train` has read the job and planned it; where it begins is worked out once more from the same checkpoint.
absl::Status LoadPlanned(PreparedRun* run) {
  FileSystem& fs = PosixFileSystem();
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(fs, FLAGS_effective_job, kMaxJobBytes));
  if (!run->job.ParseFromString(bytes)) {
    return InvalidArgument(fmt::format("--effective_job={} is no planned job", FLAGS_effective_job));
  }
  std::vector<std::string> notes;
  constexpr CheckpointCheck kChecked = CheckpointCheck::kRecords;  // `capstan train` has read all of it
  if (!FLAGS_resume.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(run->source, ResumeSource::Open(fs, FLAGS_resume, kChecked, &notes));
    CAPSTAN_ASSIGN_OR_RETURN(run->start, run->source->Start(run->job));
  } else if (!FLAGS_warm_start.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(run->start, WarmStart(fs, FLAGS_warm_start, kChecked, FLAGS_tables, run->job, &notes));
  }
  for (const std::string& note : notes) LogLine(note);
  return absl::OkStatus();
}

absl::Status Plan(TrainOptions* options, PreparedRun* run) {
  if (options->job.empty() && options->resume.empty()) return InvalidArgument("--job=FILE is missing");
  CAPSTAN_RETURN_IF_ERROR(ReadRun(options, run));
  return PlanStart(*options, run);
}

int RunScheduler(const CommandLine& line) {
  OutliveEarlySigusr1();
  const std::string bind = FLAGS_bind.find("://") == std::string::npos ? "tcp://" + FLAGS_bind : FLAGS_bind;
  const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(bind);
  if (!endpoint.ok()) return UsageError(While("--bind=" + FLAGS_bind, endpoint.status()));
  TrainOptions train = OptionsFromFlags(line);
  PreparedRun run;
  const bool planned = !FLAGS_effective_job.empty();
  const absl::Status ready = planned ? LoadPlanned(&run) : Plan(&train, &run);
  if (!ready.ok()) {
    LogLine(std::string(ready.message()));
    return ToInt(train.resume.empty() && train.warm_start.empty() ? ExitCode::kUsage : CodeOfStart(train, ready));
  }
  absl::StatusOr<RunFolder> folder = planned ? RunFolder::Open(FLAGS_output) : FolderFor(train, run);
  if (!folder.ok()) return UsageError(folder.status());
  if (const absl::Status space = folder->CheckSpace(); !space.ok()) {
    LogLine(std::string(space.message()));
    return ToInt(ExitCode::kCheckpoint);
  }
  if (!planned) {
    const absl::Status written = folder->WriteJob(PrintJob(run.job.config()));
    if (!written.ok()) return UsageError(written);
  }
  std::unique_ptr<ProgressView> view;
  if (!planned) view = std::make_unique<ProgressView>(stdout);

  SchedulerSideOptions options;
  options.bind_endpoint = FormatEndpoint(*endpoint);
  options.make_transport = ZmqFactory();
  options.view = view.get();
  options.log = LogLine;
  SchedulerSide* started = nullptr;
  options.on_bound = [&started](const std::string& bound) {
    LogLine(fmt::format("the scheduler listens at {}", bound));
    if (FLAGS_address_file.empty()) return;
    const absl::Status written = WriteFileAtomically(PosixFileSystem(), FLAGS_address_file, bound);
    // Nobody would ever come.
    if (!written.ok()) started->Stop(ExitCode::kCheckpoint, "the address file: " + std::string(written.message()));
  };
  options.start = run.start;
  SchedulerSide side(std::move(options), run.job, *folder);
  started = &side;
  RunResult result;
  {
    SignalWatcher signals([&side](int signal) { side.OnSignal(signal); });
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
      .flags = {"job", "bind", "address_file", "servers", "workers", "shards", "output", "effective_job",
                "checkpoint_steps", "checkpoint_examples", "checkpoint_seconds", "resume", "warm_start", "tables", "freeze"},
      .bare_flags = {"resume"},
      .takes_sets = true,
      .run = capstan::RunScheduler};
  capstan::StartLogging(argv[0]);
  return capstan::RunCommand(command, argc, argv);
}
