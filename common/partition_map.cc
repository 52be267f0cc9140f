#include "common/partition_map.h"

#include <bit>

#include <fmt/core.h>

namespace capstan {

absl::StatusOr<ShardMap> ShardMap::Even(uint32_t partitions, uint32_t shards) {
  if (!std::has_single_bit(partitions) || partitions > kMaxPartitions) {
    return InvalidArgument(
        fmt::format("partitions is {}; it must be a power of two from 1 to {}", partitions, kMaxPartitions));
  }
  if (shards == 0 || shards > partitions) {
    return InvalidArgument(
        fmt::format("{} shards cannot share {} partitions: want 1 to {} shards, or raise "
                    "cluster.partitions",
                    shards, partitions, partitions));
  }
  ShardMap map;
  map.shards_ = shards;
  map.owner_.resize(partitions);
  for (uint64_t p = 0; p < partitions; ++p) map.owner_[p] = static_cast<ShardId>(p * shards / partitions);
  return map;
}

}  // namespace capstan
