#include "storage/checkpoint_format.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/hash.h"

namespace capstan {
namespace {

std::string_view View(const std::array<char, kStoredKeyBytes>& bytes) { return {bytes.data(), bytes.size()}; }

TEST(StoredKey, ByteOrderIsNumericOrder) {
  std::mt19937_64 random(1);
  std::vector<StoredKey> keys = {{0, 0, 0}, {65535, ~0u, ~Key{0}}, {0, 0, ~Key{0}}, {0, 1, 0},
                                 {1, 0, 0}, {255, 256, 1},         {256, 255, 0}};
  for (int i = 0; i < 2000; ++i) {
    // Few distinct bytes, so that many keys share the beginning.
    const auto few = [&] { return random() & 0x8001'00FF'0180'0001; };
    keys.push_back({static_cast<TableId>(few()), static_cast<PartitionId>(few() >> 8), few()});
  }
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto bytes = EncodeStoredKey(keys[i]);
    const auto decoded = DecodeStoredKey(View(bytes));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, keys[i]);
    if (i == 0) continue;
    const auto before = EncodeStoredKey(keys[i - 1]);
    EXPECT_EQ(std::memcmp(before.data(), bytes.data(), bytes.size()) < 0, keys[i - 1] < keys[i]) << i;
  }
}

TEST(StoredKey, IsFourteenBytesBigEndian) {
  const auto bytes = EncodeStoredKey({0x0102, 0x03040506, 0x0708090A0B0C0D0E});
  EXPECT_EQ(std::string(View(bytes)), "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0A\x0B\x0C\x0D\x0E");
  for (const size_t size : {size_t{0}, size_t{13}})
    EXPECT_EQ(DecodeStoredKey(View(bytes).substr(0, size)).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(DecodeStoredKey(std::string(15, 'x')).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ContentDigest, IsASumOfHashesOfKeyAndValue) {
  for (const size_t bytes : {size_t{12}, size_t{136}, size_t{2048}, size_t{2049}, size_t{100'000}}) {
    const std::string value(bytes, 'v');
    const Key key = 0x1122334455667788;
    std::string row(reinterpret_cast<const char*>(&key), sizeof(key));
    row += value;
    const Hash128 hash = HashBytes128(row.data(), row.size(), 7);
    ContentDigest digest;
    digest.AddRow(7, key, value.data(), value.size());
    EXPECT_EQ(digest, (ContentDigest{hash.low, hash.high})) << bytes;
  }
}

TEST(ContentDigest, DependsOnTableKeyAndValueButNotOnOrder) {
  const auto digest_of = [](const std::vector<std::pair<TableId, Key>>& rows) {
    ContentDigest digest;
    for (const auto& row : rows) digest.AddRow(row.first, row.second, "value", 5);
    return digest;
  };
  EXPECT_EQ(digest_of({{0, 1}, {1, 2}}), digest_of({{1, 2}, {0, 1}}));
  EXPECT_FALSE(digest_of({{0, 1}, {1, 2}}) == digest_of({{0, 2}, {1, 1}}));
  EXPECT_FALSE(digest_of({{0, 1}}) == digest_of({{0, 1}, {0, 1}}));
  ContentDigest sum = digest_of({{0, 1}});
  sum.Add(digest_of({{1, 2}}));
  EXPECT_EQ(sum, digest_of({{0, 1}, {1, 2}}));
}

TEST(CheckpointFolderName, ThereAndBack) {
  EXPECT_EQ(CheckpointFolderName(7), "C000007");
  for (const uint64_t id : {uint64_t{0}, uint64_t{7}, uint64_t{999999}, uint64_t{1000000}, ~uint64_t{0}})
    EXPECT_EQ(ParseCheckpointFolderName(CheckpointFolderName(id)).value_or(1), id);
  for (const char* name : {"", "C", "C00007", "C0000007", "c000007", "C000007.tmp", "C000007/", "C-00007",
                           "C+00007", "D000007", "C99999999999999999999", "C00000x"}) {
    EXPECT_EQ(ParseCheckpointFolderName(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(ShardFolderName(3), "shard-0003");
  EXPECT_EQ(ShardFolderName(12345), "shard-12345");
}

}  // namespace
}  // namespace capstan
