// The part of SchedulerCore that has to do with checkpoints: between the director, the shards and the leases.
#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "proto/control_frame.h"
#include "scheduler/scheduler_core.h"
#include "storage/checkpoint_format.h"

namespace capstan {

void SchedulerCore::TickCheckpoints(Time now) {
  if (director_ == nullptr || (phase_ != Phase::kTraining && phase_ != Phase::kSaving)) return;
  if (leases_ != nullptr && leases_->closed_epochs() > epochs_closed_) {
    epochs_closed_ = leases_->closed_epochs();
    director_->OnEpochEnd(epochs_closed_);
  }
  director_->Tick({progress_.steps, progress_.examples, progress_.epoch}, now);
  if (phase_ == Phase::kSaving) {
    last_advance_ = std::max(last_advance_, director_->last_advance());
    return CheckPhase(now);
  }
  if (preempted_.empty() || (director_->asked() && !director_->asked_failed())) return;
  const std::string how = director_->asked() ? "no checkpoint could be taken"
                                             : fmt::format("checkpoint {} is there", director_->newest()->id);
  Fail(ExitCode::kPreempted, fmt::format("{}; {}", preempted_, how), now);
}

void SchedulerCore::AskCheckpoint(const std::string& reason) {
  if (director_ == nullptr || phase_ != Phase::kTraining) return;
  director_->Ask(reason);
}

void SchedulerCore::Preempt(const std::string& reason, Time now) {
  const bool storing = phase_ == Phase::kSaving;  // the best checkpoint is on its way
  if (storing && preempted_.empty()) {
    preempted_ = reason;
    return;
  }
  if (director_ == nullptr || phase_ != Phase::kTraining || !preempted_.empty()) {
    return Stop(ExitCode::kInterrupted, reason, now);
  }
  events_.OnPhase(reason + ": one more checkpoint, then the job ends");
  preempted_ = reason;
  director_->Ask(reason);
}

void SchedulerCore::OnCutState(ShardContact& shard, const Message& message, Time now) {
  const absl::StatusOr<CutState> state = ParseControl<CutState>(message);
  const auto at = std::find(shards_.begin(), shards_.end(), &shard);
  if (!state.ok() || director_ == nullptr || at == shards_.end()) return refused_.Add();
  const auto i = static_cast<size_t>(at - shards_.begin());
  if (phase_ != Phase::kTraining && phase_ != Phase::kSaving) return;
  if (phase_ == Phase::kSaving && state->has_progress() && state->progress().version() >= progress_.steps) {
    TakeProgress(state->progress(), now);  // the final totals
  }
  CutState named = *state;
  if (!named.error().empty()) named.set_error(InTheWordsOf(shard_server_[i], named.error()));
  director_->OnState(i, named, now);
}

std::string SchedulerCore::model_sha256() const { return director_ == nullptr ? "" : director_->model_sha256(); }

std::string SchedulerCore::newest_checkpoint() const {
  return director_ == nullptr || !director_->newest().has_value() ? "" : director_->newest()->folder;
}

// ---- CheckpointHost -----------------------------------------------------------------------------------------

std::string SchedulerCore::ShardName(size_t shard) const {
  return fmt::format("{} (shard {})", shard_server_[shard], shard);
}

void SchedulerCore::SendCut(size_t shard, const Cut& order) {
  Cut own = order;
  own.set_folder(fmt::format("{}/{}", order.folder(), ShardFolderName(static_cast<uint32_t>(shard))));
  if (order.has_parent_folder()) {
    own.set_parent_folder(fmt::format("{}/{}", order.parent_folder(), ShardFolderName(static_cast<uint32_t>(shard))));
  }
  Send(shards_[shard]->peer, MessageKind::kCut, shard_incarnation_[shard], own);
}

void SchedulerCore::SendAbort(size_t shard, uint64_t id) {
  CutAbort abort;
  abort.set_id(id);
  Send(shards_[shard]->peer, MessageKind::kCutAbort, shard_incarnation_[shard], abort);
}

void SchedulerCore::FillLeases(LeaseRecord* leases) const {
  if (leases_ != nullptr) leases_->Store(leases);
}

void SchedulerCore::FillHead(CheckpointManifest* head) const {
  *head->mutable_job() = *job_;
  head->mutable_job()->clear_shard_endpoint();
  for (const JobId job : options_.lineage) head->add_lineage(job);
  head->set_warm_started(options_.from.warm);
  head->set_written_by("capstan " + options_.version);
}

void SchedulerCore::OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) {
  checkpoints_.push_back(entry);
  ++state_changes_;
  events_.OnCheckpoint(entry, reason);
}

void SchedulerCore::OnCheckpointFailed(const std::string& what) { events_.OnPhase(what); }

}  // namespace capstan
