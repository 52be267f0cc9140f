#include "ps/server_node.h"

#include <atomic>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "common/scheduling.h"
#include "ps/shard_core.h"
#include "ps/slice_pacer.h"
#include "transport/endpoint.h"
#include "transport/node_loop.h"

namespace capstan {
namespace {

constexpr Duration kShardFarewell = std::chrono::milliseconds(500);
constexpr Duration kMemberFarewell = std::chrono::milliseconds(500);

}  // namespace

// One shard = one thread = one listening transport = one core.
class ServerNode::ShardThread {
 public:
  ShardThread(ShardIdentity identity, const ServerOptions& options)
      : identity_(std::move(identity)), options_(options), thread_([this] { Run(); }) {}
  ~ShardThread() {
    stop_ = true;
    thread_.join();  // the loop looks at stop_ every tick
  }

  absl::StatusOr<std::string> endpoint() { return endpoint_.get_future().get(); }
  uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  std::string waiting_for() {
    std::lock_guard lock(mutex_);
    return waiting_for_;
  }

 private:
  void Run() {
    AskForShortTurns(kShardTurn);
    const std::unique_ptr<Transport> transport = options_.make_transport();
    absl::StatusOr<std::string> bound = transport->Bind(options_.bind_endpoint(identity_.shard_in_server));
    const bool listening = bound.ok();
    endpoint_.set_value(std::move(bound));
    if (!listening) return transport->Close(Duration::zero());
    NodeOutbox outbox(*transport);
    MetricsRegistry metrics;
    const std::unique_ptr<SnapshotSink> sink =
        options_.make_sink == nullptr ? nullptr : options_.make_sink(identity_.name);
    ShardSurroundings surroundings;
    surroundings.fs = options_.file_system;
    surroundings.sink = sink.get();
    surroundings.open_source = options_.open_source;
    surroundings.alive = [this] { progress_.fetch_add(1, std::memory_order_relaxed); };
    ShardCore core(identity_, outbox, metrics, std::move(surroundings));
    NodeHandlers handlers;
    handlers.on_message = [&](PeerId from, Message message, Time now) { core.OnMessage(from, std::move(message), now); };
    handlers.on_tick = [&](Time now) {
      core.Tick(now);
      if (core.state() != nullptr) progress_.store(core.state()->lsn(), std::memory_order_relaxed);
      std::lock_guard lock(mutex_);
      waiting_for_ = core.WaitingFor();
    };
    SlicePacer pacer;
    handlers.on_idle = [&] { return RunSlice(clock_, [&](Time now) { return core.Work(now); }, &pacer); };
    handlers.done = [&] { return stop_.load(std::memory_order_relaxed); };
    RunNodeLoop(*transport, outbox, clock_, handlers);
    CloseNode(*transport, outbox, clock_, kShardFarewell);
  }

  const ShardIdentity identity_;
  const ServerOptions& options_;
  const SteadyClock clock_;
  std::promise<absl::StatusOr<std::string>> endpoint_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> progress_{0};
  std::mutex mutex_;
  std::string waiting_for_;
  std::thread thread_;  // last: everything above is ready when it starts
};

ServerNode::ServerNode(ServerOptions options) : options_(std::move(options)) {}
ServerNode::~ServerNode() { StopShards(); }

void ServerNode::StopShards() { shards_.clear(); }

absl::Status ServerNode::StartShards() {
  for (uint32_t i = 0; i < options_.shards; ++i) {
    ShardIdentity identity{options_.member.incarnation, i, fmt::format("{}/shard-{}", options_.member.name, i)};
    shards_.push_back(std::make_unique<ShardThread>(std::move(identity), options_));
  }
  for (const std::unique_ptr<ShardThread>& shard : shards_) {
    CAPSTAN_ASSIGN_OR_RETURN(std::string endpoint, shard->endpoint());
    CAPSTAN_ASSIGN_OR_RETURN(Endpoint parsed, ParseEndpoint(endpoint));
    if (parsed.kind == Endpoint::Kind::kTcp && !options_.advertise_host.empty()) parsed.name = options_.advertise_host;
    options_.member.shard_endpoints.push_back(FormatEndpoint(parsed));
  }
  return absl::OkStatus();
}

std::string ServerNode::WaitingFor() {
  for (const std::unique_ptr<ShardThread>& shard : shards_) {
    std::string text = shard->waiting_for();
    if (!text.empty()) return text;
  }
  return "";
}

ExitCode ServerNode::Run() {
  const absl::Status started = StartShards();
  if (!started.ok()) {
    StopShards();
    reason_ = fmt::format("{}: {}", options_.member.name, std::string(started.message()));
    return ExitCode::kUsage;
  }
  for (const std::string& endpoint : options_.member.shard_endpoints) {
    options_.log(fmt::format("{} listens at {}", options_.member.name, endpoint));
  }
  const std::unique_ptr<Transport> transport = options_.make_transport();
  NodeOutbox outbox(*transport);
  MemberCore member(options_.member, outbox);
  std::unique_ptr<HeartbeatThread> heartbeat;
  Time next_word = clock_.Now() + options_.member.join_timeout / 3;

  NodeHandlers handlers;
  handlers.on_message = [&](PeerId from, Message message, Time now) { member.OnMessage(from, message, now); };
  handlers.on_tick = [&](Time now) {
    member.Tick(now);
    stop_.ApplyTo(member, now);
    if (member.state() == MemberCore::State::kJoining && now >= next_word) {
      next_word = now + std::chrono::seconds(10);
      options_.log(member.WaitingFor(now));
    }
    if (member.state() != MemberCore::State::kJoined || heartbeat != nullptr ||
        member.heartbeat_interval() == Duration::zero()) {
      return;
    }
    HeartbeatOptions beat;
    beat.scheduler_endpoint = options_.member.scheduler_endpoint;
    beat.identity = member.Header(MessageKind::kHeartbeat);
    beat.interval = member.heartbeat_interval();
    beat.limit = member.heartbeat_limit();
    beat.progress = [this] {
      uint64_t sum = 0;
      for (const std::unique_ptr<ShardThread>& shard : shards_) sum += shard->progress();
      return sum;
    };
    beat.waiting_for = [this] { return WaitingFor(); };
    beat.on_lost = [this](std::string reason) { stop_.SchedulerLost(reason); };
    heartbeat = std::make_unique<HeartbeatThread>(std::move(beat), options_.make_transport);
  };
  handlers.done = [&] { return member.state() == MemberCore::State::kEnded; };
  RunNodeLoop(*transport, outbox, clock_, handlers);

  reason_ = member.reason();
  const ExitCode code = member.exit_code();
  heartbeat.reset();
  StopShards();
  CloseNode(*transport, outbox, clock_, kMemberFarewell);
  return code;
}

}  // namespace capstan
