#include "ps/shard_core.h"

#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/planted_bugs.h"
#include "proto/control.pb.h"
#include "proto/control_frame.h"
#include "storage/model_store.h"

namespace capstan {
namespace {

constexpr Duration kWaitingWord = std::chrono::seconds(1);
constexpr Duration kProgressInterval = std::chrono::milliseconds(250);
constexpr size_t kMaxIncompletePushes = 4096;
constexpr size_t kMaxParkedPulls = 65536;

std::string RankNames(const std::vector<Rank>& ranks) { return fmt::format("rank {}", fmt::join(ranks, ", ")); }

}  // namespace

ShardCore::ShardCore(ShardIdentity identity, Outbox& outbox, MetricsRegistry& metrics, FileSystem& fs)
    : identity_(std::move(identity)),
      outbox_(outbox),
      fs_(fs),
      violations_(metrics.Get("shard_protocol_violations")),
      refused_(metrics.Get("shard_frames_refused")),
      stale_(metrics.Get("shard_stale_frames")),
      pulls_(metrics.Get("shard_pulls")),
      pushes_(metrics.Get("shard_pushes")) {}

ShardCore::~ShardCore() = default;

void ShardCore::OnMessage(PeerId from, Message message, Time now) {
  if (ended_) return;
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
    case MessageKind::kSave: return OnSave(from, message);
    case MessageKind::kEnd: return OnEnd(from, message);
    case MessageKind::kPull: return OnPull(from, std::move(message), now);
    case MessageKind::kPush: return OnPush(from, std::move(message));
    case MessageKind::kCommit: return OnCommit(from, message);
    default:
      return Refuse(from, header, NackCode::kUnsupported,
                    fmt::format("a shard takes no {}", ToString(header.Kind())));
  }
}

// ---- control ------------------------------------------------------------------------------------------------

void ShardCore::OnHello(PeerId from, const Message& message) {
  // Only who got our JOIN knows the incarnation; the first that does is our scheduler.
  if (message.header.dst_incarnation != identity_.incarnation || (job_ != 0 && message.header.job != job_)) {
    return Refuse(from, message.header, NackCode::kWrongJob, "this shard serves another scheduler", job_);
  }
  const absl::StatusOr<Hello> hello = ParseControl<Hello>(message);
  if (!hello.ok()) return Refuse(from, message.header, NackCode::kMalformed, "HELLO does not parse");
  job_ = message.header.job;
  scheduler_ = from;
  HelloReply reply;
  reply.set_shard(hello->shard());
  ReplyProto(from, MessageKind::kHelloReply, message.header, reply);
}

void ShardCore::OnStart(PeerId from, const Message& message) {
  scheduler_ = from;
  if (state_ == nullptr) {
    const absl::StatusOr<Start> start = ParseControl<Start>(message);
    if (!start.ok()) return Refuse(from, message.header, NackCode::kMalformed, "START does not parse");
    const EffectiveJob& job = start->job();
    const auto shards = static_cast<uint32_t>(job.shard_endpoint_size());
    const absl::StatusOr<ShardMap> map = ShardMap::Even(job.config().cluster().partitions(), shards);
    const absl::StatusOr<Consistency> consistency = ParseConsistency(job.config().consistency());
    if (!map.ok() || !consistency.ok() || start->shard() >= shards ||
        start->grant_size() != static_cast<int>(job.config().ranks())) {
      return Refuse(from, message.header, NackCode::kMalformed, "START contradicts itself");
    }
    absl::StatusOr<ShardTables> tables = ShardTables::Make(job, *map, start->shard());
    if (!tables.ok()) {
      return Refuse(from, message.header, NackCode::kMalformed, std::string(tables.status().message()));
    }
    ShardSettings settings;
    settings.consistency = *consistency;
    settings.ranks = job.config().ranks();
    settings.epochs = job.config().epochs();
    settings.home = map->HomeShard() == start->shard();
    settings.terms.resize(settings.ranks, 0);
    for (const RankGrant& grant : start->grant()) {
      if (grant.rank() < settings.ranks) settings.terms[grant.rank()] = grant.term();
    }
    shard_ = start->shard();
    node_ = start->node_id();
    generation_ = message.header.generation;
    map_epoch_ = job.map_epoch();
    buffer_limit_ = job.config().cluster().shard_buffer_bytes();
    state_ = std::make_unique<ShardState>(std::move(settings), std::move(*tables));
  }
  ReplyProto(from, MessageKind::kStarted, message.header, Started());
}

void ShardCore::OnLeaseClose(PeerId from, const Message& message) {
  const absl::StatusOr<LeaseClose> close = ParseControl<LeaseClose>(message);
  if (!close.ok() || state_ == nullptr) {
    return Refuse(from, message.header, NackCode::kMalformed, "LEASE_CLOSE does not parse, or came before START");
  }
  state_->Apply(OpCloseLeases{close->below(), {close->lease().begin(), close->lease().end()}});
  LeaseClose reply;
  reply.set_sequence(close->sequence());
  ReplyProto(from, MessageKind::kLeaseClosed, message.header, reply);
}

void ShardCore::OnSave(PeerId from, const Message& message) {
  const absl::StatusOr<capstan::Save> order = ParseControl<capstan::Save>(message);
  if (!order.ok() || state_ == nullptr) {
    return Refuse(from, message.header, NackCode::kMalformed, "SAVE does not parse, or came before START");
  }
  if (saved_folder_ != order->folder() || saved_reply_.empty()) {
    Saved saved;
    saved.set_shard(shard_);
    saved.set_file(PartFileName(shard_));
    if (state_->settings().home) FillProgress(saved.mutable_progress());
    std::vector<PartitionSum> sums;
    uint64_t bytes = 0;
    std::string sha256;
    const absl::Status status =
        state_->tables().Save(fs_, order->folder() + "/" + saved.file(), &sums, &bytes, &sha256);
    if (status.ok()) {
      saved.set_bytes(bytes);
      saved.set_file_sha256(sha256);
      saved.set_digests(PackSums(sums));
    } else {
      saved.set_error(fmt::format("{}: {}", identity_.name, std::string(status.message())));
    }
    saved_reply_ = saved.SerializeAsString();
    saved_folder_ = order->folder();
  }
  FrameHeader header = ReplyHeader(MessageKind::kSaved, message.header);
  for (Message& part : SplitControl(header, saved_reply_)) outbox_.Send(from, std::move(part));
}

void ShardCore::OnEnd(PeerId from, const Message& message) {
  const absl::StatusOr<End> end = ParseControl<End>(message);
  if (!end.ok()) return Refuse(from, message.header, NackCode::kMalformed, "END does not parse");
  ended_ = true;
  exit_code_ = end->exit_code();
  end_reason_ = end->reason();
  Reply(from, ReplyHeader(MessageKind::kBye, message.header), Buffer(), 0);
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
  const bool sync = state_->settings().consistency.sync();
  if (sync && header.step < state_->version()) {
    stale_.Add();  // the rank has moved on: it cannot be waiting for this
    return;
  }
  if (sync && header.step > header.done) {
    violations_.Add();
    return Refuse(from, header, NackCode::kStepConflict, "a sync pull runs ahead of its rank's commit");
  }
  if (!Commit(from, header)) return;
  const ParkedId id{header.src_node, header.src_incarnation, header.request, header.part};
  const auto found = parked_.find(id);
  if (found != parked_.end()) {
    found->second.from = from;           // a repeat; the peer may have a new connection
    found->second.next_word = now;       // and is told at once that it still waits
  } else if (parked_.size() >= kMaxParkedPulls) {
    return Refuse(from, header, NackCode::kOverloaded, "too many parked pulls");
  } else {
    parked_.emplace(id, Parked{from, header, std::move(*body), {ParkReason::kVersion}, now + kWaitingWord});
  }
  Advance();
}

void ShardCore::OnPush(PeerId from, Message message) {
  const FrameHeader& header = message.header;
  if (!Admit(from, header)) return;
  const bool sync = state_->settings().consistency.sync();
  if (sync && header.step < state_->version()) {
    // Applied already; the acknowledgement was lost.
    return Reply(from, ReplyHeader(MessageKind::kAck, header), Buffer(), 0);
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
      return Reply(from, ReplyHeader(MessageKind::kAck, header), Buffer(), 0);
    }
  }
  if (assembler_.bytes() + state_->kept_bytes() + message.body.size() > buffer_limit_ ||
      assembler_.incomplete() >= kMaxIncompletePushes) {
    return Refuse(from, header, NackCode::kOverloaded, "the shard keeps as many pushes as it may");
  }
  absl::StatusOr<BodyView> body = ParseBody(header.sections, message.body);
  absl::Status status = body.ok() ? state_->tables().CheckPushPart(*body) : body.status();
  if (status.ok()) {
    absl::StatusOr<std::optional<PushRecord>> push = assembler_.Add(header, std::move(*body));
    if (push.ok()) {
      if (push->has_value()) OnCompletePush(from, header, std::move(**push));
      return;
    }
    status = push.status();
  }
  const NackCode code = absl::IsAborted(status) ? NackCode::kWrongMap : NackCode::kMalformed;
  Refuse(from, header, code, std::string(status.message()), map_epoch_);
}

void ShardCore::OnCompletePush(PeerId from, const FrameHeader& header, PushRecord push) {
  const absl::Status status = state_->tables().CheckPush(push);
  if (!status.ok()) return Refuse(from, header, NackCode::kMalformed, std::string(status.message()));
  pushes_.Add();
  if (state_->settings().consistency.sync()) {
    if (!KeepSyncPush(from, header, std::move(push))) return;
  } else {
    if (push.lease == 0) return Refuse(from, header, NackCode::kMalformed, "a push without a lease");
    if (state_->ShouldApply(push)) {
      state_->Apply(OpApplyPush{std::move(push)});
    } else {
      stale_.Add();
    }
  }
  Reply(from, ReplyHeader(MessageKind::kAck, header), Buffer(), 0);
  Advance();
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
  while (state_->ReadyToApplyStep()) state_->Apply(OpApplyStep{});
  const bool sync = state_->settings().consistency.sync();
  for (auto it = parked_.begin(); it != parked_.end();) {
    Parked& parked = it->second;
    if (sync && parked.header.step < state_->version() && !Planted(Bug::kPullAtAnyVersion)) {
      stale_.Add();
      it = parked_.erase(it);
    } else if (state_->MayAnswer(parked.header.step)) {
      Answer(parked.from, parked.header, parked.body);
      it = parked_.erase(it);
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
  if (state_ == nullptr || ended_) return;
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
  SendProgress(now);
}

std::string ShardCore::WaitingFor() const {
  if (state_ == nullptr) return "the scheduler's START";
  if (parked_.empty()) return "";
  const std::vector<Rank> missing = state_->RanksHoldingBack(parked_.begin()->second.header.step);
  return missing.empty() ? "" : fmt::format("{} to commit step {}", RankNames(missing), state_->version());
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
  nack.set_reason(fmt::format("{}: {}", identity_.name, reason));
  nack.set_needed(needed);
  ReplyProto(to, MessageKind::kNack, request, nack);
}

}  // namespace capstan
