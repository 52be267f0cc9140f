#include "worker/client_core.h"

#include <algorithm>
#include <optional>
#include <set>
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
      refused_(metrics.Get("client_frames_refused")),
      start_(kMaxStartBytes) {}

ClientCore::~ClientCore() = default;

void ClientCore::OnMessage(PeerId from, Message message, Time now) {
  now_ = now;
  if (member_.OnMessage(from, message, now) || stopped()) return;
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
  const bool first = job_ == nullptr;
  if (first) {
    const absl::StatusOr<std::optional<std::string>> whole = start_.Add(message);
    if (whole.ok() && !whole->has_value()) return;  // a part is still under way
    Start start;
    if (!whole.ok() || !start.ParseFromString(**whole)) return FailWith(Internal("the scheduler's START does not parse"));
    const absl::Status begun = Begin(start, message.header.generation);
    if (!begun.ok()) return FailWith(begun);
  }
  outbox_.Send(member_.scheduler(), MakeControl(member_.Header(MessageKind::kStarted), Started()));
  for (const std::unique_ptr<RankMachine>& machine : machines_) {
    if (first) machine->Start();
  }
}

absl::Status ClientCore::Begin(const Start& start, Generation generation) {
  job_ = std::make_unique<EffectiveJob>(start.job());
  const JobConfig& config = job_->config();
  const ClusterConfig& cluster = config.cluster();
  const absl::StatusOr<Consistency> consistency = ParseConsistency(config.consistency());
  const auto shards = static_cast<uint32_t>(job_->shard_endpoint_size());
  const absl::StatusOr<ShardMap> map = ShardMap::Even(cluster.partitions(), shards);
  const uint64_t batch_rows = uint64_t{config.batch().micro()} * config.batch().accumulation();
  std::set<Rank> ranks;
  for (const RankGrant& grant : start.grant()) ranks.insert(grant.rank());
  const bool ranks_sound = ranks.size() == static_cast<size_t>(start.grant_size()) &&
                           (ranks.empty() || *ranks.rbegin() < config.ranks());
  if (!consistency.ok() || !map.ok() || !ranks_sound || batch_rows < 1 || batch_rows > ~uint32_t{0}) {
    return Internal("the scheduler's START contradicts itself");
  }
  std::vector<uint32_t> rows;
  for (const DataPlan::Split& split : job_->plan().split()) rows.push_back(split.rows());
  plan_ = BatchPlan(config.seed(), std::move(rows), static_cast<uint32_t>(batch_rows));
  generation_ = generation;
  requests_ = std::make_unique<RequestTable>(
      RequestTable::Settings{cluster.inflight_bytes(), std::chrono::milliseconds(cluster.request_timeout_ms())},
      outbox_, metrics_);
  for (const std::string& endpoint : job_->shard_endpoint()) {
    shard_peers_.push_back(outbox_.Connect(endpoint));
    if (shard_peers_.back() == kNoPeer) return Internal(fmt::format("a shard's address '{}' cannot be dialed", endpoint));
  }
  requests_->SetShards(shard_peers_);
  CAPSTAN_RETURN_IF_ERROR(driver_.OnStart(*job_, shards));
  for (const RankGrant& grant : start.grant()) {
    RankSettings settings;
    settings.rank = grant.rank();
    settings.term = grant.term();
    settings.ranks = config.ranks();
    settings.epochs = config.epochs();
    settings.first_step = grant.first_step();
    settings.consistency = *consistency;
    settings.home_shard = map->HomeShard();
    RankHost& host = *this;
    machines_.push_back(std::make_unique<RankMachine>(settings, plan_, host));
  }
  return absl::OkStatus();
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
    const RequestTable::Outcome outcome = requests_->Answered(shard, header.request, header.part, true);
    if (outcome == RequestTable::Outcome::kUnknown) return;
    const bool complete = outcome == RequestTable::Outcome::kComplete;
    if (complete) request_rank_.erase(found);
    machine->OnRows(shard, header.request, header, std::move(*body), complete);
  } else if (header.Kind() == MessageKind::kAck) {
    const bool first = requests_->Answered(shard, header.request, 0, false) == RequestTable::Outcome::kComplete;
    if (!first && !Planted(Bug::kRepeatedAckCounts)) return;
    if (!Planted(Bug::kRepeatedAckCounts)) request_rank_.erase(found);
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
  const std::string reason = CleanText(nack->reason());
  // The process at that address is not the one that joined: the server was lost and something else came up there.
  if (code == NackCode::kWrongJob) return member_.Fail(ExitCode::kServerLost, reason, now_);
  Violation(reason);
}

void ClientCore::OnLeaseReply(const Message& message) {
  const absl::StatusOr<LeaseReply> reply = ParseControl<LeaseReply>(message);
  if (!reply.ok()) return;
  RankMachine* machine = MachineOf(reply->rank());
  if (machine == nullptr) return;
  const bool asked = questions_.erase(fmt::format("lease {} {}", reply->rank(), reply->sequence())) > 0;
  if (!asked && !Planted(Bug::kStaleLeaseReply)) return;
  Lease lease;
  lease.id = reply->lease();
  lease.epoch = reply->epoch();
  lease.split = reply->split();
  lease.first = reply->first();
  lease.count = reply->count();
  const bool no_more = reply->answer() == LeaseReply::NO_MORE;
  if (!no_more && !IsSound(lease)) return Violation(fmt::format("the scheduler granted lease {}, which is not in the plan", lease.id));
  machine->OnLease(reply->sequence(), no_more, lease);
}

bool ClientCore::IsSound(const Lease& lease) const {
  return lease.id != 0 && lease.epoch < job_->config().epochs() && lease.split < plan_.splits() && lease.count > 0 &&
         uint64_t{lease.first} + lease.count <= plan_.BatchesOfSplit(lease.split);
}

void ClientCore::Tick(Time now) {
  now_ = now;
  member_.Tick(now);
  if (stopped()) return;
  if (requests_ != nullptr) requests_->Tick(now);
  if (Planted(Bug::kNoResend)) return;
  for (auto& [key, question] : questions_) {
    if (now >= question.send_at) SendQuestion(question);
  }
}

void ClientCore::Prepared(Rank rank, Step step, absl::StatusOr<ShardRequests> pull) {
  if (stopped()) return;
  if (!pull.ok()) return FailWith(pull.status());
  if (RankMachine* machine = MachineOf(rank)) machine->Prepared(step, std::move(*pull));
}

void ClientCore::Computed(Rank rank, Step step, absl::StatusOr<ShardRequests> push) {
  if (stopped()) return;
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
  if (requests_ == nullptr) return "the scheduler's START";
  if (requests_->waiting() > 0) return requests_->Oldest(now);
  if (!questions_.empty()) return fmt::format("the scheduler's answer about {}", questions_.begin()->first);
  for (const std::unique_ptr<RankMachine>& machine : machines_) {
    if (!machine->finished()) return fmt::format("its own {}", machine->Describe());
  }
  return "the scheduler's END";
}

}  // namespace capstan
