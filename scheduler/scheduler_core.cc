#include "scheduler/scheduler_core.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "common/consistency.h"
#include "proto/checkpoint.pb.h"
#include "proto/control_frame.h"
#include "proto/section.h"
#include "transport/member_core.h"

namespace capstan {
namespace {

constexpr Duration kResend = std::chrono::milliseconds(500);
constexpr Duration kEndPatience = std::chrono::seconds(3);
constexpr Duration kWordInterval = std::chrono::seconds(10);
constexpr Duration kOwnPause = std::chrono::seconds(1);   // longer between two ticks: this process was stopped
constexpr size_t kMaxName = 128;
constexpr size_t kMaxClosedListed = 50'000;               // of one LEASE_CLOSE; the rest is told later

Duration Milliseconds(uint64_t ms) { return std::chrono::milliseconds(ms); }
int64_t WholeSeconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

void FillRestore(const SchedulerOptions::From& from, Start* start) {
  if (from.folder.empty()) return;
  Restore* restore = start->mutable_restore();
  restore->set_folder(from.folder);
  restore->set_mode(from.warm ? Restore::WARM_START : Restore::RESUME);
  for (const auto& [source, target] : from.imports) {
    Restore::Import* import = restore->add_import();
    import->set_from(source);
    import->set_to(target);
  }
  restore->set_clock(from.first_step);
}

}  // namespace

SchedulerCore::SchedulerCore(SchedulerOptions options, const EffectiveJob& job, Outbox& outbox,
                             MetricsRegistry& metrics, SchedulerEvents& events)
    : options_(std::move(options)),
      job_(std::make_unique<EffectiveJob>(job)),
      outbox_(outbox),
      events_(events),
      refused_(metrics.Get("scheduler_frames_refused")),
      requests_(metrics.Get("scheduler_requests")),
      roster_(job.config().cluster().servers(), job.config().cluster().workers()),
      ranks_(job.config().ranks()) {
  job_->set_job_id(options_.job_id);
  job_->set_map_epoch(1);
  const absl::StatusOr<Consistency> consistency = ParseConsistency(job.config().consistency());
  if (consistency.ok() && !consistency->sync()) {
    std::vector<uint32_t> rows;
    for (const DataPlan::Split& split : job.plan().split()) rows.push_back(split.rows());
    const BatchConfig& batch = job.config().batch();
    leases_ = std::make_unique<LeaseTable>(
        BatchPlan(job.config().seed(), std::move(rows), std::max(1u, batch.micro() * batch.accumulation())),
        job.config().epochs(), std::max(1u, job.config().lease_batches()), options_.from.leases);
    epochs_closed_ = leases_->closed_epochs();
  }
  if (options_.checkpoints != nullptr) {
    director_ = std::make_unique<CheckpointDirector>(job.config().checkpoint(), leases_ == nullptr,
                                                     job.config().epochs(), *options_.checkpoints,
                                                     static_cast<CheckpointHost&>(*this));
  }
  progress_.steps = options_.from.version;
  progress_.examples = options_.from.examples;
  progress_.epoch = options_.from.epoch;
}

SchedulerCore::~SchedulerCore() = default;

// ---- messages -----------------------------------------------------------------------------------------------

void SchedulerCore::OnMessage(PeerId from, const Message& message, Time now) {
  StartClock(now);  // a message may come before the first tick
  const FrameHeader& header = message.header;
  if (header.Kind() == MessageKind::kJoin) return OnJoin(from, message, now);
  if (header.job != options_.job_id ||
      (header.dst_incarnation != 0 && header.dst_incarnation != options_.incarnation)) {
    refused_.Add();  // of another job, or of another scheduler of this one
    return;
  }
  switch (header.Kind()) {
    case MessageKind::kHelloReply:
    case MessageKind::kStarted:
    case MessageKind::kLeaseClosed:
    case MessageKind::kCutState:
    case MessageKind::kProgress:
    case MessageKind::kNack:
    case MessageKind::kBye: return OnFromShard(from, message, now);
    default: return OnFromMember(from, message, now);
  }
}

std::string SchedulerCore::RefusalOf(const Join& join, const FrameHeader& header, bool* retry) {
  *retry = false;
  if (join.version() != options_.version) {
    return fmt::format("it is Capstan {}, this job runs {}: use one release on all nodes",
                       CleanText(join.version(), kMaxName), options_.version);
  }
  if (join.job_id() != 0 && join.job_id() != options_.job_id) return "it was started for another job";
  if (header.src_incarnation == 0 || join.name().empty()) return "its JOIN names no process";
  if (join.name().size() > kMaxName || join.host().size() > 2 * kMaxName ||
      CleanText(join.name()) != join.name() || CleanText(join.host()) != join.host()) {
    return fmt::format("its name must be printable and have at most {} bytes: give it another --name", kMaxName);
  }
  if (join.role() != SERVER && join.role() != WORKER) return fmt::format("role {} cannot join", join.role());
  const MemberRole role = join.role() == SERVER ? MemberRole::kServer : MemberRole::kWorker;
  if (MemberInfo* twin = roster_.FindName(join.name())) {
    *retry = !twin->gone;
    return fmt::format("the name {} is taken by {}", join.name(), twin->Describe());
  }
  if (phase_ == Phase::kEnding || phase_ == Phase::kFinished) return "the job has ended";
  const char* word = role == MemberRole::kServer ? "server" : "worker";
  if (roster_.Count(role) >= roster_.Wanted(role)) {
    return fmt::format("the job has its {} {}{} already: {}", roster_.Wanted(role), word,
                       roster_.Wanted(role) == 1 ? "" : "s", roster_.Describe());
  }
  if (join.cpu_isa() != "avx2" && join.cpu_isa() != "avx512") {
    return fmt::format("its machine has cpu_isa '{}', Capstan needs avx2 or avx512", CleanText(join.cpu_isa(), kMaxName));
  }
  if (job_->config().cpu_isa() != "auto" && join.cpu_isa() == "avx2" && job_->config().cpu_isa() != "avx2") {
    return fmt::format("the job asks for cpu_isa {}, its machine has {}", job_->config().cpu_isa(), join.cpu_isa());
  }
  return role == MemberRole::kServer ? RefusalOfServer(join) : "";
}

std::string SchedulerCore::RefusalOfServer(const Join& join) {
  const uint32_t shards = job_->config().cluster().shards();
  if (join.shard_endpoint_size() != static_cast<int>(shards)) {
    return fmt::format("it has {} shards, the job wants {} per server: start it with --shards={}",
                       join.shard_endpoint_size(), shards, shards);
  }
  for (const std::string& endpoint : join.shard_endpoint()) {
    if (endpoint.size() <= 2 * kMaxName && outbox_.Connect(endpoint) != kNoPeer) continue;
    return fmt::format("its address '{}' cannot be dialed: check --bind and --advertise",
                       CleanText(endpoint, 2 * kMaxName));
  }
  return "";
}

void SchedulerCore::OnJoin(PeerId from, const Message& message, Time now) {
  const FrameHeader& header = message.header;
  const absl::StatusOr<Join> join = ParseControl<Join>(message);
  if (!join.ok()) {
    refused_.Add();
    return;
  }
  JoinReply reply;
  MemberInfo* member = roster_.FindName(join->name());
  if (member == nullptr || member->incarnation != header.src_incarnation) {
    bool retry = false;
    const std::string refusal = RefusalOf(*join, header, &retry);
    if (!refusal.empty()) {
      refused_.Add();
      reply.set_reason(refusal);
      reply.set_retry(retry);
      events_.OnPhase(fmt::format("refused {} (pid {} on {}): {}", CleanText(join->name(), kMaxName), join->pid(),
                                  CleanText(join->host(), kMaxName), refusal));
      return Send(from, MessageKind::kJoinReply, header.src_incarnation, reply);
    }
    MemberInfo info;
    info.role = join->role() == SERVER ? MemberRole::kServer : MemberRole::kWorker;
    info.name = join->name();
    info.host = join->host();
    info.pid = join->pid();
    info.incarnation = header.src_incarnation;
    info.cpu_isa = join->cpu_isa();
    for (const std::string& endpoint : join->shard_endpoint()) {
      ShardContact shard;
      shard.endpoint = endpoint;
      info.shards.push_back(shard);
    }
    member = &roster_.Add(std::move(info));
    events_.OnPhase(fmt::format("{} joined: {}", member->Describe(), roster_.Describe()));
  }
  member->peer = from;
  member->last_heard = now;
  reply.set_accepted(true);
  reply.set_node_id(member->id);
  reply.set_job_id(options_.job_id);
  if (options_.heartbeats) {
    reply.set_heartbeat_ms(job_->config().cluster().heartbeat_ms());
    reply.set_heartbeat_limit_ms(job_->config().cluster().heartbeat_limit_ms());
  }
  Send(from, MessageKind::kJoinReply, header.src_incarnation, reply);
  SendHellos();
}

void SchedulerCore::OnFromMember(PeerId from, const Message& message, Time now) {
  MemberInfo* member = roster_.Find(message.header.src_node, message.header.src_incarnation);
  if (member == nullptr) {
    refused_.Add();
    return;
  }
  member->last_heard = now;
  if (message.header.Kind() == MessageKind::kHeartbeat) return OnHeartbeat(from, message, *member);
  member->peer = from;  // its main connection, which may be a new one
  switch (message.header.Kind()) {
    case MessageKind::kLeaseRequest: return OnLeaseRequest(from, message, *member);
    case MessageKind::kLeaseDone: return OnLeaseDone(from, message, *member);
    case MessageKind::kRankDone: return OnRankDone(from, message, *member, now);
    case MessageKind::kFailed: {
      const absl::StatusOr<Failed> failed = ParseControl<Failed>(message);
      if (!failed.ok()) return refused_.Add();
      const std::string reason = InTheWordsOf(member->name, failed->reason());
      const ExitCode code = ExitCodeOf(failed->exit_code(), /*failed=*/true);
      if (code != ExitCode::kPreempted) return Fail(code, reason, now);
      // It repeats this until the job has ended: that is no second wish.
      return preempted_.empty() ? Preempt(reason, now) : void();
    }
    default: refused_.Add();
  }
}

void SchedulerCore::OnFromShard(PeerId from, const Message& message, Time now) {
  const FrameHeader& header = message.header;
  if (header.Kind() == MessageKind::kBye) return OnBye(message);
  for (MemberInfo& member : roster_.members()) {
    for (ShardContact& shard : member.shards) {
      if (shard.peer != from || member.incarnation != header.src_incarnation) continue;
      if (header.Kind() == MessageKind::kHelloReply) shard.answered = true;
      if (header.Kind() == MessageKind::kStarted && phase_ == Phase::kStartingServers) shard.started = true;
      if (header.Kind() == MessageKind::kCutState) OnCutState(shard, message, now);
      if (header.Kind() == MessageKind::kProgress) OnProgressFrame(message, now);
      if (header.Kind() == MessageKind::kLeaseClosed) OnLeaseClosed(shard, message);
      if (header.Kind() == MessageKind::kNack) OnNack(member, shard, message, now);
      return CheckPhase(now);
    }
  }
  if (header.Kind() == MessageKind::kStarted && phase_ == Phase::kStartingWorkers) {  // a worker's
    if (MemberInfo* member = roster_.Find(header.src_node, header.src_incarnation)) {
      member->started = true;
      member->last_heard = now;
      return CheckPhase(now);
    }
  }
  refused_.Add();
}

void SchedulerCore::OnLeaseClosed(const ShardContact& shard, const Message& message) {
  const absl::StatusOr<LeaseClose> closed = ParseControl<LeaseClose>(message);
  const auto at = std::find(shards_.begin(), shards_.end(), &shard);
  if (!closed.ok() || leases_ == nullptr || at == shards_.end()) return refused_.Add();
  uint64_t& seen = closings_seen_[static_cast<size_t>(at - shards_.begin())];
  seen = std::max(seen, std::min(closed->sequence(), leases_->changes()));
}

void SchedulerCore::OnNack(const MemberInfo& member, ShardContact& shard, const Message& message, Time now) {
  const absl::StatusOr<Nack> nack = ParseControl<Nack>(message);
  if (!nack.ok()) return refused_.Add();
  shard.refusal = InTheWordsOf(member.name, nack->reason());
  if (nack->code() == static_cast<uint32_t>(NackCode::kMalformed)) Fail(ExitCode::kModelError, shard.refusal, now);
  if (nack->code() == static_cast<uint32_t>(NackCode::kBadCheckpoint)) Fail(ExitCode::kCheckpoint, shard.refusal, now);
}

void SchedulerCore::OnHeartbeat(PeerId from, const Message& message, MemberInfo& member) {
  const absl::StatusOr<Heartbeat> beat = ParseControl<Heartbeat>(message);
  if (beat.ok()) member.waiting_for = CleanText(beat->waiting_for());
  Send(from, MessageKind::kHeartbeatReply, member.incarnation, HeartbeatReply());
}

// What a worker says about a rank counts only if the rank is its own.
bool SchedulerCore::Owns(const MemberInfo& member, Rank rank, Term term) const {
  return rank < ranks_.size() && ranks_[rank].owner == &member && ranks_[rank].term == term;
}

void SchedulerCore::OnLeaseRequest(PeerId from, const Message& message, const MemberInfo& member) {
  const absl::StatusOr<LeaseRequest> request = ParseControl<LeaseRequest>(message);
  if (!request.ok() || leases_ == nullptr || !Owns(member, request->rank(), request->term())) return refused_.Add();
  const std::optional<LeaseTable::Grant> answer = leases_->Request(request->rank(), request->sequence());
  if (!answer.has_value()) return refused_.Add();  // a late repeat
  requests_.Add();
  const LeaseTable::Grant& grant = *answer;
  LeaseReply reply;
  reply.set_answer(grant.no_more ? LeaseReply::NO_MORE : LeaseReply::GRANTED);
  reply.set_rank(request->rank());
  reply.set_sequence(request->sequence());
  reply.set_lease(grant.lease.id);
  reply.set_epoch(grant.lease.epoch);
  reply.set_split(grant.lease.split);
  reply.set_first(grant.lease.first);
  reply.set_count(grant.lease.count);
  Send(from, MessageKind::kLeaseReply, message.header.src_incarnation, reply);
}

void SchedulerCore::OnLeaseDone(PeerId from, const Message& message, const MemberInfo& member) {
  const absl::StatusOr<LeaseDone> done = ParseControl<LeaseDone>(message);
  if (!done.ok() || leases_ == nullptr || !Owns(member, done->rank(), done->term()) ||
      !leases_->Done(done->rank(), done->lease())) {
    return refused_.Add();
  }
  requests_.Add();
  Send(from, MessageKind::kLeaseDoneReply, message.header.src_incarnation, *done);
}

void SchedulerCore::OnRankDone(PeerId from, const Message& message, const MemberInfo& member, Time now) {
  const absl::StatusOr<RankDone> done = ParseControl<RankDone>(message);
  if (!done.ok() || !Owns(member, done->rank(), done->term())) return refused_.Add();
  requests_.Add();
  ranks_[done->rank()].done = true;
  ++state_changes_;
  last_advance_ = now;
  Send(from, MessageKind::kRankDoneReply, message.header.src_incarnation, *done);
  CheckPhase(now);
}

void SchedulerCore::OnProgressFrame(const Message& message, Time now) {
  const absl::StatusOr<Progress> progress = ParseControl<Progress>(message);
  // Frames may overtake each other; an older one tells nothing.
  if (progress.ok() && progress->version() >= progress_.steps) TakeProgress(*progress, now);
}

void SchedulerCore::TakeProgress(const Progress& progress, Time now) {
  if (progress.version() > progress_.steps) last_advance_ = now;
  progress_.steps = progress.version();
  progress_.examples = progress.examples();
  progress_.epoch = progress.epoch();
  progress_.bad_rows = progress.bad_rows();
  progress_.nonfinite_rows = progress.nonfinite_rows();
  progress_.weight_sum = progress.weight_sum();
  progress_.loss_sum = progress.loss_sum();
  progress_.waiting_for = CleanText(progress.waiting_for());
  progress_.workers_alive = roster_.Count(MemberRole::kWorker);
  events_.OnProgress(progress_);
}

void SchedulerCore::OnBye(const Message& message) {
  if (phase_ != Phase::kEnding) return;
  MemberInfo* member = roster_.Find(message.header.src_node, message.header.src_incarnation);
  if (member != nullptr) member->gone = true;
}

// ---- phases -------------------------------------------------------------------------------------------------

void SchedulerCore::Enter(Phase phase, Time now) {
  phase_ = phase;
  ++state_changes_;
  phase_start_ = now;
  next_send_ = now;
  next_word_ = now + kWordInterval;
  last_advance_ = now;
}

void SchedulerCore::StartClock(Time now) {
  if (clock_started_) return;
  clock_started_ = true;
  Enter(Phase::kJoining, now);
  next_word_ = now + Milliseconds(job_->config().cluster().join_timeout_ms()) / 3;
}

void SchedulerCore::Tick(Time now) {
  StartClock(now);
  if (phase_ == Phase::kFinished) return;
  ForgiveOwnPause(now);
  CheckMembers(now);
  CheckStall(now);
  CheckPhase(now);
  if (now >= next_word_ && phase_ != Phase::kTraining) {
    next_word_ = now + kWordInterval;
    events_.OnPhase(WaitingFor(now));
  }
  TickCheckpoints(now);
  if (now < next_send_) return;
  next_send_ = now + kResend;
  switch (phase_) {
    case Phase::kJoining: SendHellos(); break;
    case Phase::kStartingServers: SendStartsToShards(); break;
    case Phase::kStartingWorkers: SendStartsToWorkers(); break;
    case Phase::kTraining: SendLeaseClosings(); break;
    case Phase::kSaving: break;  // the director repeats its orders
    case Phase::kEnding: SendEnds(); break;
    case Phase::kFinished: break;
  }
}

// While this process was stopped (a debugger, a suspended machine) nobody could be heard: their words wait in the
// socket. The pause counts against nobody.
void SchedulerCore::ForgiveOwnPause(Time now) {
  const Duration pause = last_tick_ == Time() ? Duration::zero() : now - last_tick_;
  last_tick_ = now;
  if (pause < kOwnPause) return;
  for (MemberInfo& member : roster_.members()) member.last_heard = std::min(now, member.last_heard + pause);
  last_advance_ = std::min(now, last_advance_ + pause);
  phase_start_ = std::min(now, phase_start_ + pause);
}

void SchedulerCore::CheckPhase(Time now) {
  const auto shards_all = [this](bool ShardContact::*flag) {
    return std::all_of(shards_.begin(), shards_.end(), [flag](const ShardContact* shard) { return shard->*flag; });
  };
  switch (phase_) {
    case Phase::kJoining: {
      const std::vector<ShardContact*> all = AllShards();
      const bool reached = std::all_of(all.begin(), all.end(), [](const ShardContact* s) { return s->answered; });
      if (roster_.Complete() && reached) BeginStart(now);
      return;
    }
    case Phase::kStartingServers:
      if (!shards_all(&ShardContact::started)) return;
      Enter(Phase::kStartingWorkers, now);
      return SendStartsToWorkers();
    case Phase::kStartingWorkers:
      for (const MemberInfo* worker : roster_.OfRole(MemberRole::kWorker)) {
        if (!worker->started) return;
      }
      Enter(Phase::kTraining, now);
      if (director_ != nullptr) director_->Start({progress_.steps, progress_.examples, progress_.epoch}, now);
      events_.OnTraining();
      return;
    case Phase::kTraining: {
      const bool ranks_done = std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& r) { return r.done; });
      if (!ranks_done || (leases_ != nullptr && !leases_->AllClosed())) return;
      if (director_ == nullptr) {
        Enter(Phase::kEnding, now);
        return SendEnds();
      }
      Enter(Phase::kSaving, now);
      events_.OnPhase("training is done; storing the model");
      return director_->BeginFinal("the end of the job", now);
    }
    case Phase::kSaving:
      if (!director_->failure().empty()) {
        return Fail(ExitCode::kCheckpoint, "storing the model: " + director_->failure(), now);
      }
      if (!director_->finished()) return;
      Enter(Phase::kEnding, now);
      next_send_ = now + kResend;
      return SendEnds();
    case Phase::kEnding:
      if (AllGone() || now - phase_start_ >= kEndPatience) phase_ = Phase::kFinished;
      return;
    case Phase::kFinished: return;
  }
}

void SchedulerCore::CheckMembers(Time now) {
  const ClusterConfig& cluster = job_->config().cluster();
  if (phase_ == Phase::kEnding || phase_ == Phase::kFinished) return;
  const bool starting = phase_ == Phase::kJoining || phase_ == Phase::kStartingServers ||
                        phase_ == Phase::kStartingWorkers;
  // Reading a checkpoint may take its time; that it goes on is for the heartbeats to show.
  const bool reading = phase_ == Phase::kStartingServers && !options_.from.folder.empty();
  const uint64_t limit_ms = reading ? std::max(cluster.join_timeout_ms(), cluster.stall_timeout_ms())
                                    : cluster.join_timeout_ms();
  if (starting && now - phase_start_ >= Milliseconds(limit_ms)) {
    return Fail(ExitCode::kJoinTimeout,
                fmt::format("the job did not start within {} s: {}", limit_ms / 1000,
                            WaitingFor(now)), now);
  }
  if (!options_.heartbeats) return;
  for (const MemberInfo& member : roster_.members()) {
    const Duration silence = now - member.last_heard;
    if (silence < Milliseconds(cluster.heartbeat_limit_ms())) continue;
    const bool server = member.role == MemberRole::kServer;
    return Fail(server ? ExitCode::kServerLost : ExitCode::kWorkerLost,
                fmt::format("{} is lost: not heard for {:.1f} s (limit {:.1f} s)", member.Describe(),
                            std::chrono::duration<double>(silence).count(), cluster.heartbeat_limit_ms() / 1000.0),
                now);
  }
}

void SchedulerCore::CheckStall(Time now) {
  const uint64_t limit_ms = job_->config().cluster().stall_timeout_ms();
  if ((phase_ != Phase::kTraining && phase_ != Phase::kSaving) || now - last_advance_ < Milliseconds(limit_ms)) return;
  const char* what = phase_ == Phase::kTraining ? "no step" : "no answer while the model is stored";
  Fail(ExitCode::kStalled,
       fmt::format("{} for {} s: {}; the limit is cluster.stall_timeout_ms", what, limit_ms / 1000, WaitingFor(now)), now);
}

void SchedulerCore::Stop(ExitCode code, const std::string& reason, Time now) {
  if (phase_ == Phase::kEnding) {
    phase_ = Phase::kFinished;
    return;
  }
  Fail(code, reason, now);
}

void SchedulerCore::Fail(ExitCode code, const std::string& reason, Time now) {
  if (phase_ == Phase::kEnding || phase_ == Phase::kFinished) return;
  exit_code_ = code;
  reason_ = CleanText(reason, 2 * kMaxPeerText);
  if (director_ != nullptr) director_->Stop();
  events_.OnPhase("the job ends: " + reason_);
  Enter(Phase::kEnding, now);
  SendEnds();
  next_send_ = now + kResend;
}

std::string SchedulerCore::WaitingFor(Time now) const {
  const int64_t seconds = WholeSeconds(now - phase_start_);
  std::string text = fmt::format("waiting for {} s: {}", seconds, roster_.Describe());
  if (phase_ == Phase::kTraining) text = fmt::format("training, step {}: {}", progress_.steps, progress_.waiting_for);
  if (phase_ == Phase::kSaving) text += "; " + director_->WaitingFor();
  for (const MemberInfo& member : roster_.members()) {
    for (const ShardContact& shard : member.shards) {
      if (phase_ == Phase::kJoining && !shard.answered) {
        text += fmt::format("; {} cannot be reached at {}: check --advertise and firewalls", member.Describe(),
                            shard.endpoint);
      }
      if (phase_ == Phase::kStartingServers && !shard.started) {
        text += fmt::format("; {} builds the tables of {}", member.Describe(), shard.endpoint);
      }
      if (!shard.refusal.empty()) text += fmt::format(" ({})", shard.refusal);
    }
    if (phase_ == Phase::kStartingWorkers && member.role == MemberRole::kWorker && !member.started) {
      text += fmt::format("; {} has not confirmed START", member.Describe());
    }
    if (phase_ == Phase::kTraining && !member.waiting_for.empty()) {
      text += fmt::format("; {} waits for {}", member.name, member.waiting_for);
    }
    if (phase_ == Phase::kEnding && !member.gone) text += fmt::format("; {} has not said BYE", member.Describe());
  }
  return text;
}

// ---- orders, each repeated until it is answered -----------------------------------------------------------

void SchedulerCore::SendHellos() {
  for (MemberInfo& member : roster_.members()) {
    uint32_t number = 0;
    for (ShardContact& shard : member.shards) {
      Hello hello;
      hello.set_shard(number++);
      if (shard.peer == kNoPeer) shard.peer = outbox_.Connect(shard.endpoint);
      if (!shard.answered) Send(shard.peer, MessageKind::kHello, member.incarnation, hello);
    }
  }
}

void SchedulerCore::BeginStart(Time now) {
  std::string isa = job_->config().cpu_isa() == "auto" ? options_.cpu_isa : job_->config().cpu_isa();
  for (const MemberInfo& member : roster_.members()) {
    if (member.cpu_isa == "avx2") isa = "avx2";  // the lowest of all, so that all compute the same bits
  }
  job_->set_cpu_isa(isa);
  if (job_->ByteSizeLong() > kMaxStartBytes) {
    return Fail(ExitCode::kUsage, fmt::format("the plan of the job has {} bytes, at most {}: raise data.split_rows",
                                              job_->ByteSizeLong(), kMaxStartBytes), now);
  }
  for (MemberInfo* server : roster_.OfRole(MemberRole::kServer)) {
    for (ShardContact& shard : server->shards) {
      shards_.push_back(&shard);
      shard_incarnation_.push_back(server->incarnation);
      shard_server_.push_back(server->name);
      job_->add_shard_endpoint(shard.endpoint);
    }
  }
  const size_t count = shards_.size();
  closings_seen_.resize(count);
  const std::vector<MemberInfo*> workers = roster_.OfRole(MemberRole::kWorker);
  for (Rank rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].owner = workers[rank % workers.size()];
  Enter(Phase::kStartingServers, now);
  events_.OnPhase(fmt::format("all have joined; starting {} shards ({})", count, isa));
  SendStartsToShards();
}

void SchedulerCore::SendStartsToShards() {
  Start start;
  *start.mutable_job() = *job_;
  start.mutable_job()->clear_plan();  // shards need no data
  FillRestore(options_.from, &start);
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankGrant* grant = start.add_grant();
    grant->set_rank(rank);
    grant->set_term(ranks_[rank].term);
  }
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i]->started) continue;
    start.set_shard(i);
    start.set_node_id(roster_.FindName(shard_server_[i])->id);
    SendStart(shards_[i]->peer, shard_incarnation_[i], start);
  }
}

void SchedulerCore::SendStartsToWorkers() {
  for (const MemberInfo* worker : roster_.OfRole(MemberRole::kWorker)) {
    if (worker->started) continue;
    Start start;
    *start.mutable_job() = *job_;
    start.set_node_id(worker->id);
    for (Rank rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].owner != worker) continue;
      RankGrant* grant = start.add_grant();
      grant->set_rank(rank);
      grant->set_term(ranks_[rank].term);
      grant->set_first_step(options_.from.first_step);
    }
    SendStart(worker->peer, worker->incarnation, start);
  }
}

void SchedulerCore::SendStart(PeerId to, Incarnation incarnation, const Start& start) {
  for (Message& part : SplitControl(Header(MessageKind::kStart, incarnation), start.SerializeAsString())) {
    outbox_.Send(to, std::move(part));
  }
}

void SchedulerCore::SendLeaseClosings() {
  if (leases_ == nullptr) return;
  LeaseClose close;
  close.set_below(leases_->closed_below());
  for (const LeaseId lease : leases_->closed_above()) {
    if (close.lease_size() < static_cast<int>(kMaxClosedListed)) close.add_lease(lease);
  }
  close.set_sequence(leases_->changes());
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (closings_seen_[i] >= leases_->changes()) continue;
    Send(shards_[i]->peer, MessageKind::kLeaseClose, shard_incarnation_[i], close);
  }
}

void SchedulerCore::SendEnds() {
  End end;
  end.set_exit_code(ToInt(exit_code_));
  end.set_reason(reason_);
  for (const MemberInfo& member : roster_.members()) {
    if (member.gone) continue;
    Send(member.peer, MessageKind::kEnd, member.incarnation, end);
  }
}

bool SchedulerCore::AllGone() const {
  return std::all_of(roster_.members().begin(), roster_.members().end(),
                     [](const MemberInfo& member) { return member.gone; });
}

std::vector<ShardContact*> SchedulerCore::AllShards() {
  std::vector<ShardContact*> all;
  for (MemberInfo& member : roster_.members()) {
    for (ShardContact& shard : member.shards) all.push_back(&shard);
  }
  return all;
}

FrameHeader SchedulerCore::Header(MessageKind kind, Incarnation to) const {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = options_.job_id;
  header.src_node = kSchedulerNode;
  header.src_incarnation = options_.incarnation;
  header.dst_incarnation = to;
  header.generation = generation_;
  header.map_epoch = job_->map_epoch();
  return header;
}

}  // namespace capstan
