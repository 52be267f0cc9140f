#include "scheduler/scheduler_node.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "scheduler/checkpoint_folders.h"
#include "scheduler/disk_wait.h"
#include "scheduler/patient_store.h"
#include "scheduler/postponed_frames.h"
#include "scheduler/state_keeper.h"
#include "transport/node_loop.h"

namespace capstan {
namespace {

constexpr Duration kFarewell = std::chrono::milliseconds(500);

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

SchedulerNode::SchedulerNode(SchedulerNodeOptions options, const EffectiveJob& job, SchedulerEvents& events)
    : options_(std::move(options)), job_(std::make_unique<EffectiveJob>(job)), events_(events) {}
SchedulerNode::~SchedulerNode() = default;

void SchedulerNode::Stop(ExitCode code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  stop_code_ = code;
  stop_reason_ = reason;
  wished_ = true;
}

void SchedulerNode::Preempt(const std::string& reason) {
  std::lock_guard lock(mutex_);
  preempt_reason_ = reason;
  wished_ = true;
}

void SchedulerNode::AskCheckpoint(const std::string& reason) {
  std::lock_guard lock(mutex_);
  checkpoint_reason_ = reason;
  wished_ = true;
}

// Each wish counts once: a second one is in a hurry.
void SchedulerNode::DoWishes(SchedulerCore& core, Time now) {
  if (!wished_.exchange(false)) return;
  ExitCode code;
  std::string stop, preempt, checkpoint;
  {
    std::lock_guard lock(mutex_);
    code = stop_code_;
    stop = std::exchange(stop_reason_, "");
    preempt = std::exchange(preempt_reason_, "");
    checkpoint = std::exchange(checkpoint_reason_, "");
  }
  // Unlocked: the core tells the events, who may wish again.
  if (!checkpoint.empty()) core.AskCheckpoint(checkpoint);
  if (!preempt.empty()) core.Preempt(preempt, now);
  if (!stop.empty()) core.Stop(code, stop, now);
}

RetentionPolicy SchedulerNode::Retention() const {
  const CheckpointConfig& config = job_->config().checkpoint();
  RetentionPolicy policy;
  policy.keep_last = std::max(1u, config.keep_last());
  policy.keep_every = config.keep_every();
  policy.keep_best = config.keep_best();
  return policy;
}

SchedulerResult SchedulerNode::Run() {
  SchedulerResult result;
  const std::unique_ptr<Transport> transport = options_.make_transport();
  const absl::StatusOr<std::string> bound = transport->Bind(options_.bind_endpoint);
  if (!bound.ok()) {
    result.exit_code = ExitCode::kUsage;
    result.reason = fmt::format("scheduler: {}", std::string(bound.status().message()));
    transport->Close(Duration::zero());
    return result;
  }
  if (options_.on_bound) options_.on_bound(*bound);
  NodeOutbox outbox(*transport);
  FrameHeader own;
  own.job = options_.core.job_id;
  own.src_node = kSchedulerNode;
  own.src_incarnation = options_.core.incarnation;
  PostponedFrames postponed(*transport, outbox, clock_, own);
  DiskWait disk(options_.core.heartbeats ? [&] {
    postponed.Take();
    outbox.Flush();
  } : std::function<void()>());
  std::unique_ptr<CheckpointFolders> checkpoints;
  std::unique_ptr<PatientStore> patient;
  SchedulerOptions core_options = options_.core;
  if (!options_.checkpoint_root.empty()) {
    absl::StatusOr<std::unique_ptr<CheckpointFolders>> opened =
        CheckpointFolders::Open(*options_.file_system, options_.checkpoint_root, Retention(),
                                [this](const std::string& line) { events_.OnPhase(line); });
    if (!opened.ok()) {
      result.exit_code = ExitCode::kCheckpoint;
      result.reason = fmt::format("checkpoints: {}", std::string(opened.status().message()));
      transport->Close(Duration::zero());
      return result;
    }
    checkpoints = *std::move(opened);
    patient = std::make_unique<PatientStore>(*checkpoints, disk);
    core_options.checkpoints = patient.get();
  }
  if (options_.on_ready) options_.on_ready();
  MetricsRegistry metrics;
  SchedulerCore core(std::move(core_options), *job_, outbox, metrics, events_);
  StateKeeper keeper(*options_.file_system, options_.state_folder, disk,
                     [this](const std::string& line) { events_.OnPhase(line); });
  Time training_began{}, training_ended{};

  NodeHandlers handlers;
  const auto deliver = [&core](PeerId from, Message message, Time now) { core.OnMessage(from, message, now); };
  handlers.on_message = [&](PeerId from, Message message, Time now) {
    postponed.Deliver(deliver);
    deliver(from, std::move(message), now);
  };
  handlers.on_tick = [&](Time now) {
    DoWishes(core, now);
    core.Tick(now);
    keeper.Keep(core, now);
  };
  handlers.on_wake = [&](Time now) {
    postponed.Deliver(deliver);
    if (core.phase() == SchedulerCore::Phase::kTraining && training_began == Time()) training_began = now;
    if (core.phase() > SchedulerCore::Phase::kTraining && training_ended == Time()) training_ended = now;
  };
  handlers.done = [&] { return core.finished(); };
  RunNodeLoop(*transport, outbox, clock_, handlers);
  keeper.Keep(core, clock_.Now());
  result.frames = transport->stats();
  CloseNode(*transport, outbox, clock_, kFarewell);

  const SchedulerEvents::ProgressReport& progress = core.last_progress();
  result.exit_code = core.exit_code();
  result.reason = core.reason();
  result.steps = progress.steps;
  result.examples = progress.examples;
  result.bad_rows = progress.bad_rows;
  result.nonfinite_rows = progress.nonfinite_rows;
  result.requests = core.requests();
  result.mean_loss = progress.weight_sum > 0 ? progress.loss_sum / progress.weight_sum : 0;
  if (training_began != Time()) result.training_seconds = Seconds(training_ended - training_began);
  result.model_sha256 = result.exit_code == ExitCode::kDone ? core.model_sha256() : "";
  result.checkpoint = core.newest_checkpoint();
  return result;
}

}  // namespace capstan
