#include "tools/bench/bench_cluster.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/control_frame.h"

extern char** environ;

namespace capstan {
namespace {

constexpr JobId kBenchJob = 0xbe7c4;
constexpr Incarnation kServerIncarnation = 1;  // what ServeBenchShard uses
constexpr Incarnation kClientIncarnation = 2;
constexpr Duration kPatience = std::chrono::seconds(30);

}  // namespace

// ---- the server process -------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<BenchServer>> BenchServer::Start(const std::string& bind_endpoint) {
  int to_child[2], from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
    return Unavailable(fmt::format("making a pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
  std::string program = "/proc/self/exe", command = "pushpull-server", endpoint_flag = "--endpoint=" + bind_endpoint;
  char* arguments[] = {program.data(), command.data(), endpoint_flag.data(), nullptr};
  std::unique_ptr<BenchServer> server(new BenchServer);
  const int error = posix_spawn(&server->pid_, program.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_child[0]);
  close(from_child[1]);
  server->to_child_ = to_child[1];
  if (error != 0) {
    close(from_child[0]);
    server->pid_ = -1;
    return Unavailable(fmt::format("starting the server process: {}", std::strerror(error)));
  }
  char byte = 0;
  while (read(from_child[0], &byte, 1) == 1 && byte != '\n') server->endpoint_ += byte;
  close(from_child[0]);
  if (byte != '\n') return Unavailable("the server process ended before it listened");
  return server;
}

BenchServer::~BenchServer() {
  if (to_child_ >= 0) close(to_child_);  // the server ends when its stdin does
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
}

// ---- the client ---------------------------------------------------------------------------------------------

BenchClient::BenchClient(std::unique_ptr<Transport> transport, const std::string& server, uint32_t width)
    : transport_(std::move(transport)),
      outbox_(*transport_),
      width_(width),
      requests_(RequestTable::Settings(), outbox_, metrics_),
      plan_({PlannedTable{width, false, 0, 0}}, *ShardMap::Even(kDefaultPartitions, 1), kTargetPartBytes) {
  server_ = outbox_.Connect(server);
  requests_.SetShards({server_});
}

BenchClient::~BenchClient() { transport_->Close(Duration::zero()); }

FrameHeader BenchClient::Header(MessageKind kind) const {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = kBenchJob;
  header.src_node = 1;
  header.src_incarnation = kClientIncarnation;
  header.dst_incarnation = kServerIncarnation;
  header.generation = 1;
  header.map_epoch = 1;
  return header;
}

absl::Status BenchClient::Await(MessageKind kind) {
  const Time deadline = clock_.Now() + kPatience;
  while (clock_.Now() < deadline) {
    outbox_.Flush();
    const std::optional<Incoming> incoming = transport_->Poll(clock_.Now() + std::chrono::milliseconds(20));
    if (!incoming.has_value()) continue;
    if (incoming->message.header.Kind() == kind) return absl::OkStatus();
    if (incoming->message.header.Kind() == MessageKind::kNack) {
      const absl::StatusOr<Nack> nack = ParseControl<Nack>(incoming->message);
      return Internal(nack.ok() ? nack->reason() : "the server refused");
    }
  }
  return DeadlineExceeded(fmt::format("no {} from the server process", ToString(kind)));
}

absl::Status BenchClient::StartJob() {
  FrameHeader as_scheduler = Header(MessageKind::kHello);
  as_scheduler.src_node = kSchedulerNode;
  outbox_.Send(server_, MakeControl(as_scheduler, Hello()));
  CAPSTAN_RETURN_IF_ERROR(Await(MessageKind::kHelloReply));
  Start start;
  EffectiveJob& job = *start.mutable_job();
  job.mutable_config()->set_consistency("async");
  job.mutable_config()->set_ranks(1);
  job.mutable_config()->mutable_cluster()->set_partitions(kDefaultPartitions);
  job.set_map_epoch(1);
  job.add_shard_endpoint("bench");
  TableSpec& table = *job.add_table();
  table.set_id(0);
  table.set_name("bench");
  table.set_width(width_);
  table.mutable_optimizer()->set_name("adagrad");
  table.mutable_optimizer()->set_learning_rate(0.05);
  RankGrant* grant = start.add_grant();
  grant->set_rank(0);
  grant->set_term(1);
  as_scheduler.kind = static_cast<uint16_t>(MessageKind::kStart);
  outbox_.Send(server_, MakeControl(as_scheduler, start));
  return Await(MessageKind::kStarted);
}

void BenchClient::Plan(const std::vector<Key>& keys) { plan_.Build(std::span(&keys, 1)); }

absl::Status BenchClient::RunRequest(FrameHeader header, std::vector<RequestPart> parts, float* rows) {
  header.rank = 0;
  header.rank_term = 1;
  const Time deadline = clock_.Now() + kPatience;
  float* const into[] = {rows};
  const uint64_t id = requests_.Begin(0, header, std::move(parts), rows != nullptr, clock_.Now());
  while (requests_.waiting() > 0) {
    outbox_.Flush();
    std::optional<Incoming> incoming = transport_->Poll(clock_.Now() + std::chrono::milliseconds(20));
    if (!incoming.has_value()) {
      if (clock_.Now() >= deadline) return DeadlineExceeded(requests_.Oldest(clock_.Now()));
      continue;
    }
    const FrameHeader& answer = incoming->message.header;
    if (answer.Kind() == MessageKind::kCutState) {
      const absl::StatusOr<CutState> state = ParseControl<CutState>(incoming->message);
      cut_written_ = state.ok() && state->state() == CutState::WRITTEN;
      if (state.ok() && state->state() == CutState::FAILED) cut_failure_ = Unavailable(state->error());
      continue;
    }
    if (answer.Kind() == MessageKind::kNack) return Internal("the server refused a request");
    if (answer.request != id) continue;
    if (answer.Kind() == MessageKind::kRows) {
      CAPSTAN_ASSIGN_OR_RETURN(const BodyView body, ParseBody(answer.sections, incoming->message.body));
      CAPSTAN_RETURN_IF_ERROR(plan_.ReadReply(0, answer.part, body, into));  // while the next part is under way
    }
    requests_.Answered(0, answer.request, answer.part, answer.Kind() == MessageKind::kRows);
  }
  return absl::OkStatus();
}

absl::Status BenchClient::Pull(float* rows) {
  CAPSTAN_ASSIGN_OR_RETURN(ShardRequests requests, plan_.PullRequests());
  return RunRequest(Header(MessageKind::kPull), std::move(requests[0]), rows);
}

absl::Status BenchClient::Push(const float* gradients) {
  PushInfo info;
  info.examples = 1;
  info.weight_sum = 1;
  info.optimizer_step = 1;
  info.lr_factor_bits = 0x3f800000;  // 1.0
  const float* const from[] = {gradients};
  ShardRequests requests = plan_.PushRequests(info, from);
  FrameHeader header = Header(MessageKind::kPush);
  header.lease = ++lease_;
  return RunRequest(header, std::move(requests[0]), nullptr);
}

void BenchClient::Cut(uint64_t id, const std::string& folder) {
  cut_written_ = false;
  capstan::Cut order;
  order.set_id(id);
  order.set_now(true);
  order.set_folder(folder);
  FrameHeader as_scheduler = Header(MessageKind::kCut);
  as_scheduler.src_node = kSchedulerNode;
  outbox_.Send(server_, MakeControl(as_scheduler, order));
}

absl::StatusOr<bool> BenchClient::cut_written() const {
  if (!cut_failure_.ok()) return cut_failure_;
  return cut_written_;
}

}  // namespace capstan
