#include "tools/train/scheduler_side.h"

#include <signal.h>

#include <utility>

#include <fmt/core.h>

#include "common/random.h"
#include "common/version.h"
#include "kernels/cpu_isa.h"
#include "proto/control.pb.h"
#include "storage/saved_model.h"
#include "tools/eval/evaluate.h"
#include "tools/train/run_recorder.h"

namespace capstan {

SchedulerSide::SchedulerSide(SchedulerSideOptions options, const EffectiveJob& job, RunFolder& folder)
    : options_(std::move(options)), job_(std::make_unique<EffectiveJob>(job)), folder_(folder) {
  const JobConfig& config = job.config();
  RunRecorder::Settings settings;
  settings.total_examples = job.plan().rows() * config.epochs();
  settings.epochs = config.epochs();
  settings.workers = config.cluster().workers();
  settings.done_examples = options_.start.from.examples;
  settings.interval = std::chrono::seconds(config.metrics_seconds());
  recorder_ = std::make_unique<RunRecorder>(settings, folder_, options_.view, options_.log);

  SystemRandom random;
  SchedulerNodeOptions node;
  node.core.version = kCapstanVersion;
  node.core.incarnation = static_cast<Incarnation>(random.Next() | 1);
  node.core.job_id = random.Next() | 1;
  node.core.cpu_isa = BestCpuIsa();
  node.core.from = options_.start.from;
  node.core.lineage = options_.start.lineage;
  node.checkpoint_root = folder_.checkpoints_path();
  node.state_folder = fmt::format("{}/scheduler/{:016x}", folder_.path(), node.core.job_id);
  node.core.heartbeats = options_.heartbeats;
  node.bind_endpoint = options_.bind_endpoint;
  node.make_transport = options_.make_transport;
  node.file_system = &PosixFileSystem();
  node.on_bound = options_.on_bound;
  node.on_ready = options_.on_ready;
  node_ = std::make_unique<SchedulerNode>(std::move(node), job, *recorder_);
}

SchedulerSide::~SchedulerSide() = default;

void SchedulerSide::Stop(ExitCode code, const std::string& reason) {
  stopped_ = true;
  node_->Stop(code, reason);
}

void SchedulerSide::OnSignal(int signal) {
  if (signal == SIGUSR1) return node_->AskCheckpoint("SIGUSR1");
  if (signal == SIGTERM && !terminated_.exchange(true)) return node_->Preempt("SIGTERM");
  Stop(ExitCode::kInterrupted, "interrupted");
}

RunResult SchedulerSide::Run() {
  RunResult result;
  const SchedulerResult trained = node_->Run();
  if (options_.on_training_end) options_.on_training_end();
  const absl::Status recorded = recorder_->Finish();
  if (!recorded.ok())
    options_.log(fmt::format("metrics.jsonl has gaps: {}", std::string(recorded.message())));
  result.exit_code = ToInt(trained.exit_code);
  result.reason = trained.reason;
  result.examples = trained.examples;
  result.steps = trained.steps;
  result.seconds = trained.training_seconds;
  result.model_sha256 = trained.model_sha256;
  result.checkpoint = trained.checkpoint;
  options_.log(fmt::format("the scheduler answered {} requests of workers in {} steps", trained.requests,
                           trained.steps));
  for (const auto& [count, of] : {std::pair(trained.frames.refused_version, "of another version"),
                                  std::pair(trained.frames.refused_corrupt, "that were damaged"),
                                  std::pair(trained.frames.refused_oversize, "that were too large")}) {
    if (count == 0) continue;
    options_.log(fmt::format("the scheduler dropped {} frame{} {}", count, count == 1 ? "" : "s", of));
  }
  if (trained.bad_rows > 0) options_.log(fmt::format("{} bad rows were left out", trained.bad_rows));
  if (trained.nonfinite_rows > 0) {
    options_.log(fmt::format("{} gradient rows were not finite and were left out", trained.nonfinite_rows));
  }
  if (trained.exit_code == ExitCode::kDone) {
    const absl::Status evaluated = EvaluateModel(trained.checkpoint, &result);
    if (absl::IsCancelled(evaluated)) {
      result.exit_code = ToInt(ExitCode::kInterrupted);
      result.reason = fmt::format("interrupted while evaluating; the model is saved in {}", trained.checkpoint);
    } else if (!evaluated.ok()) {
      result.exit_code = ToInt(ExitCode::kData);
      result.reason = fmt::format("evaluation: {}", std::string(evaluated.message()));
    }
  }
  result.status = result.exit_code == 0     ? "done"
                  : result.exit_code == 130 ? "interrupted"
                  : result.exit_code == 203 ? "preempted"
                                            : "failed";
  const absl::Status written = folder_.WriteResult(result);
  if (!written.ok()) {
    options_.log(fmt::format("result.json: {}", std::string(written.message())));
    if (result.exit_code == 0) result.exit_code = ToInt(ExitCode::kCheckpoint);
  }
  return result;
}

absl::Status SchedulerSide::EvaluateModel(const std::string& checkpoint, RunResult* result) {
  const DataConfig& data = job_->config().data();
  if (data.eval_size() == 0) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model,
                           SavedModel::Load(PosixFileSystem(), checkpoint));
  CAPSTAN_RETURN_IF_ERROR(PinIsaOf(*model));  // the instruction set that it was trained with
  ScoreOptions options;
  options.cancelled = [this] { return stopped_.load(); };
  CAPSTAN_ASSIGN_OR_RETURN(
      const EvalReport report,
      Evaluate(PosixFileSystem(), *model, {data.eval().begin(), data.eval().end()}, options));
  RunEval eval;
  eval.rows = report.metrics.rows;
  eval.auc = report.metrics.auc;
  eval.logloss = report.metrics.logloss;
  eval.accuracy = report.metrics.accuracy;
  eval.calibration = report.metrics.calibration;
  result->eval = eval;
  return absl::OkStatus();
}

std::string SummaryOf(const RunResult& result, const std::string& folder) {
  if (result.exit_code != 0) {
    return fmt::format("{} (exit code {}): {}\nlogs are in {}/logs\n{}", result.status, result.exit_code,
                       result.reason, folder,
                       result.checkpoint.empty() ? "" : fmt::format("newest checkpoint: {}; go on with --output={} --resume\n",
                                                                    result.checkpoint, folder));
  }
  std::string text = fmt::format(
      "trained on {} examples in {} steps, {:.1f} s ({:.0f} examples/s)\n", result.examples, result.steps,
      result.seconds, result.seconds > 0 ? static_cast<double>(result.examples) / result.seconds : 0.0);
  if (result.eval.has_value()) {
    const auto figure = [](const std::optional<double>& value) {
      return value.has_value() ? fmt::format("{:.5f}", *value) : std::string("undefined");
    };
    text += fmt::format("test: AUC {}  log loss {}  accuracy {}  calibration {}  ({} rows)\n",
                        figure(result.eval->auc), figure(result.eval->logloss), figure(result.eval->accuracy),
                        figure(result.eval->calibration), result.eval->rows);
  }
  text += fmt::format("model: {}  sha256 {}\n", result.checkpoint, result.model_sha256);
  return text;
}

}  // namespace capstan
