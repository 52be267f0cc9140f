#include "tools/train/process_run.h"

#include <unistd.h>

#include <memory>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/exit_code.h"
#include "proto/control.pb.h"
#include "tools/launcher/supervisor.h"

namespace capstan {
namespace {

constexpr Duration kPollTick = std::chrono::milliseconds(100);
constexpr Duration kAddressPoll = std::chrono::milliseconds(10);
constexpr uint64_t kMaxSmallFile = uint64_t{64} << 20;

RunResult Failure(int code, std::string reason) {
  RunResult result;
  result.status = code == ToInt(ExitCode::kInterrupted) ? "interrupted" : "failed";
  result.exit_code = code;
  result.reason = std::move(reason);
  return result;
}

// Shows the lines that the scheduler appends to metrics.jsonl.
class MetricsFollower {
 public:
  // Shows what is appended from now on.
  MetricsFollower(std::string path, ProgressView& view) : path_(std::move(path)), view_(view) {
    const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = PosixFileSystem().Open(path_);
    if (file.ok()) read_ = (*file)->size();
  }

  void Follow() {
    const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = PosixFileSystem().Open(path_);
    if (!file.ok() || (*file)->size() <= read_) return;  // not written yet
    std::string more((*file)->size() - read_, '\0');
    if (!(*file)->Read(read_, more.data(), more.size()).ok()) return;
    size_t begin = 0;
    for (size_t end = more.find('\n'); end != std::string::npos; begin = end + 1, end = more.find('\n', begin)) {
      Show(more.substr(begin, end - begin));
    }
    read_ += begin;
  }

 private:
  void Show(const std::string& line) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return;
    ProgressSample sample;
    sample.seconds = json.value("seconds", 0.0);
    sample.examples = json.value("examples", uint64_t{0});
    sample.total_examples = json.value("total_examples", uint64_t{0});
    sample.loss = json.value("loss", 0.0);
    sample.steps = json.value("steps", uint64_t{0});
    sample.epoch = json.value("epoch", 0u);
    sample.epochs = json.value("epochs", 0u);
    sample.workers_alive = json.value("workers_alive", 0u);
    sample.workers = json.value("workers", 0u);
    view_.Show(sample);
  }

  const std::string path_;
  ProgressView& view_;
  uint64_t read_ = 0;
};

class Launch {
 public:
  Launch(const EffectiveJob& job, RunFolder& folder, const StartPoint& start, std::string programs)
      : job_(job), folder_(folder), start_(start), programs_(std::move(programs)) {}

  absl::Status Start(Supervisor& supervisor) {
    const std::string effective = folder_.path() + "/effective.pb";
    CAPSTAN_RETURN_IF_ERROR(WriteFileAtomically(PosixFileSystem(), effective, job_.SerializeAsString()));
    const std::string address_file = folder_.path() + "/scheduler.address";
    std::vector<std::string> arguments = {"--effective_job=" + effective, "--output=" + folder_.path(),
                                          "--bind=127.0.0.1:0", "--address_file=" + address_file};
    if (!start_.from.folder.empty()) {
      arguments.push_back((start_.from.warm ? "--warm_start=" : "--resume=") + start_.from.folder);
      if (start_.from.warm) arguments.push_back("--tables=" + start_.tables);
    }
    FileSystem& fs = PosixFileSystem();
    const absl::Status old = fs.Remove(address_file);  // of a run before this one
    if (!old.ok() && !absl::IsNotFound(old)) return old;
    CAPSTAN_RETURN_IF_ERROR(
        Spawn(supervisor, "scheduler", "capstan-scheduler", ExitCode::kSchedulerLost, std::move(arguments)));
    CAPSTAN_ASSIGN_OR_RETURN(const std::string address, AwaitAddress(supervisor, address_file));
    const ClusterConfig& cluster = job_.config().cluster();
    const std::string timeout = fmt::format("--join_timeout_ms={}", cluster.join_timeout_ms());
    for (uint32_t i = 0; i < cluster.servers(); ++i) {
      const std::string name = fmt::format("server-{}", i);
      CAPSTAN_RETURN_IF_ERROR(Spawn(supervisor, name, "capstan-ps", ExitCode::kServerLost,
                                    {"--scheduler=" + address, "--name=" + name, timeout,
                                     fmt::format("--shards={}", cluster.shards())}));
    }
    for (uint32_t i = 0; i < cluster.workers(); ++i) {
      const std::string name = fmt::format("worker-{}", i);
      CAPSTAN_RETURN_IF_ERROR(Spawn(supervisor, name, "capstan-worker", ExitCode::kWorkerLost,
                                    {"--scheduler=" + address, "--name=" + name, timeout}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Spawn(Supervisor& supervisor, const std::string& name, const std::string& program, ExitCode if_killed,
                     std::vector<std::string> arguments) {
    ChildSpec spec;
    spec.name = name;
    spec.argv = std::move(arguments);
    spec.argv.insert(spec.argv.begin(), programs_ + "/" + program);
    spec.log_path = folder_.log_path(name);
    spec.exit_code_if_killed = ToInt(if_killed);
    return supervisor.Spawn(spec);
  }

  absl::StatusOr<std::string> AwaitAddress(Supervisor& supervisor, const std::string& path) {
    const Time deadline = clock_.Now() + std::chrono::milliseconds(job_.config().cluster().join_timeout_ms());
    while (clock_.Now() < deadline) {
      absl::StatusOr<std::string> address = ReadWholeFile(PosixFileSystem(), path, kMaxSmallFile);
      if (address.ok() && !address->empty()) return address;
      const SupervisorEvent event = supervisor.Wait(clock_.Now() + kAddressPoll);
      if (event.kind == SupervisorEvent::Kind::kExit) return Unavailable(event.exit.ToString());
      const bool interrupted = event.kind == SupervisorEvent::Kind::kInterrupt && event.signal != SIGUSR1;
      if (interrupted) return absl::CancelledError("interrupted");
    }
    return DeadlineExceeded(fmt::format("the scheduler wrote no address to {}; see {}", path,
                                        folder_.log_path("scheduler")));
  }

  const EffectiveJob& job_;
  RunFolder& folder_;
  const StartPoint& start_;
  const std::string programs_;
  const SteadyClock clock_;
};

// What the scheduler wrote before it ended.
absl::StatusOr<RunResult> ReadResult(const RunFolder& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(PosixFileSystem(), folder.path() + "/result.json", kMaxSmallFile));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return DataLoss("result.json does not parse");
  RunResult result;
  result.status = json.value("status", "");
  result.reason = json.value("reason", "");
  result.exit_code = json.value("exit_code", 0);
  result.examples = json.value("examples", uint64_t{0});
  result.steps = json.value("steps", uint64_t{0});
  result.seconds = json.value("seconds", 0.0);
  if (json.contains("model_sha256") && json["model_sha256"].is_string()) result.model_sha256 = json["model_sha256"];
  if (json.contains("checkpoint") && json["checkpoint"].is_string()) result.checkpoint = json["checkpoint"];
  if (json.contains("eval") && json["eval"].is_object()) {
    const nlohmann::json& eval = json["eval"];
    const auto figure = [&eval](const char* key) -> std::optional<double> {
      if (!eval.contains(key) || !eval[key].is_number()) return std::nullopt;
      return eval[key].get<double>();
    };
    RunEval figures;
    figures.rows = eval.value("rows", uint64_t{0});
    figures.auc = figure("auc");
    figures.logloss = figure("logloss");
    figures.accuracy = figure("accuracy");
    figures.calibration = figure("calibration");
    result.eval = figures;
  }
  return result;
}

}  // namespace

RunResult RunProcesses(const EffectiveJob& job, RunFolder& folder, const StartPoint& start, const std::string& programs,
                       ProgressView& view) {
  absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = Supervisor::Make();
  if (!supervisor.ok()) return Failure(ToInt(ExitCode::kUsage), std::string(supervisor.status().message()));
  MetricsFollower follower(folder.path() + "/metrics.jsonl", view);
  Launch launch(job, folder, start, programs);
  const absl::Status started = launch.Start(**supervisor);
  if (!started.ok()) {
    (*supervisor)->Terminate(kTerminateGrace);
    const ExitCode code = absl::IsCancelled(started)          ? ExitCode::kInterrupted
                          : absl::IsDeadlineExceeded(started) ? ExitCode::kJoinTimeout
                          : absl::IsNotFound(started)         ? ExitCode::kUsage
                                                              : ExitCode::kSchedulerLost;
    const RunResult failure = Failure(ToInt(code), std::string(started.message()));
    folder.WriteResult(failure).IgnoreError();  // the exit code and the message say it too
    return failure;
  }
  const SupervisedEnd end = SuperviseUntilEnd(
      supervisor->get(), kPollTick, [&follower] { follower.Follow(); },
      [&supervisor](int signal) { return (*supervisor)->Signal("scheduler", signal); });
  follower.Follow();
  view.EndLine();
  absl::StatusOr<RunResult> result = ReadResult(folder);
  // The launcher saw who went first. The scheduler knows more about it, unless the first one was killed without a word:
  // then it only saw what the launcher did afterwards.
  const bool same_cause = end.exit_code == 0 || (!end.killed && result.ok() && result->exit_code == end.exit_code);
  if (result.ok() && same_cause) return *std::move(result);
  const RunResult failure = Failure(end.exit_code != 0 ? end.exit_code : ToInt(ExitCode::kSchedulerLost),
                                    end.exit_code != 0 ? end.message : std::string(result.status().message()));
  folder.WriteResult(failure).IgnoreError();
  return failure;
}

}  // namespace capstan
