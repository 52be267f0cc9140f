#include "scheduler/restore_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "common/consistency.h"
#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

const char* NameOf(TableSpec::Kind kind) { return kind == TableSpec::DENSE ? "dense" : "sparse"; }

absl::Status Differs(const std::string& what, const std::string& there, const std::string& here) {
  return InvalidArgument(fmt::format("{} is {} in the checkpoint and {} in this job", what, there, here));
}

absl::Status CheckShape(const TableSpec& there, const TableSpec& here) {
  const std::string table = fmt::format("table {}: ", here.name());
  if (there.kind() != here.kind()) return Differs(table + "the kind", NameOf(there.kind()), NameOf(here.kind()));
  if (there.width() != here.width()) {
    return Differs(table + "the width", fmt::format("{}", there.width()), fmt::format("{}", here.width()));
  }
  if (there.elements() != here.elements()) {
    return Differs(table + "the number of elements", fmt::format("{}", there.elements()),
                   fmt::format("{}", here.elements()));
  }
  return absl::OkStatus();
}

std::map<std::string, const TableSpec*> TablesByName(const EffectiveJob& job) {
  std::map<std::string, const TableSpec*> tables;
  for (const TableSpec& table : job.table()) tables[table.name()] = &table;
  return tables;
}

// The features in order, as keys and inputs depend on them.
std::string SchemaOf(const JobConfig& config) {
  std::string text;
  for (const FeatureConfig& feature : config.data().feature()) {
    text += fmt::format("{}({}, kind {}, normalize {}, missing {}, salt '{}'); ", feature.name(), feature.column(),
                        FeatureConfig::Kind_Name(feature.kind()), FeatureConfig::Normalize_Name(feature.normalize()),
                        FeatureConfig::Missing_Name(feature.missing()), feature.salt());
  }
  return text;
}

absl::Status CheckSchema(const JobConfig& there, const JobConfig& here) {
  for (int i = 0; i < std::max(there.data().feature_size(), here.data().feature_size()); ++i) {
    const FeatureConfig none;
    const FeatureConfig& a = i < there.data().feature_size() ? there.data().feature(i) : none;
    const FeatureConfig& b = i < here.data().feature_size() ? here.data().feature(i) : none;
    if (a.SerializeAsString() == b.SerializeAsString()) continue;
    JobConfig only_a, only_b;
    *only_a.mutable_data()->add_feature() = a;
    *only_b.mutable_data()->add_feature() = b;
    return Differs(fmt::format("feature {} of the schema", i), SchemaOf(only_a), SchemaOf(only_b));
  }
  return absl::OkStatus();
}

absl::Status CheckSameJob(const EffectiveJob& there, const EffectiveJob& here) {
  const JobConfig& a = there.config();
  const JobConfig& b = here.config();
  if (a.seed() != b.seed()) {
    return Differs("the seed", fmt::format("{}", a.seed()), fmt::format("{}", b.seed()));
  }
  if (a.cluster().partitions() != b.cluster().partitions()) {
    return Differs("cluster.partitions", fmt::format("{}", a.cluster().partitions()),
                   fmt::format("{}", b.cluster().partitions()));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckSchema(a, b));
  const std::map<std::string, const TableSpec*> old_tables = TablesByName(there);
  const std::map<std::string, const TableSpec*> new_tables = TablesByName(here);
  for (const auto& [name, table] : new_tables) {
    const auto found = old_tables.find(name);
    if (found == old_tables.end()) return InvalidArgument(fmt::format("the checkpoint has no table {}", name));
    CAPSTAN_RETURN_IF_ERROR(CheckShape(*found->second, *table));
    if (found->second->optimizer().name() != table->optimizer().name()) {
      return Differs(fmt::format("table {}: the optimizer", name), found->second->optimizer().name(),
                     table->optimizer().name());
    }
  }
  for (const auto& [name, table] : old_tables) {
    if (new_tables.count(name) == 0) return InvalidArgument(fmt::format("this job has no table {}", name));
  }
  return absl::OkStatus();
}

// Whether the partitions of one ledger have the whole lease.
bool HasAll(const LedgerRecord& ledger, const Lease& lease, const std::set<uint64_t>& closed,
            const std::map<uint64_t, std::set<uint32_t>>& applied) {
  if (lease.id < ledger.closed_below() || closed.count(lease.id) > 0) return true;
  const auto found = applied.find(lease.id);
  if (found == applied.end()) return false;
  for (uint32_t i = 0; i < lease.count; ++i) {
    if (found->second.count(lease.first + i) == 0) return false;
  }
  return true;
}

struct LedgerView {
  const LedgerRecord* record;
  std::set<uint64_t> closed;
  std::map<uint64_t, std::set<uint32_t>> applied;
};

std::vector<LedgerView> ViewsOf(std::span<const ShardRecord* const> records, LeaseId* bound) {
  std::vector<LedgerView> views;
  for (const ShardRecord* record : records) {
    for (const LedgerRecord& ledger : record->ledger()) {
      LedgerView view;
      view.record = &ledger;
      view.closed.insert(ledger.closed().begin(), ledger.closed().end());
      for (const AppliedLease& applied : ledger.applied()) {
        view.applied[applied.lease()].insert(applied.index().begin(), applied.index().end());
      }
      // No lease at or above the bound was begun by all.
      LeaseId highest = ledger.closed_below();
      if (!view.closed.empty()) highest = std::max<LeaseId>(highest, *view.closed.rbegin() + 1);
      if (!view.applied.empty()) highest = std::max<LeaseId>(highest, view.applied.rbegin()->first + 1);
      *bound = std::max(*bound, highest);
      views.push_back(std::move(view));
    }
  }
  return views;
}

}  // namespace

LeaseTable::Origin ClosedLeases(std::span<const ShardRecord* const> records, const BatchPlan& plan, uint32_t epochs,
                                uint32_t batches_per_lease, uint32_t first_epoch, LeaseId first_lease) {
  LeaseTable::Origin origin;
  origin.first_epoch = first_epoch;
  origin.first_lease = std::max<LeaseId>(1, first_lease);
  origin.closed_below = origin.first_lease;
  LeaseId bound = 0;
  const std::vector<LedgerView> views = ViewsOf(records, &bound);
  origin.touched_below = bound;
  LeaseId next = origin.first_lease;
  for (uint32_t epoch = first_epoch; epoch < epochs && next < bound; ++epoch) {
    for (const Lease& lease : plan.Leases(epoch, batches_per_lease, next)) {
      const auto has = [&lease](const LedgerView& view) {
        return HasAll(*view.record, lease, view.closed, view.applied);
      };
      const bool closed = Planted(Bug::kLeasesFromAfterTheCut) ? std::any_of(views.begin(), views.end(), has)
                                                               : std::all_of(views.begin(), views.end(), has);
      if (closed) origin.closed.insert(lease.id);
      next = lease.id + 1;
    }
  }
  return origin;
}

uint32_t EpochsTouched(std::span<const ShardRecord* const> records, const BatchPlan& plan, const EffectiveJob& job) {
  LeaseId bound = 0;
  ViewsOf(records, &bound);
  LeaseId next = std::max<LeaseId>(1, job.first_lease());
  uint32_t epoch = job.first_epoch();
  for (; epoch < job.config().epochs() && next < bound; ++epoch) {
    const std::vector<Lease> leases = plan.Leases(epoch, std::max(1u, job.config().lease_batches()), next);
    if (!leases.empty()) next = leases.back().id + 1;
  }
  return epoch;
}

absl::StatusOr<SchedulerOptions::From> PlanResume(const std::string& folder, const CheckpointManifest& manifest,
                                                  std::span<const ShardRecord* const> records,
                                                  const EffectiveJob& job) {
  CAPSTAN_RETURN_IF_ERROR(While(fmt::format("resuming from {}", folder), CheckSameJob(manifest.job(), job)));
  CAPSTAN_ASSIGN_OR_RETURN(const Consistency consistency, ParseConsistency(job.config().consistency()));
  SchedulerOptions::From from;
  from.folder = folder;
  from.version = manifest.version();
  from.examples = manifest.examples();
  from.epoch = manifest.epoch();
  const std::map<std::string, const TableSpec*> there = TablesByName(manifest.job());
  for (const TableSpec& table : job.table()) {
    from.imports.emplace_back(static_cast<TableId>(there.at(table.name())->id()), static_cast<TableId>(table.id()));
  }
  if (consistency.sync()) {
    from.first_step = manifest.version();
    return from;
  }
  // Every rank goes on at the highest clock of any: which value it is does not matter to staleness, as long as all
  // have the same, and Adam's step must not begin again.
  for (const ShardRecord* record : records) from.first_step = std::max<Step>(from.first_step, record->highest_clock());
  std::vector<uint32_t> rows;
  for (const DataPlan::Split& split : job.plan().split()) rows.push_back(split.rows());
  const BatchConfig& batch = job.config().batch();
  const BatchPlan plan(job.config().seed(), std::move(rows), std::max(1u, batch.micro() * batch.accumulation()));
  from.leases = ClosedLeases(records, plan, job.config().epochs(), std::max(1u, job.config().lease_batches()),
                             job.first_epoch(), job.first_lease());
  return from;
}

absl::StatusOr<SchedulerOptions::From> PlanWarmStart(const std::string& folder, const CheckpointManifest& manifest,
                                                     const EffectiveJob& job,
                                                     const std::function<bool(const std::string& table)>& wanted) {
  SchedulerOptions::From from;
  from.folder = folder;
  from.warm = true;
  const std::map<std::string, const TableSpec*> there = TablesByName(manifest.job());
  for (const TableSpec& table : job.table()) {
    const auto found = there.find(table.name());
    if (!wanted(table.name()) || found == there.end()) continue;
    CAPSTAN_RETURN_IF_ERROR(While(fmt::format("warm start from {}", folder), CheckShape(*found->second, table)));
    from.imports.emplace_back(static_cast<TableId>(found->second->id()), static_cast<TableId>(table.id()));
  }
  if (!from.imports.empty()) return from;
  std::string names;
  for (const auto& [name, table] : there) names += (names.empty() ? "" : ", ") + name;
  return InvalidArgument(fmt::format("warm start from {}: no table of this job is chosen and there; it has {}", folder,
                                     names));
}

std::vector<JobId> LineageOf(const CheckpointManifest& manifest) {
  std::vector<JobId> lineage(manifest.lineage().begin(), manifest.lineage().end());
  lineage.push_back(manifest.job().job_id());
  return lineage;
}

}  // namespace capstan
