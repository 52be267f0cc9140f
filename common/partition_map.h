// Which shard owns a key. Partitions are a fixed slice of hashed key space and never change during a job;
// the shard map says where each one lives.
#pragma once

#include <string>
#include <vector>

#include "common/hash.h"
#include "common/status.h"
#include "common/types.h"

namespace capstan {

inline constexpr uint32_t kDefaultPartitions = 4096;
inline constexpr uint32_t kMaxPartitions = 1u << 20;

// The hash whose top bits choose the partition; the row store indexes by the same hash.
constexpr uint64_t KeyHash(Key key) { return Mix64(key); }

// partitions is a power of two, 1 … kMaxPartitions.
constexpr PartitionId PartitionOfHash(uint64_t hash, uint32_t partitions) {
  return partitions == 1 ? 0 : static_cast<PartitionId>(hash >> (64 - __builtin_ctz(partitions)));
}
constexpr PartitionId PartitionOf(Key key, uint32_t partitions) {
  return PartitionOfHash(KeyHash(key), partitions);
}

class ShardMap {
 public:
  ShardMap() = default;
  // Spreads `partitions` over `shards` in contiguous runs whose lengths differ by at most one.
  // Fails (kInvalidArgument) unless partitions is a power of two in range and 1 ≤ shards ≤ partitions.
  static absl::StatusOr<ShardMap> Even(uint32_t partitions, uint32_t shards);

  uint32_t partitions() const { return static_cast<uint32_t>(owner_.size()); }
  uint32_t shards() const { return shards_; }
  uint32_t epoch() const { return epoch_; }
  void set_epoch(uint32_t epoch) { epoch_ = epoch; }
  ShardId OwnerOfPartition(PartitionId p) const { return owner_[p]; }
  ShardId OwnerOfHash(uint64_t hash) const { return owner_[PartitionOfHash(hash, partitions())]; }
  ShardId OwnerOf(Key key) const { return OwnerOfHash(KeyHash(key)); }
  ShardId HomeShard() const { return owner_[0]; }  // the shard of partition 0 keeps the job's statistics

 private:
  std::vector<ShardId> owner_;
  uint32_t shards_ = 0;
  uint32_t epoch_ = 1;
};

}  // namespace capstan
