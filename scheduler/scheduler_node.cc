#include "scheduler/scheduler_node.h"

#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "storage/model_store.h"
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
  stop_ = true;
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
  MetricsRegistry metrics;
  SchedulerCore core(options_.core, *job_, outbox, metrics, events_);
  Time training_began{}, training_ended{};

  NodeHandlers handlers;
  handlers.on_message = [&](PeerId from, Message message, Time now) { core.OnMessage(from, message, now); };
  handlers.on_tick = [&](Time now) {
    if (stop_.exchange(false)) {  // each request counts once: a second one is in a hurry
      ExitCode code;
      std::string reason;
      {
        std::lock_guard lock(mutex_);
        code = stop_code_;
        reason = stop_reason_;
      }
      core.Stop(code, reason, now);  // unlocked: it tells the events, who may call Stop again
    }
    core.Tick(now);
  };
  handlers.on_wake = [&](Time now) {
    if (core.phase() == SchedulerCore::Phase::kTraining && training_began == Time()) training_began = now;
    if (core.phase() > SchedulerCore::Phase::kTraining && training_ended == Time()) training_ended = now;
  };
  handlers.done = [&] { return core.finished(); };
  RunNodeLoop(*transport, outbox, clock_, handlers);
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
  if (result.exit_code == ExitCode::kDone) {
    const absl::Status written = WriteModel(core, &result);
    if (!written.ok()) {
      result.exit_code = ExitCode::kCheckpoint;
      result.reason = fmt::format("saving the model: {}", std::string(written.message()));
    }
  }
  return result;
}

absl::Status SchedulerNode::WriteModel(const SchedulerCore& core, SchedulerResult* result) {
  std::vector<std::string> names;
  for (const TableSpec& table : core.job().table()) names.push_back(table.name());
  result->model_sha256 = ModelSha256(names, core.saved_sums());
  ModelManifest manifest;
  manifest.set_format(1);
  *manifest.mutable_job() = core.job();
  manifest.mutable_job()->clear_plan();
  manifest.mutable_job()->clear_shard_endpoint();
  for (const SavedPart& saved : core.saved_parts()) {
    ModelManifest::Part* part = manifest.add_part();
    part->set_file(saved.file);
    part->set_bytes(saved.bytes);
    part->set_sha256(saved.sha256);
  }
  uint64_t rows = 0;
  for (const PartitionSum& sum : core.saved_sums()) rows += sum.rows;
  manifest.set_rows(rows);
  manifest.set_model_sha256(result->model_sha256);
  manifest.set_steps(result->steps);
  manifest.set_examples(result->examples);
  return WriteManifest(*options_.file_system, options_.core.model_folder, manifest);
}

}  // namespace capstan
