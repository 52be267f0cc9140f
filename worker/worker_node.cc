#include "worker/worker_node.h"

#include <utility>

#include <fmt/core.h>

#include "transport/node_loop.h"
#include "worker/client_core.h"
#include "worker/trainer_pool.h"

namespace capstan {
namespace {

constexpr Duration kFarewell = std::chrono::milliseconds(500);
constexpr Duration kWordInterval = std::chrono::seconds(10);

}  // namespace

void WorkerNode::Stop(ExitCode code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (stop_) return;
  stop_code_ = code;
  stop_reason_ = reason;
  stop_ = true;
}

ExitCode WorkerNode::Run() {
  const std::unique_ptr<Transport> transport = options_.make_transport();
  NodeOutbox outbox(*transport);
  MetricsRegistry metrics;
  TrainerPool pool(*options_.file_system, [&transport] { transport->Wake(); });
  ClientCore core(options_.member, outbox, metrics, pool);
  std::unique_ptr<HeartbeatThread> heartbeat;
  Time next_word = clock_.Now() + options_.member.join_timeout / 3;

  NodeHandlers handlers;
  handlers.on_message = [&](PeerId from, Message message, Time now) { core.OnMessage(from, std::move(message), now); };
  handlers.on_wake = [&](Time) { pool.Deliver(core); };
  handlers.on_tick = [&](Time now) {
    core.Tick(now);
    progress_.store(core.batches(), std::memory_order_relaxed);
    std::string waiting = core.WaitingFor(now);
    std::lock_guard lock(mutex_);
    if (stop_) core.member().Stop(stop_code_, stop_reason_);
    if (core.member().state() == MemberCore::State::kJoining && now >= next_word) {
      next_word = now + kWordInterval;
      options_.log(waiting);
    }
    waiting_for_ = std::move(waiting);
    if (core.member().state() != MemberCore::State::kJoined || heartbeat != nullptr ||
        core.member().heartbeat_interval() == Duration::zero()) {
      return;
    }
    HeartbeatOptions beat;
    beat.scheduler_endpoint = options_.member.scheduler_endpoint;
    beat.identity = core.member().Header(MessageKind::kHeartbeat);
    beat.interval = core.member().heartbeat_interval();
    beat.limit = core.member().heartbeat_limit();
    beat.progress = [this] { return progress_.load(std::memory_order_relaxed); };
    beat.waiting_for = [this] {
      std::lock_guard inner(mutex_);
      return waiting_for_;
    };
    beat.on_lost = [this](std::string reason) {
      Stop(ExitCode::kSchedulerLost, fmt::format("{}: {}", options_.member.name, reason));
    };
    heartbeat = std::make_unique<HeartbeatThread>(std::move(beat), options_.make_transport);
  };
  handlers.done = [&] { return core.ended(); };
  RunNodeLoop(*transport, outbox, clock_, handlers);

  reason_ = core.member().reason();
  const ExitCode code = core.member().exit_code();
  heartbeat.reset();
  pool.Stop();
  CloseNode(*transport, outbox, clock_, kFarewell);
  return code;
}

}  // namespace capstan
