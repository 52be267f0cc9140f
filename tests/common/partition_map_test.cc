#include "common/partition_map.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace capstan {
namespace {

std::vector<Key> EdgeKeys() {
  constexpr Key kTop = Key{1} << 63;
  return {0, 1, kTop - 1, kTop, std::numeric_limits<Key>::max() - 1, std::numeric_limits<Key>::max()};
}

TEST(PartitionMap, EveryKeyHasExactlyOneOwner) {
  for (const uint32_t partitions : {32u, kDefaultPartitions, kMaxPartitions}) {
    for (uint32_t shards = 1; shards <= 17; ++shards) {
      const absl::StatusOr<ShardMap> map = ShardMap::Even(partitions, shards);
      ASSERT_TRUE(map.ok()) << map.status();
      for (const Key key : EdgeKeys()) {
        const PartitionId partition = PartitionOf(key, partitions);
        ASSERT_LT(partition, partitions);
        EXPECT_LT(map->OwnerOf(key), shards);
        EXPECT_EQ(map->OwnerOf(key), map->OwnerOfPartition(partition));
        EXPECT_EQ(map->OwnerOf(key), map->OwnerOfHash(KeyHash(key)));
      }
    }
  }
}

TEST(PartitionMap, EvenGivesContiguousRunsThatDifferByOneAtMost) {
  for (const uint32_t partitions : {1u, 2u, 16u, 32u, 4096u}) {
    for (uint32_t shards = 1; shards <= std::min(partitions, 17u); ++shards) {
      const absl::StatusOr<ShardMap> map = ShardMap::Even(partitions, shards);
      ASSERT_TRUE(map.ok()) << map.status();
      EXPECT_EQ(map->partitions(), partitions);
      EXPECT_EQ(map->shards(), shards);
      EXPECT_EQ(map->HomeShard(), 0u);
      std::vector<uint32_t> owned(shards, 0);
      for (uint32_t p = 0; p < partitions; ++p) {
        ++owned[map->OwnerOfPartition(p)];
        if (p > 0) {
          EXPECT_LE(map->OwnerOfPartition(p) - map->OwnerOfPartition(p - 1), 1u);
        }
      }
      const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
      EXPECT_LE(*most - *least, 1u) << partitions << " partitions over " << shards;
    }
  }
}

TEST(PartitionMap, PartitionIsTheTopBitsOfTheHash) {
  EXPECT_EQ(PartitionOfHash(std::numeric_limits<uint64_t>::max(), 1), 0u);
  EXPECT_EQ(PartitionOfHash(uint64_t{1} << 63, 2), 1u);
  EXPECT_EQ(PartitionOfHash((uint64_t{1} << 63) - 1, 2), 0u);
  EXPECT_EQ(PartitionOfHash(0xABCD'EF01'2345'6789, 4096), 0xABCu);
  EXPECT_EQ(PartitionOfHash(0xABCD'EF01'2345'6789, kMaxPartitions), 0xABCDEu);
}

TEST(PartitionMap, GoldenPartitions) {  // part of the protocol: a change moves every row
  const std::vector<PartitionId> kGolden = {3618, 2320, 678, 1153, 3890, 3661};
  std::vector<PartitionId> found;
  for (const Key key : EdgeKeys()) found.push_back(PartitionOf(key, 4096));
  EXPECT_EQ(found, kGolden);
}

TEST(PartitionMap, ConsecutiveKeysSpreadEvenly) {
  constexpr uint32_t kKeys = 1 << 16;
  std::vector<uint32_t> rows(16, 0);
  for (Key key = 0; key < kKeys; ++key) ++rows[PartitionOf(key, 16)];
  for (const uint32_t n : rows) EXPECT_NEAR(n, kKeys / 16.0, 5 * 62);  // 5 standard deviations
}

struct RefusedCase {
  uint32_t partitions;
  uint32_t shards;
};

TEST(PartitionMap, RefusesWhatItCannotDivide) {
  const RefusedCase kCases[] = {{0, 1},  {3, 1},   {4095, 2}, {kMaxPartitions * 2, 1},
                                {16, 0}, {16, 17}, {1, 2}};
  for (const RefusedCase& c : kCases) {
    EXPECT_EQ(ShardMap::Even(c.partitions, c.shards).status().code(), absl::StatusCode::kInvalidArgument)
        << c.partitions << " partitions, " << c.shards << " shards";
  }
}

TEST(PartitionMap, EpochStartsAtOneAndCanBeSet) {
  absl::StatusOr<ShardMap> map = ShardMap::Even(16, 2);
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->epoch(), 1u);
  map->set_epoch(9);
  EXPECT_EQ(map->epoch(), 9u);
}

}  // namespace
}  // namespace capstan
