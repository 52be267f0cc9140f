#include "ps/shard_core.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/planted_bugs.h"
#include "proto/control.pb.h"
#include "proto/control_frame.h"

namespace capstan {
namespace {

constexpr Duration kWaitingWord = std::chrono::seconds(1);
constexpr Duration kProgressInterval = std::chrono::milliseconds(250);
constexpr Duration kLongestHold = std::chrono::seconds(10);  // of pushes, without a row handed over
constexpr Duration kPatience = std::chrono::seconds(10);     // with a writer that only gets what is left over
constexpr Duration kTrainingPause = std::chrono::milliseconds(200);  // without an update: training has paused
constexpr Duration kSinkPause = std::chrono::milliseconds(1);  // until a sink without room is asked again
constexpr size_t kMaxParkedPulls = 65536;
constexpr size_t kParkedOverhead = 512;                    // besides the body
constexpr uint64_t kMaxExamples = uint64_t{1} << 40;       // of one push: sums of them never overflow

std::string RankNames(const std::vector<Rank>& ranks) { return fmt::format("rank {}", fmt::join(ranks, ", ")); }

// What a push says about its batch: one bad number in here would spoil every row of the step.
absl::Status CheckInfo(const PushRecord& push, const ShardSettings& settings) {
  const PushInfo& info = push.info;
  const auto amount = [](double value) { return std::isfinite(value) && value >= 0; };
  if (info.examples > kMaxExamples || info.bad_rows > kMaxExamples || !amount(info.weight_sum) ||
      !std::isfinite(info.loss_sum) || !amount(std::bit_cast<float>(info.lr_factor_bits))) {
    return InvalidArgument(fmt::format(
        "a push says {} examples, {} bad rows, weight {}, loss {}, rate factor {}; they must be finite and not negative",
        info.examples, info.bad_rows, info.weight_sum, info.loss_sum, std::bit_cast<float>(info.lr_factor_bits)));
  }
  if (info.examples == 0 && (info.weight_sum != 0 || info.loss_sum != 0)) {
    return InvalidArgument("a push without an example has a weight or a loss");
  }
  if (push.end && info.examples != 0) return InvalidArgument("a push with END has examples");
  if (info.epoch >= settings.epochs || info.optimizer_step == 0) {
    return InvalidArgument(fmt::format("a push of epoch {} of {}, optimizer step {}", info.epoch, settings.epochs,
                                       info.optimizer_step));
  }
  if (!settings.consistency.sync() && (push.lease == 0 || push.end)) {
    return InvalidArgument("a push without a lease");
  }
  return absl::OkStatus();
}

// The terms of all ranks; nothing unless each is granted once.
std::optional<std::vector<Term>> TermsOf(const Start& start, uint32_t ranks) {
  if (ranks == 0 || start.grant_size() != static_cast<int>(ranks)) return std::nullopt;
  std::vector<Term> terms(ranks, 0);
  for (const RankGrant& grant : start.grant()) {
    if (grant.rank() >= ranks || grant.term() == 0 || terms[grant.rank()] != 0) return std::nullopt;
    terms[grant.rank()] = grant.term();
  }
  return terms;
}

}  // namespace

ShardCore::ShardCore(ShardIdentity identity, Outbox& outbox, MetricsRegistry& metrics, ShardSurroundings surroundings)
    : identity_(std::move(identity)),
      outbox_(outbox),
      surroundings_(std::move(surroundings)),
      violations_(metrics.Get("shard_protocol_violations")),
      refused_(metrics.Get("shard_frames_refused")),
      stale_(metrics.Get("shard_stale_frames")),
      pulls_(metrics.Get("shard_pulls")),
      pushes_(metrics.Get("shard_pushes")),
      start_(kMaxStartBytes),
      cut_(identity_.name, surroundings_.sink, *surroundings_.fs) {}

ShardCore::~ShardCore() = default;

void ShardCore::OnMessage(PeerId from, Message message, Time now) {
  const FrameHeader& header = message.header;
  if (header.dst_incarnation != 0 && header.dst_incarnation != identity_.incarnation) {
    stale_.Add();  // meant for the process that had this address before
    return;
  }
  if (header.Kind() == MessageKind::kHello) return OnHello(from, message);
  if (job_ == 0 || header.job != job_) {
    return Refuse(from, header, NackCode::kWrongJob,
                  job_ == 0 ? "this shard has not met its scheduler yet" : "this shard belongs to another job", job_);
  }
  switch (header.Kind()) {
    case MessageKind::kStart: return OnStart(from, message);
    case MessageKind::kLeaseClose: return OnLeaseClose(from, message);
    case MessageKind::kCut: return OnCut(from, message);
    case MessageKind::kCutAbort: return OnCutAbort(from, message);
    case MessageKind::kPull: return OnPull(from, std::move(message), now);
    case MessageKind::kPush: return OnPush(from, std::move(message));
    case MessageKind::kCommit: return OnCommit(from, message);
    case MessageKind::kNack: return refused_.Add();  // never answer a refusal with a refusal
    default:
      return Refuse(from, header, NackCode::kUnsupported,
                    fmt::format("a shard takes no {}", ToString(header.Kind())));
  }
}

// ---- control ------------------------------------------------------------------------------------------------

void ShardCore::OnHello(PeerId from, const Message& message) {
  // Only who got our JOIN knows the incarnation; the first that does is our scheduler.
  const FrameHeader& header = message.header;
  const bool known = job_ == 0 || (header.job == job_ && header.src_incarnation == scheduler_incarnation_);
  if (header.dst_incarnation != identity_.incarnation || header.src_node != kSchedulerNode || header.job == 0 || !known) {
    return Refuse(from, header, NackCode::kWrongJob, "this shard serves another scheduler", job_);
  }
  const absl::StatusOr<Hello> hello = ParseControl<Hello>(message);
  if (!hello.ok()) return Refuse(from, message.header, NackCode::kMalformed, "HELLO does not parse");
  job_ = header.job;
  scheduler_ = from;
  scheduler_incarnation_ = header.src_incarnation;
  HelloReply reply;
  reply.set_shard(hello->shard());
  ReplyProto(from, MessageKind::kHelloReply, message.header, reply);
}

// An order counts only from the scheduler that said HELLO; no other process may give one by mistake.
bool ShardCore::FromScheduler(PeerId from, const FrameHeader& header) {
  if (header.src_node != kSchedulerNode || header.src_incarnation != scheduler_incarnation_) {
    Refuse(from, header, NackCode::kUnsupported, fmt::format("{} is for the scheduler to send", ToString(header.Kind())));
    return false;
  }
  scheduler_ = from;  // its connection may be a new one
  return true;
}

void ShardCore::OnStart(PeerId from, const Message& message) {
  if (!FromScheduler(from, message.header)) return;
  if (state_ == nullptr) {
    const absl::StatusOr<std::optional<std::string>> whole = start_.Add(message);
    if (whole.ok() && !whole->has_value()) return;  // a part is still under way
    Start start;
    if (!whole.ok() || !start.ParseFromString(**whole)) {
      return Refuse(from, message.header, NackCode::kMalformed, "START does not parse");
    }
    const absl::Status built = Build(start, message.header.generation);
    if (!built.ok()) {
      const NackCode code = absl::IsDataLoss(built) ? NackCode::kBadCheckpoint : NackCode::kMalformed;
      return Refuse(from, message.header, code, std::string(built.message()));
    }
  }
  ReplyProto(from, MessageKind::kStarted, message.header, Started());
}

absl::Status ShardCore::Build(const Start& start, Generation generation) {
  const EffectiveJob& job = start.job();
  const JobConfig& config = job.config();
  const auto shards = static_cast<uint32_t>(job.shard_endpoint_size());
  const absl::StatusOr<ShardMap> map = ShardMap::Even(config.cluster().partitions(), shards);
  const absl::StatusOr<Consistency> consistency = ParseConsistency(config.consistency());
  std::optional<std::vector<Term>> terms = TermsOf(start, config.ranks());
  if (!map.ok() || !consistency.ok() || start.shard() >= shards || !terms.has_value() || config.epochs() == 0) {
    return InvalidArgument("START contradicts itself");
  }
  CAPSTAN_ASSIGN_OR_RETURN(ShardTables tables, ShardTables::Make(job, *map, start.shard()));
  ShardSettings settings;
  settings.consistency = *consistency;
  settings.ranks = config.ranks();
  settings.epochs = config.epochs();
  settings.first_epoch = job.first_epoch();
  settings.lease_batches = config.lease_batches();
  settings.home = map->HomeShard() == start.shard();
  settings.terms = *std::move(terms);
  settings.map = *map;
  settings.shard = start.shard();
  shard_ = start.shard();
  node_ = start.node_id();
  generation_ = generation;
  map_epoch_ = job.map_epoch();
  buffer_limit_ = config.cluster().shard_buffer_bytes();
  copy_bytes_ = config.checkpoint().copy_bytes();
  state_ = std::make_unique<ShardState>(std::move(settings), std::move(tables));
  const absl::Status loaded = start.has_restore() ? LoadCheckpoint(start) : absl::OkStatus();
  if (surroundings_.sink != nullptr) state_->mutable_tables().Track(config.checkpoint().full_every() != 1);
  if (loaded.ok()) return loaded;
  state_.reset();
  return DataLoss(fmt::format("reading the checkpoint {}: {}", start.restore().folder(), std::string(loaded.message())));
}

void ShardCore::OnLeaseClose(PeerId from, const Message& message) {
  if (!FromScheduler(from, message.header)) return;
  const absl::StatusOr<LeaseClose> close = ParseControl<LeaseClose>(message);
  if (!close.ok() || state_ == nullptr) {
    return Refuse(from, message.header, NackCode::kMalformed, "LEASE_CLOSE does not parse, or came before START");
  }
  state_->Apply(OpCloseLeases{close->below(), {close->lease().begin(), close->lease().end()}});
  LeaseClose reply;
  reply.set_sequence(close->sequence());
  ReplyProto(from, MessageKind::kLeaseClosed, message.header, reply);
}

// ---- checkpoints --------------------------------------------------------------------------------------------

absl::Status ShardCore::LoadCheckpoint(const Start& start) {
  const Restore& restore = start.restore();
  if (surroundings_.open_source == nullptr) return InvalidArgument("this server cannot read checkpoints");
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RowSource> source, surroundings_.open_source(restore.folder()));
  CAPSTAN_RETURN_IF_ERROR(state_->mutable_tables().Import(restore, *source, surroundings_.alive));
  if (restore.mode() != Restore::RESUME) return absl::OkStatus();
  return state_->Restore(source->records(), restore.clock());
}

void ShardCore::OnCut(PeerId from, const Message& message) {
  if (!FromScheduler(from, message.header)) return;
  const absl::StatusOr<Cut> order = ParseControl<Cut>(message);
  if (!order.ok() || state_ == nullptr || order->id() == 0) {
    return Refuse(from, message.header, NackCode::kMalformed, "CUT does not parse, or came before START");
  }
  cut_.OnOrder(*order, *state_, copy_bytes_);
  cut_.TakeNews();
  SendCutState(from, message.header);
}

void ShardCore::OnCutAbort(PeerId from, const Message& message) {
  if (!FromScheduler(from, message.header)) return;
  const absl::StatusOr<CutAbort> abort = ParseControl<CutAbort>(message);
  if (!abort.ok() || state_ == nullptr) {
    return Refuse(from, message.header, NackCode::kMalformed, "CUT_ABORT does not parse, or came before START");
  }
  cut_.OnAbort(abort->id());
}

void ShardCore::SendCutState(PeerId to, const FrameHeader& request) {
  CutState report = cut_.Report();
  report.set_shard(shard_);
  report.set_version(state_->version());
  report.set_epoch(state_->epoch());
  ReplyProto(to, MessageKind::kCutState, request, report);
}

Duration ShardCore::Work(Time now) {
  if (state_ == nullptr) return Duration::max();
  SetPace(now);
  const bool more = cut_.Work(*state_);
  if (cut_.TakeNews() && scheduler_ != kNoPeer) SendCutState(scheduler_, FrameHeader());
  ReleasePushes(now);
  const bool first = cut_.copies_unsent() >= ShardCut::kSlowDown || cut_.copies_filled() >= ShardCut::kHoldPushes;
  if (more && first) return Duration(-1);
  if (more) return Duration::zero();
  return cut_.busy() ? kSinkPause : Duration::max();
}

// Training goes on beside a cut: the writer has what is left of the machine. But a checkpoint is worth a small share
// once it takes long or nobody trains, and a full one before updates have to wait for it.
void ShardCore::SetPace(Time now) {
  if (!cut_.busy()) cut_began_ = now;
  if (state_->lsn() != trained_lsn_) {
    trained_lsn_ = state_->lsn();
    trained_ = now;
  }
  const bool patient = now - cut_began_ < kPatience && now - trained_ < kTrainingPause;
  const bool waits = cut_.copies_filled() >= ShardCut::kHoldPushes;
  const bool idle = patient && cut_.copies_unsent() < ShardCut::kHurry;
  cut_.SetPace(waits ? SinkPace::kNormal : idle ? SinkPace::kIdle : SinkPace::kLow);
}

// While a cut is handed over, every row is copied before its first change. Where those copies come near their limit,
// updates wait for the sweep: training slows to what the writer can take, for a while.
bool ShardCore::HoldPush(PeerId from, const Message& message) {
  if (cut_.copies_filled() < ShardCut::kHoldPushes) return false;
  const size_t bytes = message.body.size() + kParkedOverhead;
  if (held_bytes() + bytes > buffer_limit_) return false;
  held_push_bytes_ += bytes;
  held_pushes_.emplace_back(from, message);
  return true;
}

void ShardCore::ReleasePushes(Time now) {
  while (!held_pushes_.empty() && cut_.copies_filled() < ShardCut::kHoldPushes) {
    auto [from, message] = std::move(held_pushes_.front());
    held_pushes_.pop_front();
    held_push_bytes_ -= message.body.size() + kParkedOverhead;
    OnMessage(from, std::move(message), now);
  }
}

// A writer that takes nothing any more must not hold training.
void ShardCore::CheckSweep(Time now) {
  if (held_pushes_.empty() || cut_.handed_over() != sweep_bytes_) {
    sweep_moved_ = now;
    sweep_bytes_ = cut_.handed_over();
  } else if (now - sweep_moved_ >= kLongestHold) {
    cut_.GiveUp("copies of changed rows fill what they may, and the writer has taken no row for 10 s; a slow disk?");
  }
}

// ---- data ---------------------------------------------------------------------------------------------------

bool ShardCore::Admit(PeerId from, const FrameHeader& header) {
  if (state_ == nullptr) {
    Refuse(from, header, NackCode::kNotReady, "the tables are not built yet");
    return false;
  }
  if (header.generation != generation_ && !Planted(Bug::kGenerationIgnored)) {
    if (header.generation < generation_) {
      stale_.Add();  // a replayed frame of before a rewind: counted and dropped
    } else {
      Refuse(from, header, NackCode::kWrongGeneration,
             fmt::format("generation {} here, {} there", generation_, header.generation), generation_);
    }
    return false;
  }
  if (header.map_epoch != map_epoch_) {
    Refuse(from, header, NackCode::kWrongMap, fmt::format("shard map {} here, {} there", map_epoch_, header.map_epoch),
           map_epoch_);
    return false;
  }
  if (header.rank >= state_->settings().ranks) {
    Refuse(from, header, NackCode::kMalformed,
           fmt::format("rank {} of {}", header.rank, state_->settings().ranks));
    return false;
  }
  const Term term = state_->TermOf(header.rank);
  if (header.rank_term != term && !Planted(Bug::kTermIgnored)) {
    Refuse(from, header, NackCode::kWrongTerm,
           fmt::format("rank {} has term {} here, the sender has {}: another process has taken it over", header.rank,
                       term, header.rank_term), term);
    return false;
  }
  return true;
}

bool ShardCore::Commit(PeerId from, const FrameHeader& header) {
  if (header.done <= state_->DoneOf(header.rank)) return true;
  if (!state_->MayCommit(header.rank, header.done)) {
    violations_.Add();
    Refuse(from, header, NackCode::kStepConflict,
           fmt::format("rank {} commits step {}, but its push of it is not here (version {})", header.rank,
                       header.done - 1, state_->version()));
    return false;
  }
  state_->Apply(OpCommit{header.rank, header.done});
  return true;
}

void ShardCore::OnPull(PeerId from, Message message, Time now) {
  const FrameHeader& header = message.header;
  if (!Admit(from, header)) return;
  absl::StatusOr<BodyView> body = ParseBody(header.sections, message.body);
  const absl::Status status = body.ok() ? state_->tables().CheckPull(*body) : body.status();
  if (!status.ok()) {
    const NackCode code = absl::IsAborted(status) ? NackCode::kWrongMap : NackCode::kMalformed;
    return Refuse(from, header, code, std::string(status.message()), map_epoch_);
  }
  pulls_.Add();
  if (state_->settings().consistency.sync() && header.step < state_->version()) {
    stale_.Add();  // the rank has moved on: it cannot be waiting for this
    return;
  }
  if (header.step > header.done) {
    violations_.Add();
    return Refuse(from, header, NackCode::kStepConflict, "a pull runs ahead of its rank's commit");
  }
  const uint64_t before = state_->lsn();
  if (!Commit(from, header)) return;
  if (state_->lsn() != before) Advance();
  if (state_->MayAnswer(header.step)) return Answer(from, header, *body);
  Park(from, header, std::move(*body), now);
}

void ShardCore::Park(PeerId from, const FrameHeader& header, BodyView body, Time now) {
  const ParkedId id{header.rank, header.src_node, header.src_incarnation, header.request, header.part};
  const auto found = parked_.find(id);
  if (found != parked_.end()) {
    found->second.from = from;           // a repeat; the peer may have a new connection
    found->second.next_word = now;       // and is told at once that it still waits
    return;
  }
  if (!DropOlderPulls(id)) return stale_.Add();
  const size_t bytes = body.buffer().size() + body.sections().size() * sizeof(SectionView) + kParkedOverhead;
  if (parked_.size() >= kMaxParkedPulls || parked_bytes_ + bytes > buffer_limit_) {
    return Refuse(from, header, NackCode::kOverloaded, "the shard has as many pulls waiting as it may");
  }
  parked_bytes_ += bytes;
  parked_.emplace(id, Parked{from, header, std::move(body), {ParkReason::kVersion}, now + kWaitingWord, bytes});
}

// A rank waits for one pull at a time, the newest; what else is parked for it was sent by mistake or came late.
bool ShardCore::DropOlderPulls(const ParkedId& id) {
  auto it = parked_.lower_bound(ParkedId{id.rank});
  while (it != parked_.end() && it->first.rank == id.rank) {
    const ParkedId& other = it->first;
    const bool same_process = other.node == id.node && other.incarnation == id.incarnation;
    if (same_process && other.request == id.request) {
      ParkedId last = other;
      last.part = std::numeric_limits<uint16_t>::max();
      it = parked_.upper_bound(last);
      continue;
    }
    if (same_process && other.request > id.request) return false;
    stale_.Add();
    it = Unpark(it);
  }
  return true;
}

ShardCore::ParkedPulls::iterator ShardCore::Unpark(ParkedPulls::iterator parked) {
  parked_bytes_ -= parked->second.bytes;
  return parked_.erase(parked);
}

void ShardCore::Acknowledge(PeerId from, const FrameHeader& header) {
  Reply(from, ReplyHeader(MessageKind::kAck, header), Buffer(), 0);
}

void ShardCore::OnPush(PeerId from, Message message) {
  const FrameHeader& header = message.header;
  if (!Admit(from, header) || HoldPush(from, message)) return;
  const bool sync = state_->settings().consistency.sync();
  if (sync && header.step < state_->version()) {
    // Applied already; the acknowledgement was lost.
    return Acknowledge(from, header);
  }
  if (sync && header.step > state_->version()) {
    violations_.Add();
    return Refuse(from, header, NackCode::kStepConflict,
                  fmt::format("rank {} pushes step {}, but version {} was never reached", header.rank, header.step,
                              state_->version()));
  }
  if (sync) {
    if (const PushRecord* kept = state_->KeptPush(header.rank)) {
      const bool same = header.part < kept->hashes.size() && header.parts == kept->hashes.size() &&
                        kept->hashes[header.part] == header.body_xxh3;
      if (!same) {
        violations_.Add();
        return Refuse(from, header, NackCode::kStepConflict,
                      fmt::format("rank {} pushes step {} again with other bits", header.rank, header.step));
      }
      return Acknowledge(from, header);
    }
  }
  if (assembler_.bytes() + state_->kept_bytes() + message.body.size() > buffer_limit_) {
    overloaded_ = true;
    return Refuse(from, header, NackCode::kOverloaded, "the shard keeps as many pushes as it may");
  }
  absl::StatusOr<BodyView> body = ParseBody(header.sections, message.body);
  absl::Status status = body.ok() ? state_->tables().CheckPushPart(*body) : body.status();
  if (status.ok()) {
    absl::StatusOr<std::optional<PushRecord>> push = assembler_.Add(header, std::move(*body));
    if (push.ok()) {
      overloaded_ = false;
      if (push->has_value()) return OnCompletePush(from, header, **std::move(push));
      if (Planted(Bug::kPartAcknowledged)) Acknowledge(from, header);
      return;
    }
    status = push.status();
  }
  const NackCode code = absl::IsAborted(status) ? NackCode::kWrongMap : NackCode::kMalformed;
  Refuse(from, header, code, std::string(status.message()), map_epoch_);
}

void ShardCore::OnCompletePush(PeerId from, const FrameHeader& header, PushRecord push) {
  absl::Status status = CheckInfo(push, state_->settings());
  if (status.ok()) status = state_->tables().CheckPush(push);
  if (!status.ok()) return Refuse(from, header, NackCode::kMalformed, std::string(status.message()));
  pushes_.Add();
  const bool taken = state_->settings().consistency.sync() ? KeepSyncPush(from, header, std::move(push))
                                                           : ApplyPush(from, header, std::move(push));
  if (!taken) return;
  Acknowledge(from, header);
  Advance();
}

bool ShardCore::ApplyPush(PeerId from, const FrameHeader& header, PushRecord push) {
  if (!state_->ShouldApply(push)) {
    stale_.Add();
    return true;
  }
  if (!state_->HasRoomFor(push)) {
    Refuse(from, header, NackCode::kOverloaded, "more batches than the shard may remember are not closed");
    return false;
  }
  state_->Apply(OpApplyPush{std::move(push)});
  return true;
}

bool ShardCore::KeepSyncPush(PeerId from, const FrameHeader& header, PushRecord push) {
  for (Rank rank = 0; rank < state_->settings().ranks && push.info.examples > 0; ++rank) {
    const PushRecord* other = state_->KeptPush(rank);
    if (other == nullptr || other->info.examples == 0) continue;
    if (other->info.lr_factor_bits != push.info.lr_factor_bits ||
        other->info.optimizer_step != push.info.optimizer_step) {
      violations_.Add();
      Refuse(from, header, NackCode::kStepConflict,
             fmt::format("ranks {} and {} disagree about the rate or the optimizer step of step {}", rank, push.rank,
                         push.step));
      return false;
    }
  }
  state_->Apply(OpKeepPush{std::move(push)});
  return true;
}

void ShardCore::OnCommit(PeerId from, const Message& message) {
  const FrameHeader& header = message.header;
  if (!Admit(from, header) || !Commit(from, header)) return;
  if ((header.flags & kFlagEnter) != 0) state_->Apply(OpEnter{header.rank, header.request});
  if ((header.flags & kFlagLeave) != 0) state_->Apply(OpLeave{header.rank, header.request});
  FrameHeader reply = ReplyHeader(MessageKind::kAck, header);
  reply.done = state_->HighestClock();
  Reply(from, reply, Buffer(), 0);
  Advance();
}

void ShardCore::Advance() {
  while (state_->ReadyToApplyStep()) {
    state_->Apply(OpApplyStep{});
    cut_.OnVersion(*state_);  // before the next step changes a row
  }
  const bool sync = state_->settings().consistency.sync();
  for (auto it = parked_.begin(); it != parked_.end();) {
    Parked& parked = it->second;
    if (sync && parked.header.step < state_->version() && !Planted(Bug::kPullAtAnyVersion)) {
      stale_.Add();
      it = Unpark(it);
    } else if (state_->MayAnswer(parked.header.step)) {
      Answer(parked.from, parked.header, parked.body);
      it = Unpark(it);
    } else {
      ++it;
    }
  }
}

void ShardCore::Answer(PeerId to, const FrameHeader& request, const BodyView& body) {
  RowsInfo info;
  info.version = state_->version();
  info.epoch_first = state_->epoch_first();
  info.examples = state_->totals().examples;
  info.optimizer_clock = state_->optimizer_clock();
  info.epoch = state_->epoch();
  info.job_done = state_->job_done() ? 1 : 0;
  uint16_t sections = 0;
  Buffer reply = state_->tables().Answer(body, request.part == 0 ? &info : nullptr, &sections);
  FrameHeader header = ReplyHeader(MessageKind::kRows, request);
  header.part = request.part;
  header.parts = request.parts;
  header.step = state_->settings().consistency.sync() ? state_->version() : request.step;
  if (state_->job_done()) header.flags |= kFlagJobDone;
  Reply(to, header, std::move(reply), sections);
}

void ShardCore::Tick(Time now) {
  if (state_ == nullptr) return;
  for (auto& [id, parked] : parked_) {
    if (now < parked.next_word) continue;
    parked.next_word = now + kWaitingWord;
    const std::vector<Rank> missing = state_->RanksHoldingBack(parked.header.step);
    BodyBuilder builder;
    const size_t list =
        builder.Add(SectionKind::kRankList, 0, DType::kU32, static_cast<uint32_t>(missing.size()), 1);
    Buffer body = builder.Allocate();
    std::copy(missing.begin(), missing.end(), builder.Section<uint32_t>(list).begin());
    FrameHeader header = ReplyHeader(MessageKind::kWaiting, parked.header);
    header.part = parked.header.part;
    header.parts = parked.header.parts;
    Reply(parked.from, header, std::move(body), builder.sections());
  }
  CheckSweep(now);
  SendProgress(now);
}

std::string ShardCore::WaitingFor() const {
  if (state_ == nullptr) return "the scheduler's START";
  if (!held_pushes_.empty()) return "the checkpoint writer: copies of changed rows fill checkpoint.copy_bytes";
  if (overloaded_) return fmt::format("room for pushes: {} bytes (cluster.shard_buffer_bytes) are full", buffer_limit_);
  const bool sync = state_->settings().consistency.sync();
  if (state_->job_done() || (!sync && parked_.empty())) return "";
  const Step wanted = sync ? state_->version() + 1 : parked_.begin()->second.header.step;
  const std::vector<Rank> missing = state_->RanksHoldingBack(wanted);
  if (missing.empty()) return "";
  return sync ? fmt::format("{} to commit step {}", RankNames(missing), state_->version())
              : fmt::format("{} to go on: others are too far ahead", RankNames(missing));
}

size_t ShardCore::held_bytes() const {
  return assembler_.bytes() + parked_bytes_ + held_push_bytes_ + (state_ == nullptr ? 0 : state_->kept_bytes());
}

void ShardCore::FillProgress(Progress* progress) const {
  const TrainingTotals& totals = state_->totals();
  progress->set_version(state_->version());
  progress->set_epoch(state_->epoch());
  progress->set_examples(totals.examples);
  progress->set_weight_sum(totals.weight_sum);
  progress->set_loss_sum(totals.loss_sum);
  progress->set_bad_rows(totals.bad_rows);
  progress->set_nonfinite_rows(totals.nonfinite_rows);
  progress->set_waiting_for(WaitingFor());
}

void ShardCore::SendProgress(Time now) {
  if (!state_->settings().home || scheduler_ == kNoPeer || now < next_progress_) return;
  if (reported_lsn_ == state_->lsn() && now < next_progress_ + kWaitingWord) return;
  next_progress_ = now + kProgressInterval;
  reported_lsn_ = state_->lsn();
  Progress progress;
  FillProgress(&progress);
  ReplyProto(scheduler_, MessageKind::kProgress, FrameHeader(), progress);
}

// ---- replies ------------------------------------------------------------------------------------------------

FrameHeader ShardCore::ReplyHeader(MessageKind kind, const FrameHeader& request) const {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = job_;
  header.src_node = node_;
  header.src_incarnation = identity_.incarnation;
  header.dst_incarnation = request.src_incarnation;
  header.generation = generation_;
  header.map_epoch = map_epoch_;
  header.rank = request.rank;
  header.rank_term = request.rank_term;
  header.request = request.request;
  header.step = request.step;
  header.done = request.done;
  header.lease = request.lease;
  header.lsn = state_ == nullptr ? 0 : state_->lsn();
  return header;
}

void ShardCore::Reply(PeerId to, FrameHeader header, Buffer body, uint16_t sections) {
  header.sections = sections;
  Message message{header, std::move(body)};
  SealFrame(message);
  outbox_.Send(to, std::move(message));
}

template <typename Proto>
void ShardCore::ReplyProto(PeerId to, MessageKind kind, const FrameHeader& request, const Proto& proto) {
  outbox_.Send(to, MakeControl(ReplyHeader(kind, request), proto));
}

void ShardCore::Refuse(PeerId to, const FrameHeader& request, NackCode code, std::string reason, uint64_t needed) {
  refused_.Add();
  Nack nack;
  nack.set_code(static_cast<uint32_t>(code));
  nack.set_reason(CleanText(fmt::format("{}: {}", identity_.name, reason)));
  nack.set_needed(needed);
  FrameHeader header = ReplyHeader(MessageKind::kNack, request);
  header.job = request.job;  // the asker's, so that it reads why
  outbox_.Send(to, MakeControl(header, nack));
}

}  // namespace capstan
