// The applied sets of a shard's partitions (protocol: they belong to partitions and are stored with them). Partitions
// that agree share one ledger. In a fresh job all agree; after a restore onto another number of shards there is a group
// for each shard that they came from, until the leases in which they differ are closed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/partition_map.h"
#include "common/status.h"
#include "ps/lease_ledger.h"

namespace capstan {

class ShardRecord;

class PartitionLedgers {
 public:
  // One group of all partitions that `shard` owns.
  PartitionLedgers(const ShardMap& map, ShardId shard);
  // The groups of the records. kDataLoss: a partition of the shard's is in none of them, or in two.
  static absl::StatusOr<PartitionLedgers> From(const ShardMap& map, ShardId shard,
                                               std::span<const ShardRecord* const> records);

  size_t groups() const { return ledgers_.size(); }
  size_t GroupOf(PartitionId partition) const { return group_[partition]; }
  // The group that counts the batch: of the shard's lowest partition (on the home shard: partition 0).
  size_t LeadingGroup() const { return GroupOf(lowest_); }
  bool ShouldApply(size_t group, LeaseId lease, uint32_t index) const {
    return ledgers_[group].ShouldApply(lease, index);
  }
  bool AnyShouldApply(LeaseId lease, uint32_t index) const;
  bool HasRoom(LeaseId lease, uint32_t index, uint32_t batches_per_lease) const;
  void MarkApplied(LeaseId lease, uint32_t index);
  void Close(LeaseId below, std::span<const LeaseId> leases);  // and joins groups that agree now

  void Store(ShardRecord* record) const;

 private:
  PartitionLedgers() = default;
  void Join();

  std::vector<uint32_t> group_;  // by partition; kNoGroup: another shard's
  std::vector<LeaseLedger> ledgers_;
  PartitionId lowest_ = 0;
};

}  // namespace capstan
