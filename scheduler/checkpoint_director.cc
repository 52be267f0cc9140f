#include "scheduler/checkpoint_director.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

constexpr Duration kOrderResend = std::chrono::milliseconds(500);
constexpr Duration kRateWindow = std::chrono::milliseconds(200);
constexpr double kLeadSeconds = 0.25;              // between an order and its step
constexpr uint64_t kLeastLead = 2;                 // steps
constexpr uint64_t kMostLead = uint64_t{1} << 20;
constexpr Duration kRetry = std::chrono::seconds(5);  // after a failure, doubled up to
constexpr Duration kFinalRetry = std::chrono::seconds(2);
constexpr uint32_t kFinalTries = 3;
constexpr Duration kLongestRetry = std::chrono::minutes(5);

}  // namespace

CheckpointDirector::CheckpointDirector(const CheckpointConfig& config, bool sync, uint32_t epochs,
                                       CheckpointStore& store, CheckpointHost& host)
    : config_(std::make_unique<CheckpointConfig>(config)),
      sync_(sync),
      epochs_(epochs),
      store_(store),
      host_(host),
      order_(std::make_unique<Cut>()),
      leases_(std::make_unique<LeaseRecord>()) {}

CheckpointDirector::~CheckpointDirector() = default;

void CheckpointDirector::Start(const Now& at, Time now) {
  at_ = at;
  started_ = true;
  if (at.examples == 0) losses_at_newest_ = Losses();  // else what came before is not known
  rate_since_ = seen_ = now;
  rate_version_ = at.version;
  next_by_time_ = now + std::chrono::seconds(config_->seconds());
  next_by_examples_ = at.examples + config_->examples();
  next_by_steps_ = at.version + config_->steps();
}

void CheckpointDirector::NoteRate(const Now& at, Time now) {
  // What a shard said about an order that came too late may be newer than the last report.
  if (at.version > at_.version) seen_ = now;
  at_.version = std::max(at_.version, at.version);
  at_.epoch = std::max(at_.epoch, at.epoch);
  at_.examples = std::max(at_.examples, at.examples);
  if (now - rate_since_ < kRateWindow || at.version <= rate_version_) return;
  steps_per_second_ = static_cast<double>(at.version - rate_version_) /
                      std::chrono::duration<double>(now - rate_since_).count();
  rate_since_ = now;
  rate_version_ = at.version;
}

uint64_t CheckpointDirector::SoonestStep(Time now) const {
  const double since = std::min(1.0, std::chrono::duration<double>(now - seen_).count());
  const auto by_rate = static_cast<uint64_t>(steps_per_second_ * (since + kLeadSeconds));
  return at_.version + std::min(kMostLead, std::max(kLeastLead, by_rate) * lead_factor_);
}

uint64_t CheckpointDirector::NextStepOfPolicy(Time now) const {
  const uint64_t n = config_->steps();
  return n == 0 ? 0 : (SoonestStep(now) + n - 1) / n * n;
}

// ---- the course of one --------------------------------------------------------------------------------------

void CheckpointDirector::Order(const std::string& reason, Time now) {
  const absl::StatusOr<uint64_t> id = store_.Begin();
  if (!id.ok()) return GiveUp(std::string(id.status().message()), now);
  id_ = *id;
  reason_ = reason;
  order_->set_id(id_);
  order_->set_root(store_.root());
  order_->set_token(store_.token());
  order_->set_folder(store_.WorkingFolder(id_));
  const bool full = final_ || parent_ == 0 || since_full_ + 1 >= std::max(1u, config_->full_every());
  if (!full) {
    order_->set_parent(parent_);
    order_->set_parent_folder(store_.Folder(parent_));
  }
  order_->set_model_sha256(final_);
  parts_.assign(host_.shards(), Part());
  leases_->Clear();
  host_.FillLeases(leases_.get());
  last_advance_ = now;
  next_send_ = now + kOrderResend;
  SendOrders();
}

void CheckpointDirector::SendOrders() {
  for (size_t shard = 0; shard < parts_.size(); ++shard) {
    if (!parts_[shard].written) host_.SendCut(shard, *order_);
  }
}

void CheckpointDirector::OnState(size_t shard, const CutState& state, Time now) {
  if (id_ == 0 || state.id() != id_ || shard >= parts_.size()) return;
  Part& part = parts_[shard];
  switch (state.state()) {
    case CutState::WAITING: return;
    case CutState::WRITING:
      // That it still writes is no progress: its disk may hang.
      if (!part.writing || state.bytes() > part.bytes) last_advance_ = now;
      part.bytes = std::max<uint64_t>(part.bytes, state.bytes());
      part.writing = true;
      return;
    case CutState::TOO_LATE:
      NoteRate({state.version(), at_.examples, state.epoch()}, now);
      lead_factor_ = std::min<uint64_t>(lead_factor_ * 2, kMostLead);
      return GiveUp("", now);  // ordinary: another step is named at once
    case CutState::FAILED: return GiveUp(state.error(), now);
    case CutState::WRITTEN: break;
    default: return;
  }
  if (part.written) return;
  part.written = true;
  part.full = state.full();
  part.version = state.cut_version();
  if (state.has_progress()) losses_at_cut_ = {state.progress().loss_sum(), state.progress().weight_sum()};
  part.part.record_bytes = state.record_bytes();
  part.part.record_xxh3 = state.record_xxh3();
  last_advance_ = now;
  if (std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.written; })) CommitNow(now);
}

void CheckpointDirector::CommitNow(Time now) {
  for (const Part& part : parts_) {
    if (!sync_ || part.version == parts_[0].version || Planted(Bug::kCutNow)) continue;
    return GiveUp(fmt::format("the shards' parts are of steps {} and {}", parts_[0].version, part.version), now);
  }
  CheckpointManifest head;
  host_.FillHead(&head);
  const bool full = std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.full; });
  head.set_id(id_);
  head.set_kind(full ? CheckpointManifest::FULL : CheckpointManifest::INCREMENTAL);
  if (!full) head.set_parent(parent_);
  if (!sync_) *head.mutable_leases() = *leases_;
  // A standing order names two moments; this is the one that came first.
  if (order_->has_step() && order_->has_epoch() && parts_[0].version != order_->step()) reason_ = "the end of an epoch";
  head.set_reason(reason_);
  SetMetric(&head);
  std::vector<ShardPart> parts;
  for (const Part& part : parts_) parts.push_back(part.part);
  const absl::StatusOr<CheckpointEntry> entry = store_.Commit(id_, head, parts);
  if (!entry.ok()) return GiveUp(std::string(entry.status().message()), now);
  since_full_ = full ? 0 : since_full_ + 1;
  parent_ = id_;
  newest_ = *entry;
  losses_at_newest_ = losses_at_cut_;
  id_ = 0;
  failures_ = 0;
  not_before_ = Time();
  lead_factor_ = std::max<uint64_t>(1, lead_factor_ / 2);
  next_by_time_ = now + std::chrono::seconds(config_->seconds());
  next_by_examples_ = at_.examples + config_->examples();
  next_by_steps_ = at_.version + config_->steps();
  if (asked_ordered_) asked_.clear();
  due_.clear();
  asked_ordered_ = false;
  finished_ = final_;
  model_sha256_ = entry->model_sha256;
  host_.OnCheckpoint(*entry, reason_);
}

// Progressive validation (Blum, Kalai, Langford 1999): every example is scored before it is learnt, so the mean loss
// since the checkpoint before judges this one without a set of its own. Higher is better.
void CheckpointDirector::SetMetric(CheckpointManifest* head) {
  if (!losses_at_newest_.has_value()) return;
  const double weight = losses_at_cut_.weight - losses_at_newest_->weight;
  if (weight > 0) head->set_metric(-(losses_at_cut_.loss - losses_at_newest_->loss) / weight);
}

// An empty `why` is no failure: the moment was missed, or another one is wanted.
void CheckpointDirector::GiveUp(const std::string& why, Time now) {
  if (id_ != 0) {
    for (size_t shard = 0; shard < parts_.size(); ++shard) host_.SendAbort(shard, id_);
    store_.Abandon(id_);
  }
  id_ = 0;
  const bool for_asked = std::exchange(asked_ordered_, false);
  if (why.empty()) {
    if (final_ && !stopped_) Order(reason_, now);
    return;
  }
  due_.clear();
  const Duration pause = std::min<Duration>(kLongestRetry, kRetry * (1u << std::min(failures_, 6u)));
  ++failures_;
  asked_failed_ = for_asked;
  // One that was asked for meanwhile has not been tried yet.
  not_before_ = asked_.empty() || for_asked ? now + pause : Time();
  if (final_) {
    // The model of the whole run: worth some more tries, then the run has failed.
    not_before_ = now + kFinalRetry;
    if (failures_ >= kFinalTries) failure_ = why;
    if (failure_.empty()) host_.OnCheckpointFailed(fmt::format("the model is not stored yet: {}; trying again", why));
    return;
  }
  host_.OnCheckpointFailed(fmt::format(
      "no checkpoint ({}): {}; training goes on, the next try is in {} s or later", reason_, why,
      std::chrono::duration_cast<std::chrono::seconds>(pause).count()));
}

// ---- when ---------------------------------------------------------------------------------------------------

void CheckpointDirector::Ask(const std::string& reason) {
  asked_ = reason;
  asked_failed_ = false;
  not_before_ = Time();  // who asks may have little time: a failure before counts for nothing
}

void CheckpointDirector::OnEpochEnd(uint32_t epoch) {
  if (config_->epoch_end() && epoch < epochs_) epoch_ended_ = true;
}

void CheckpointDirector::Tick(const Now& at, Time now) {
  if (!started_ || stopped_) return;
  NoteRate(at, now);
  if (id_ != 0 && now >= next_send_) {
    next_send_ = now + kOrderResend;
    SendOrders();
  }
  const bool taken = std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.writing || p.written; });
  const Duration limit = std::chrono::milliseconds(config_->timeout_ms());
  if (id_ != 0 && (taken || final_) && limit > Duration::zero() && now - last_advance_ >= limit) {
    return GiveUp(fmt::format("{} for {} s", WaitingFor(), config_->timeout_ms() / 1000), now);
  }
  if (now < not_before_) return;
  if (final_) {
    if (id_ == 0 && !finished_ && failure_.empty()) Order(reason_, now);
    return;
  }
  if (id_ == 0) return Regular(now);
  if (!taken && !asked_ordered_) Regular(now);  // a standing order may be replaced
}

void CheckpointDirector::Regular(Time now) {
  std::string reason;
  if (!asked_.empty()) {
    reason = asked_;
  } else if (!due_.empty()) {
    // One that is ordered is waited for, whatever is due meanwhile: replacing it would put it off again and again.
    if (id_ != 0) return;
    reason = due_;
  } else if (config_->seconds() > 0 && now >= next_by_time_) {
    reason = fmt::format("{} s", config_->seconds());
  } else if (config_->examples() > 0 && at_.examples >= next_by_examples_) {
    reason = fmt::format("{} examples", config_->examples());
  } else if (!sync_ && config_->steps() > 0 && at_.version >= next_by_steps_) {
    reason = fmt::format("{} steps", config_->steps());
  } else if (!sync_ && epoch_ended_) {
    reason = "the end of an epoch";
  }
  if (!reason.empty()) return Replace(reason, now);
  if (sync_ && id_ == 0) PlanNext(now);
}

void CheckpointDirector::SetEpoch() {
  if (config_->epoch_end() && at_.epoch + 1 < epochs_) order_->set_epoch(at_.epoch + 1);
}

// Something is wanted now: as soon as all shards can be told.
void CheckpointDirector::Replace(const std::string& reason, Time now) {
  if (id_ != 0) GiveUp("", now);
  order_->Clear();
  if (sync_) {
    order_->set_step(SoonestStep(now));
    SetEpoch();
  } else {
    order_->set_now(true);
    epoch_ended_ = false;
  }
  asked_ordered_ = !asked_.empty();
  Order(reason, now);
  if (id_ == 0) return;
  due_ = reason;
  next_by_time_ = now + std::chrono::seconds(config_->seconds());
  next_by_examples_ = at_.examples + config_->examples();
  next_by_steps_ = at_.version + config_->steps();
}

// The next moments of the policy that are known beforehand, ordered well ahead of time: no shard misses them.
bool CheckpointDirector::PlanNext(Time now) {
  const uint64_t step = NextStepOfPolicy(now);
  const bool epoch = config_->epoch_end() && at_.epoch + 1 < epochs_;
  if (step == 0 && !epoch) return false;
  order_->Clear();
  if (step > 0) order_->set_step(step);
  SetEpoch();
  Order(step == 0 ? "the end of an epoch" : fmt::format("{} steps", config_->steps()), now);
  return true;
}

void CheckpointDirector::BeginFinal(const std::string& reason, Time now) {
  if (id_ != 0) GiveUp("", now);
  final_ = true;
  started_ = true;
  failures_ = 0;
  reason_ = reason;
  order_->Clear();
  order_->set_now(true);
  Order(reason, now);
}

void CheckpointDirector::Stop() {
  stopped_ = true;
  if (id_ == 0) return;
  for (size_t shard = 0; shard < parts_.size(); ++shard) host_.SendAbort(shard, id_);
  store_.Abandon(id_);
  id_ = 0;
}

std::string CheckpointDirector::WaitingFor() const {
  if (id_ == 0) return "";
  std::string missing;
  for (size_t shard = 0; shard < parts_.size(); ++shard) {
    if (parts_[shard].written) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", host_.ShardName(shard));
  }
  return fmt::format("checkpoint {} has no part of {}", id_, missing);
}

}  // namespace capstan
