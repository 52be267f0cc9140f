#include "worker/rank_machine.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/core.h>

#include "common/planted_bugs.h"
#include "worker/step_plan.h"

namespace capstan {

RankMachine::RankMachine(RankSettings settings, const BatchPlan& plan, RankHost& host)
    : settings_(settings), plan_(plan), host_(host), step_(settings.first_step), done_(settings.first_step) {
  outstanding_.resize(host_.shards(), 0);
}

void RankMachine::Start() {
  if (settings_.consistency.sync()) return BeginSyncStep();
  AskLease();
  state_ = State::kAwaitingLease;
}

// ---- both modes ---------------------------------------------------------------------------------------------

FrameHeader RankMachine::Header(MessageKind kind) const {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.rank = settings_.rank;
  header.rank_term = settings_.term;
  header.step = step_;
  header.done = done_;
  header.lease = lease_.id;
  return header;
}

StepTicket RankMachine::Ticket() const {
  StepTicket ticket;
  ticket.rank = settings_.rank;
  ticket.step = step_;
  ticket.batch = *batch_;
  if (settings_.consistency.sync()) {
    const Step place = step_ - epoch_first_ + 1;
    if (place < epoch_batches_.size()) ticket.upcoming = epoch_batches_[place];
  } else if (lease_next_ < lease_.count) {
    ticket.upcoming = BatchId{lease_.epoch, lease_.split, lease_.first + lease_next_};
  } else if (next_lease_.has_value()) {
    ticket.upcoming = BatchId{next_lease_->epoch, next_lease_->split, next_lease_->first};
  }
  return ticket;
}

PushInfo RankMachine::InfoProto() const {
  PushInfo info;
  info.optimizer_step = (home_info_.has_value() ? home_info_->optimizer_clock : 0) + 1;
  if (!settings_.consistency.sync()) info.optimizer_step = done_ + 1;
  info.lr_factor_bits = std::bit_cast<uint32_t>(1.0f);
  info.epoch = epoch_;
  if (batch_.has_value()) {
    info.epoch = batch_->epoch;
    info.split = batch_->split;
    info.index = batch_->index;
  }
  return info;
}

ShardRequests RankMachine::EmptyRequests(const PushInfo* info) const {
  ShardRequests requests(host_.shards());
  for (std::vector<RequestPart>& parts : requests) {
    parts.push_back(info == nullptr ? RequestPart() : InfoPart(*info));
  }
  return requests;
}

void RankMachine::BeginPull(ShardRequests pull) {
  state_ = State::kPulling;
  replies_.assign(host_.shards(), {});
  home_info_.reset();
  outstanding_count_ = host_.shards();
  for (ShardId shard = 0; shard < host_.shards(); ++shard) {
    replies_[shard].resize(pull[shard].size());
    outstanding_[shard] = host_.BeginRequest(shard, Header(MessageKind::kPull), std::move(pull[shard]));
  }
}

void RankMachine::BeginPush(ShardRequests push, uint32_t flags) {
  state_ = State::kPushing;
  outstanding_count_ = 0;
  for (ShardId shard = 0; shard < host_.shards(); ++shard) {
    outstanding_[shard] = 0;
    const bool has_keys = push[shard].size() > 1 || push[shard][0].sections > 1;
    if (Planted(Bug::kNoEmptyPush) && !has_keys && shard != settings_.home_shard) continue;
    FrameHeader header = Header(MessageKind::kPush);
    header.flags = flags;
    ++outstanding_count_;
    outstanding_[shard] = host_.BeginRequest(shard, header, std::move(push[shard]));
  }
}

void RankMachine::SendToAll(MessageKind kind, uint32_t flags, State next) {
  state_ = next;
  outstanding_count_ = host_.shards();
  for (ShardId shard = 0; shard < host_.shards(); ++shard) {
    FrameHeader header = Header(kind);
    header.flags = flags;
    outstanding_[shard] = host_.BeginRequest(shard, header, std::vector<RequestPart>(1));
  }
}

void RankMachine::Prepared(Step step, ShardRequests pull) {
  if (state_ != State::kPreparing || step != step_) return;
  BeginPull(std::move(pull));
}

void RankMachine::Computed(Step step, ShardRequests push) {
  if (state_ != State::kComputing || step != step_) return;
  ++batches_;
  BeginPush(std::move(push), 0);
}

void RankMachine::OnRows(ShardId shard, uint64_t request, const FrameHeader& header, BodyView body,
                         bool request_complete) {
  if (state_ != State::kPulling || outstanding_[shard] != request || header.part >= replies_[shard].size()) return;
  if (settings_.consistency.sync() && header.step != step_) {
    return host_.Violation(fmt::format("shard {} answered rank {} at version {}, wanted {}", shard, settings_.rank,
                                       header.step, step_));
  }
  if (header.part == 0 && shard == settings_.home_shard) {
    const absl::StatusOr<RowsInfo> info = ReadStruct<RowsInfo>(body, SectionKind::kRowsInfo);
    if (!info.ok()) return host_.Violation(fmt::format("shard {} sent rows without their version", shard));
    home_info_ = *info;
  }
  replies_[shard][header.part] = std::move(body);
  if (!request_complete) return;
  outstanding_[shard] = 0;
  if (--outstanding_count_ == 0) OnAllRows();
}

void RankMachine::OnAck(ShardId shard, uint64_t request, const FrameHeader& header) {
  const bool repeated = Planted(Bug::kRepeatedAckCounts) && outstanding_count_ > 0 && state_ == State::kPushing;
  if (outstanding_[shard] != request && !repeated) return;
  outstanding_[shard] = 0;
  highest_clock_ = std::max<Step>(highest_clock_, header.done);
  const size_t left = --outstanding_count_;
  const bool early = Planted(Bug::kCommitBeforeLastAck) && state_ == State::kPushing && left == 1;
  if (left > 0 && !early) return;
  if (early) std::fill(outstanding_.begin(), outstanding_.end(), 0);
  switch (state_) {
    case State::kPushing: return AllAcked();
    case State::kEntering:
      if (!Planted(Bug::kJoinerClockZero)) step_ = done_ = std::max(done_, highest_clock_);
      entered_ = true;
      return NextBatchOfLease();
    case State::kLeaving:
      entered_ = false;
      state_ = State::kAwaitingLease;
      if (no_more_leases_) return ReportDoneWhenConfirmed();
      if (next_lease_.has_value()) {
        const Lease lease = *next_lease_;
        next_lease_.reset();
        BeginLease(lease);
      }
      return;
    default: return;
  }
}

void RankMachine::AllAcked() {
  done_ = ++step_;  // every shard has the push: this step is committed from here on
  if (settings_.consistency.sync()) return BeginSyncStep();
  if (Planted(Bug::kClosedBeforeApplied) && lease_next_ == lease_.count) return LeaseExhausted();
  NextBatchOfLease();
}

// ---- sync ---------------------------------------------------------------------------------------------------

void RankMachine::OnEpoch(uint32_t epoch, Step first) {
  epoch_ = epoch;
  epoch_first_ = first;
  if (epoch_of_batches_ == epoch) return;
  epoch_of_batches_ = epoch;
  epoch_batches_ = plan_.BatchesOfRank(epoch, settings_.rank, settings_.ranks);
}

void RankMachine::BeginSyncStep() {
  if (step_ == settings_.first_step) {
    // Where the epoch stands is the shards' to say.
    return PullNothing();
  }
  const Step place = step_ - epoch_first_;
  if (place >= epoch_batches_.size()) return PullNothing();
  batch_ = epoch_batches_[place];
  state_ = State::kPreparing;
  host_.driver().Prepare(Ticket());
}

void RankMachine::PullNothing() {
  batch_.reset();
  BeginPull(EmptyRequests(nullptr));
}

void RankMachine::OnAllRows() {
  const RowsInfo info = *home_info_;
  if (settings_.consistency.sync()) {
    if (info.job_done != 0) {
      // This answer acknowledges the last commit: nothing of the rank is open any more.
      state_ = State::kReportingDone;
      return host_.ReportRankDone(settings_.rank, settings_.term);
    }
    OnEpoch(info.epoch, info.epoch_first);
    const Step place = step_ - epoch_first_;
    if (!batch_.has_value()) {
      if (place >= epoch_batches_.size()) return PushEnd();
      // A new epoch began with this version: pull again, now with keys. It commits nothing new.
      batch_ = epoch_batches_[place];
      state_ = State::kPreparing;
      return host_.driver().Prepare(Ticket());
    }
  }
  state_ = State::kComputing;
  host_.driver().Compute(Ticket(), InfoProto(), std::move(replies_));
}

void RankMachine::PushEnd() {
  const PushInfo info = InfoProto();
  BeginPush(EmptyRequests(&info), kFlagEnd);
}

// ---- async and ssp ------------------------------------------------------------------------------------------

void RankMachine::AskLease() {
  if (lease_asked_ || no_more_leases_) return;
  lease_asked_ = true;
  host_.AskLease(settings_.rank, settings_.term, ++lease_sequence_);
}

void RankMachine::OnLease(uint64_t sequence, bool no_more, const Lease& lease) {
  if (!lease_asked_ || (sequence != lease_sequence_ && !Planted(Bug::kStaleLeaseReply))) return;
  lease_asked_ = false;
  if (no_more) {
    no_more_leases_ = true;
    if (state_ == State::kAwaitingLease) ReportDoneWhenConfirmed();
    return;
  }
  if (state_ == State::kAwaitingLease) return BeginLease(lease);
  next_lease_ = lease;
}

void RankMachine::BeginLease(const Lease& lease) {
  lease_ = lease;
  lease_next_ = 0;
  if (settings_.consistency.mode == ConsistencyMode::kSsp && !entered_) return Enter();
  NextBatchOfLease();
}

void RankMachine::Enter() {
  highest_clock_ = done_;
  SendToAll(MessageKind::kCommit, kFlagEnter, State::kEntering);
}

void RankMachine::Leave() { SendToAll(MessageKind::kCommit, kFlagLeave, State::kLeaving); }

void RankMachine::NextBatchOfLease() {
  if (lease_next_ >= lease_.count) return LeaseExhausted();
  batch_ = BatchId{lease_.epoch, lease_.split, lease_.first + lease_next_++};
  epoch_ = lease_.epoch;
  if (lease_next_ == lease_.count) {
    AskLease();  // ahead of need, so that the rank does not stop between leases
    if (Planted(Bug::kClosedBeforeApplied)) host_.ReportLeaseDone(settings_.rank, settings_.term, lease_.id);
  }
  state_ = State::kPreparing;
  host_.driver().Prepare(Ticket());
}

void RankMachine::LeaseExhausted() {
  if (!Planted(Bug::kClosedBeforeApplied)) {
    unconfirmed_leases_.push_back(lease_.id);
    host_.ReportLeaseDone(settings_.rank, settings_.term, lease_.id);
  }
  if (next_lease_.has_value()) {
    const Lease lease = *next_lease_;
    next_lease_.reset();
    return BeginLease(lease);
  }
  lease_ = Lease();
  if (entered_) return Leave();  // a rank without a lease must not hold the others back
  state_ = State::kAwaitingLease;
  if (no_more_leases_) return ReportDoneWhenConfirmed();
}

void RankMachine::OnLeaseDoneConfirmed(LeaseId lease) {
  unconfirmed_leases_.erase(std::remove(unconfirmed_leases_.begin(), unconfirmed_leases_.end(), lease),
                            unconfirmed_leases_.end());
  if (state_ == State::kAwaitingLease && no_more_leases_) ReportDoneWhenConfirmed();
}

void RankMachine::ReportDoneWhenConfirmed() {
  if (!unconfirmed_leases_.empty() || entered_) return;
  state_ = State::kReportingDone;
  host_.ReportRankDone(settings_.rank, settings_.term);
}

void RankMachine::OnRankDoneConfirmed() {
  if (state_ != State::kReportingDone) return;
  state_ = State::kFinished;
  host_.driver().Finished(settings_.rank);
}

std::string RankMachine::Describe() const {
  static constexpr const char* kDoing[] = {"is idle",           "enters",   "waits for a lease", "leaves",
                                           "reads step",        "pulls step", "computes step",   "pushes step",
                                           "reports its end",   "has finished"};
  return fmt::format("rank {} {} {}", settings_.rank, kDoing[static_cast<int>(state_)], step_);
}

}  // namespace capstan
