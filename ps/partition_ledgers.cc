#include "ps/partition_ledgers.h"

#include <algorithm>

#include <fmt/core.h>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

constexpr uint32_t kNoGroup = ~uint32_t{0};

// The first partition of the shard; every shard has one.
PartitionId LowestOf(const ShardMap& map, ShardId shard) {
  PartitionId partition = 0;
  while (map.OwnerOfPartition(partition) != shard) ++partition;
  return partition;
}

}  // namespace

PartitionLedgers::PartitionLedgers(const ShardMap& map, ShardId shard)
    : group_(map.partitions(), kNoGroup), ledgers_(1), lowest_(LowestOf(map, shard)) {
  for (PartitionId p = 0; p < map.partitions(); ++p) {
    if (map.OwnerOfPartition(p) == shard) group_[p] = 0;
  }
}

absl::StatusOr<PartitionLedgers> PartitionLedgers::From(const ShardMap& map, ShardId shard,
                                                        std::span<const ShardRecord* const> records) {
  PartitionLedgers result;
  result.group_.assign(map.partitions(), kNoGroup);
  result.lowest_ = LowestOf(map, shard);
  for (const ShardRecord* record : records) {
    for (const LedgerRecord& stored : record->ledger()) {
      const auto group = static_cast<uint32_t>(result.ledgers_.size());
      bool ours = false;
      for (const PartitionRun& run : stored.partitions()) {
        for (uint64_t p = run.first(); p < uint64_t{run.first()} + run.count(); ++p) {
          if (p >= map.partitions()) return DataLoss(fmt::format("a ledger of partition {} of {}", p, map.partitions()));
          if (map.OwnerOfPartition(static_cast<PartitionId>(p)) != shard) continue;
          if (result.group_[p] != kNoGroup) return DataLoss(fmt::format("two ledgers of partition {}", p));
          result.group_[p] = group;
          ours = true;
        }
      }
      if (ours) result.ledgers_.push_back(LeaseLedger::From(stored));
    }
  }
  for (PartitionId p = 0; p < map.partitions(); ++p) {
    if (map.OwnerOfPartition(p) == shard && result.group_[p] == kNoGroup) {
      return DataLoss(fmt::format("no ledger of partition {}", p));
    }
  }
  if (Planted(Bug::kLedgersMergedOnRestore)) {
    // One copy for all, as if the partitions agreed.
    for (uint32_t& group : result.group_) group = group == kNoGroup ? kNoGroup : 0;
    result.ledgers_.resize(1);
  }
  result.Join();
  return result;
}

bool PartitionLedgers::AnyShouldApply(LeaseId lease, uint32_t index) const {
  return std::any_of(ledgers_.begin(), ledgers_.end(),
                     [&](const LeaseLedger& ledger) { return ledger.ShouldApply(lease, index); });
}

bool PartitionLedgers::HasRoom(LeaseId lease, uint32_t index, uint32_t batches_per_lease) const {
  return std::all_of(ledgers_.begin(), ledgers_.end(), [&](const LeaseLedger& ledger) {
    return ledger.IsClosed(lease) || ledger.HasRoom(lease, index, batches_per_lease);
  });
}

void PartitionLedgers::MarkApplied(LeaseId lease, uint32_t index) {
  for (LeaseLedger& ledger : ledgers_) {
    if (!ledger.IsClosed(lease)) ledger.MarkApplied(lease, index);
  }
}

void PartitionLedgers::Close(LeaseId below, std::span<const LeaseId> leases) {
  for (LeaseLedger& ledger : ledgers_) ledger.Close(below, leases);
  Join();
}

void PartitionLedgers::Join() {
  if (ledgers_.size() < 2) return;
  std::vector<LeaseLedger> different;
  std::vector<uint32_t> now_at;
  for (LeaseLedger& ledger : ledgers_) {
    const auto same = std::find(different.begin(), different.end(), ledger);
    now_at.push_back(static_cast<uint32_t>(same - different.begin()));
    if (same == different.end()) different.push_back(std::move(ledger));
  }
  for (uint32_t& group : group_) {
    if (group != kNoGroup) group = now_at[group];
  }
  ledgers_ = std::move(different);
}

void PartitionLedgers::Store(ShardRecord* record) const {
  for (uint32_t g = 0; g < ledgers_.size(); ++g) {
    LedgerRecord* stored = record->add_ledger();
    ledgers_[g].Store(stored);
    for (PartitionId p = 0; p < group_.size(); ++p) {
      if (group_[p] != g) continue;
      const int runs = stored->partitions_size();
      PartitionRun* last = runs > 0 ? stored->mutable_partitions(runs - 1) : nullptr;
      if (last != nullptr && last->first() + last->count() == p) {
        last->set_count(last->count() + 1);
        continue;
      }
      last = stored->add_partitions();
      last->set_first(p);
      last->set_count(1);
    }
  }
}

}  // namespace capstan
