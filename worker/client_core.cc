#include "worker/client_core.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "common/planted_bugs.h"
#include "proto/control.pb.h"
#include "proto/control_frame.h"

namespace capstan {
namespace {

constexpr Duration kFirstAsk = std::chrono::milliseconds(500);
constexpr Duration kLongestAsk = std::chrono::seconds(2);

}  // namespace

ClientCore::ClientCore(MemberOptions options, Outbox& outbox, MetricsRegistry& metrics, RankDriver& driver)
    : outbox_(outbox),
      metrics_(metrics),
      driver_(driver),
      member_(std::move(options), outbox),
      asked_(metrics.Get("client_scheduler_requests")),
      refused_(metrics.Get("client_frames_refused")) {}

ClientCore::~ClientCore() = default;

void ClientCore::OnMessage(PeerId from, Message message, Time now) {
  now_ = now;
  if (member_.OnMessage(from, message, now) || ended()) return;
  const FrameHeader& header = message.header;
  if (header.job != member_.job_id() || header.dst_incarnation != member_.options().incarnation) {
    refused_.Add();
    return;
  }
  ShardId shard = 0;
  if (requests_ != nullptr && requests_->ShardOf(from, &shard)) return OnFromShard(shard, std::move(message));
  if (from != member_.scheduler()) {
    refused_.Add();
    return;
  }
  switch (header.Kind()) {
    case MessageKind::kStart: return OnStart(message);
    case MessageKind::kLeaseReply: return OnLeaseReply(message);
    case MessageKind::kLeaseDoneReply: {
      const absl::StatusOr<LeaseDone> done = ParseControl<LeaseDone>(message);
      if (!done.ok() || questions_.erase(fmt::format("lease done {}", done->lease())) == 0) return;
      if (RankMachine* machine = MachineOf(done->rank())) machine->OnLeaseDoneConfirmed(done->lease());
      return;
    }
    case MessageKind::kRankDoneReply: {
      const absl::StatusOr<RankDone> done = ParseControl<RankDone>(message);
      if (!done.ok() || questions_.erase(fmt::format("rank done {}", done->rank())) == 0) return;
      if (RankMachine* machine = MachineOf(done->rank())) machine->OnRankDoneConfirmed();
      return;
    }
    default: refused_.Add();
  }
}

void ClientCore::OnStart(const Message& message) {
  if (job_ == nullptr) {
    absl::StatusOr<Start> start = ParseControl<Start>(message);
    if (!start.ok()) return FailWith(Internal("the scheduler's START does not parse"));
    auto job = std::make_unique<EffectiveJob>(start->job());
    const absl::StatusOr<Consistency> consistency = ParseConsistency(job->config().consistency());
    const auto shards = static_cast<uint32_t>(job->shard_endpoint_size());
    const absl::StatusOr<ShardMap> map = ShardMap::Even(job->config().cluster().partitions(), shards);
    if (!consistency.ok() || !map.ok()) return FailWith(Internal("the scheduler's START contradicts itself"));
    std::vector<uint32_t> rows;
    for (const DataPlan::Split& split : job->plan().split()) rows.push_back(split.rows());
    const BatchConfig& batch = job->config().batch();
    plan_ = BatchPlan(job->config().seed(), std::move(rows),
                      std::max<uint32_t>(1, batch.micro() * batch.accumulation()));
    generation_ = message.header.generation;
    const ClusterConfig& cluster = job->config().cluster();
    requests_ = std::make_unique<RequestTable>(
        RequestTable::Settings{cluster.inflight_bytes(), std::chrono::milliseconds(cluster.request_timeout_ms())},
        outbox_, metrics_);
    for (const std::string& endpoint : job->shard_endpoint()) shard_peers_.push_back(outbox_.Connect(endpoint));
    requests_->SetShards(shard_peers_);
    job_ = std::move(job);
    const absl::Status started = driver_.OnStart(*job_, shards);
    if (!started.ok()) return FailWith(started);
    for (const RankGrant& grant : start->grant()) {
      RankSettings settings;
      settings.rank = grant.rank();
      settings.term = grant.term();
      settings.ranks = job_->config().ranks();
      settings.epochs = job_->config().epochs();
      settings.first_step = grant.first_step();
      settings.consistency = *consistency;
      settings.home_shard = map->HomeShard();
      RankHost& host = *this;
      machines_.push_back(std::make_unique<RankMachine>(settings, plan_, host));
    }
    for (const std::unique_ptr<RankMachine>& machine : machines_) machine->Start();
  }
  outbox_.Send(member_.scheduler(), MakeControl(member_.Header(MessageKind::kStarted), Started()));
}

void ClientCore::OnFromShard(ShardId shard, Message message) {
  const FrameHeader& header = message.header;
  if (header.generation != generation_ && !Planted(Bug::kGenerationIgnored)) {
    refused_.Add();
    return;
  }
  if (header.Kind() == MessageKind::kNack) return OnNack(shard, message);
  if (header.Kind() == MessageKind::kWaiting) return requests_->Parked(shard, header.request, header.part, now_);
  const auto found = request_rank_.find(header.request);
  if (found == request_rank_.end()) return;  // answered before
  RankMachine* machine = MachineOf(found->second);
  if (machine == nullptr || (header.rank_term != machine->term() && !Planted(Bug::kTermIgnored))) {
    refused_.Add();
    return;
  }
  if (header.Kind() == MessageKind::kRows) {
    absl::StatusOr<BodyView> body = ParseBody(header.sections, std::move(message.body));
    if (!body.ok()) return Violation(std::string(body.status().message()));
    const RequestTable::Outcome outcome = requests_->Answered(shard, header.request, header.part);
    if (outcome == RequestTable::Outcome::kUnknown) return;
    const bool complete = outcome == RequestTable::Outcome::kComplete;
    if (complete) request_rank_.erase(found);
    machine->OnRows(shard, header.request, header, std::move(*body), complete);
  } else if (header.Kind() == MessageKind::kAck) {
    if (requests_->Answered(shard, header.request, 0) != RequestTable::Outcome::kComplete) return;
    request_rank_.erase(found);
    machine->OnAck(shard, header.request, header);
  } else {
    refused_.Add();
  }
}

void ClientCore::OnNack(ShardId shard, const Message& message) {
  const absl::StatusOr<Nack> nack = ParseControl<Nack>(message);
  if (!nack.ok() || request_rank_.count(message.header.request) == 0) return;
  const auto code = static_cast<NackCode>(nack->code());
  if (code == NackCode::kNotReady || code == NackCode::kOverloaded) {
    return requests_->RetryLater(shard, message.header.request, now_);
  }
  Violation(nack->reason());
}

void ClientCore::OnLeaseReply(const Message& message) {
  const absl::StatusOr<LeaseReply> reply = ParseControl<LeaseReply>(message);
  if (!reply.ok()) return;
  RankMachine* machine = MachineOf(reply->rank());
  if (machine == nullptr) return;
  if (questions_.erase(fmt::format("lease {} {}", reply->rank(), reply->sequence())) == 0) return;
  Lease lease;
  lease.id = reply->lease();
  lease.epoch = reply->epoch();
  lease.split = reply->split();
  lease.first = reply->first();
  lease.count = reply->count();
  machine->OnLease(reply->sequence(), reply->answer() == LeaseReply::NO_MORE, lease);
}

void ClientCore::Tick(Time now) {
  now_ = now;
  member_.Tick(now);
  if (ended()) return;
  if (requests_ != nullptr) requests_->Tick(now);
  if (Planted(Bug::kNoResend)) return;
  for (auto& [key, question] : questions_) {
    if (now >= question.send_at) SendQuestion(question);
  }
}

void ClientCore::Prepared(Rank rank, Step step, absl::StatusOr<ShardRequests> pull) {
  if (ended()) return;
  if (!pull.ok()) return FailWith(pull.status());
  if (RankMachine* machine = MachineOf(rank)) machine->Prepared(step, std::move(*pull));
}

void ClientCore::Computed(Rank rank, Step step, absl::StatusOr<ShardRequests> push) {
  if (ended()) return;
  if (!push.ok()) return FailWith(push.status());
  if (RankMachine* machine = MachineOf(rank)) machine->Computed(step, std::move(*push));
}

// ---- what the machines ask ----------------------------------------------------------------------------------

uint64_t ClientCore::BeginRequest(ShardId shard, FrameHeader header, std::vector<RequestPart> parts) {
  header.job = member_.job_id();
  header.src_node = member_.node_id();
  header.src_incarnation = member_.options().incarnation;
  header.generation = generation_;
  header.map_epoch = job_->map_epoch();
  const Rank rank = header.rank;
  const bool by_part = header.Kind() == MessageKind::kPull;
  const uint64_t request = requests_->Begin(shard, header, std::move(parts), by_part, now_);
  request_rank_[request] = rank;
  return request;
}

void ClientCore::Ask(std::string key, MessageKind kind, std::string body) {
  Question& question = questions_[key];
  question = Question{kind, std::move(body), now_, kFirstAsk};
  SendQuestion(question);
}

void ClientCore::SendQuestion(Question& question) {
  asked_.Add();
  outbox_.Send(member_.scheduler(), MakeControlFrame(member_.Header(question.kind), question.body));
  question.send_at = now_ + question.pause;
  question.pause = std::min(question.pause * 2, kLongestAsk);
}

void ClientCore::AskLease(Rank rank, Term term, uint64_t sequence) {
  LeaseRequest request;
  request.set_rank(rank);
  request.set_term(term);
  request.set_sequence(sequence);
  Ask(fmt::format("lease {} {}", rank, sequence), MessageKind::kLeaseRequest, request.SerializeAsString());
}

void ClientCore::ReportLeaseDone(Rank rank, Term term, LeaseId lease) {
  LeaseDone done;
  done.set_rank(rank);
  done.set_term(term);
  done.set_lease(lease);
  Ask(fmt::format("lease done {}", lease), MessageKind::kLeaseDone, done.SerializeAsString());
}

void ClientCore::ReportRankDone(Rank rank, Term term) {
  RankDone done;
  done.set_rank(rank);
  done.set_term(term);
  Ask(fmt::format("rank done {}", rank), MessageKind::kRankDone, done.SerializeAsString());
}

void ClientCore::Violation(const std::string& what) { FailWith(Internal(what)); }

void ClientCore::FailWith(const absl::Status& status) {
  const bool data = absl::IsInvalidArgument(status) || absl::IsDataLoss(status) || absl::IsNotFound(status);
  member_.Fail(data ? ExitCode::kData : ExitCode::kModelError, std::string(status.message()), now_);
}

RankMachine* ClientCore::MachineOf(Rank rank) {
  for (const std::unique_ptr<RankMachine>& machine : machines_) {
    if (machine->rank() == rank) return machine.get();
  }
  return nullptr;
}

uint64_t ClientCore::batches() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<RankMachine>& machine : machines_) sum += machine->batches();
  return sum;
}

std::string ClientCore::WaitingFor(Time now) const {
  std::string text = member_.WaitingFor(now);
  if (!text.empty() || member_.state() != MemberCore::State::kJoined) return text;
  if (job_ == nullptr) return "the scheduler's START";
  if (requests_->waiting() > 0) return requests_->Oldest(now);
  return questions_.empty() ? "" : fmt::format("the scheduler's answer about {}", questions_.begin()->first);
}

}  // namespace capstan
