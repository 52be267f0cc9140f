// From what a checkpoint says to how a job begins from it: which tables go where, the clock, which leases are done.
// Pure: no file, no message.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "scheduler/scheduler_core.h"

namespace capstan {

class CheckpointManifest;
class EffectiveJob;
class ShardRecord;

// Continues the job of the checkpoint: same schema, tables, optimizers and seed; rates, numbers of servers, shards,
// workers and epochs may differ. `job`: complete, with plan, first_epoch and first_lease.
// kInvalidArgument names what differs, with both values; kDataLoss: the records contradict each other.
absl::StatusOr<SchedulerOptions::From> PlanResume(const std::string& folder, const CheckpointManifest& manifest,
                                                  std::span<const ShardRecord* const> records, const EffectiveJob& job);

// Takes the weights of the tables that `wanted` names and both have. kInvalidArgument: a width or kind differs, or no
// table is left.
absl::StatusOr<SchedulerOptions::From> PlanWarmStart(const std::string& folder, const CheckpointManifest& manifest,
                                                     const EffectiveJob& job,
                                                     const std::function<bool(const std::string& table)>& wanted);

// The job ids of the checkpoint's line, its own last.
std::vector<JobId> LineageOf(const CheckpointManifest& manifest);

// What the checkpoint's leases have done: a lease is closed where every partition has it closed or has every batch of
// it. `plan`, `batches_per_lease` and the origin's first_epoch and first_lease are those that the checkpoint's job had.
LeaseTable::Origin ClosedLeases(std::span<const ShardRecord* const> records, const BatchPlan& plan, uint32_t epochs,
                                uint32_t batches_per_lease, uint32_t first_epoch, LeaseId first_lease);

// How many epochs have a batch that any partition applied, the job's first_epoch and all before it included.
uint32_t EpochsTouched(std::span<const ShardRecord* const> records, const BatchPlan& plan, const EffectiveJob& job);

}  // namespace capstan
