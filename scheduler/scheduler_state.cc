// What of SchedulerCore must outlive its process.
#include "common/partition_map.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler/scheduler_core.h"

namespace capstan {
namespace {

SchedulerState::Phase StoredPhase(SchedulerCore::Phase phase) {
  switch (phase) {
    case SchedulerCore::Phase::kJoining: return SchedulerState::JOINING;
    case SchedulerCore::Phase::kStartingServers: return SchedulerState::STARTING_SERVERS;
    case SchedulerCore::Phase::kStartingWorkers: return SchedulerState::STARTING_WORKERS;
    case SchedulerCore::Phase::kTraining: return SchedulerState::TRAINING;
    case SchedulerCore::Phase::kSaving: return SchedulerState::SAVING;
    case SchedulerCore::Phase::kEnding: return SchedulerState::ENDING;
    case SchedulerCore::Phase::kFinished: return SchedulerState::FINISHED;
  }
  return SchedulerState::JOINING;
}

void AddMember(const MemberInfo& member, SchedulerState* state) {
  MemberState* stored = state->add_member();
  stored->set_node_id(member.id);
  stored->set_name(member.name);
  stored->set_role(member.role == MemberRole::kServer ? SERVER : WORKER);
  stored->set_host(member.host);
  stored->set_pid(member.pid);
  stored->set_incarnation(member.incarnation);
  for (const ShardContact& shard : member.shards) stored->add_shard_endpoint(shard.endpoint);
  stored->set_lost(member.gone);
}

// The map is the even one as long as no partition moves.
void AddMap(const EffectiveJob& job, SchedulerState* state) {
  const auto shards = static_cast<uint32_t>(job.shard_endpoint_size());
  const absl::StatusOr<ShardMap> map = ShardMap::Even(job.config().cluster().partitions(), shards);
  if (!map.ok()) return;  // before all have joined there is none
  state->mutable_map()->set_epoch(job.map_epoch());
  for (uint32_t i = 0; i < shards; ++i) {
    ShardPlace* place = state->mutable_map()->add_shard();
    place->set_shard(i);
    place->set_endpoint(job.shard_endpoint(static_cast<int>(i)));
  }
  for (PartitionId p = 0; p < map->partitions(); ++p) {
    ShardPlace* place = state->mutable_map()->mutable_shard(static_cast<int>(map->OwnerOfPartition(p)));
    if (place->owned_size() == 0) place->add_owned()->set_first(p);
    place->mutable_owned(0)->set_count(place->owned(0).count() + 1);  // Even gives every shard one run
  }
}

}  // namespace

void SchedulerCore::FillState(SchedulerState* state) const {
  state->set_job_id(options_.job_id);
  state->set_starts(1);
  state->set_generation(generation_);
  state->set_phase(StoredPhase(phase_));
  for (const MemberInfo& member : roster_.members()) AddMember(member, state);
  for (Rank rank = 0; rank < ranks_.size(); ++rank) {
    RankStateRecord* stored = state->add_rank();
    stored->set_rank(rank);
    stored->set_term(ranks_[rank].term);
    if (ranks_[rank].owner != nullptr) stored->set_owner(ranks_[rank].owner->id);
    stored->set_done(ranks_[rank].done);
  }
  AddMap(*job_, state);
  if (leases_ != nullptr) leases_->Store(state->mutable_leases());
  for (const CheckpointEntry& entry : checkpoints_) {
    KnownCheckpoint* known = state->add_checkpoint();
    known->set_id(entry.id);
    known->set_folder(entry.folder);
    known->set_version(entry.version);
    known->set_examples(entry.examples);
    if (entry.metric.has_value()) known->set_metric(*entry.metric);
  }
  if (!options_.from.folder.empty()) {
    state->mutable_restore()->set_folder(options_.from.folder);
    state->mutable_restore()->set_mode(options_.from.warm ? Restore::WARM_START : Restore::RESUME);
    state->mutable_restore()->set_clock(options_.from.first_step);
  }
  for (const JobId job : options_.lineage) state->add_lineage(job);
}

}  // namespace capstan
