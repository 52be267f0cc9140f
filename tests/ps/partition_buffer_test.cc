#include "ps/partition_buffer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hash.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kFloats = 2;

// Rows that hold their key in their value as well; in chunks of a few.
void Fill(const std::vector<Key>& keys, PartitionBuffer* buffer) {
  buffer->Start(kFloats);
  for (const Key key : keys) {
    std::byte* const at = buffer->AddRows(buffer->record_bytes());
    std::memset(at, 0, buffer->record_bytes());
    std::memcpy(at, &key, sizeof(key));
    std::memcpy(at + sizeof(key), &key, sizeof(key));
  }
}

std::vector<Key> SortedKeys(const PartitionBuffer& buffer) {
  std::vector<Key> keys;
  for (const SortedRow& row : buffer.sorted()) {
    Key in_record[2];
    std::memcpy(in_record, buffer.Record(row).data(), sizeof(in_record));
    EXPECT_EQ(in_record[0], row.key);
    EXPECT_EQ(in_record[1], row.key);
    keys.push_back(row.key);
  }
  return keys;
}

struct Spread {
  std::string name;
  std::function<Key(uint64_t i)> key;
};

class SortedPartition : public ::testing::TestWithParam<Spread> {};

TEST_P(SortedPartition, IsInTheOrderOfItsKeysWhateverTheyAre) {
  PartitionBuffer buffer;
  for (const uint64_t rows : {0, 1, 2, 63, 64, 65, 127, 1000, 5000}) {
    std::vector<Key> keys;
    for (uint64_t i = 0; i < rows; ++i) keys.push_back(GetParam().key(i));
    std::reverse(keys.begin(), keys.end());
    Fill(keys, &buffer);
    ASSERT_TRUE(buffer.Sort().ok()) << rows;
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(SortedKeys(buffer), keys) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , SortedPartition,
    ::testing::Values(Spread{"Hashed", [](uint64_t i) { return Mix64(i); }}, Spread{"Counted", [](uint64_t i) { return i; }},
                      Spread{"AllButOneSmall", [](uint64_t i) { return i == 0 ? ~uint64_t{0} : i; }},
                      Spread{"AllButOneLarge", [](uint64_t i) { return i == 0 ? 0 : ~uint64_t{0} - i; }},
                      Spread{"Doubling", [](uint64_t i) { return i < 64 ? uint64_t{1} << i : Mix64(i) | 3; }},
                      Spread{"BothEnds", [](uint64_t i) { return i % 2 == 0 ? i : ~uint64_t{0} - i; }}),
    [](const auto& row) { return row.param.name; });

TEST(PartitionBuffer, TellsOfAKeyThatIsThereTwice) {
  for (const uint64_t rows : {2, 500}) {
    std::vector<Key> keys;
    for (uint64_t i = 0; i + 1 < rows; ++i) keys.push_back(Mix64(i));
    keys.push_back(keys[keys.size() / 2]);
    PartitionBuffer buffer;
    Fill(keys, &buffer);
    const absl::Status status = buffer.Sort();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("twice"));
  }
}

TEST(PartitionBuffer, LeavesOutDeletionsOfKeysThatHaveARow) {
  PartitionBuffer buffer;
  Fill({5, 1, 9}, &buffer);
  const std::vector<Key> deletes = {9, 2, 11, 2, 5, 0};
  std::copy(deletes.begin(), deletes.end(), buffer.AddDeletes(deletes.size()));
  ASSERT_TRUE(buffer.Sort().ok());
  EXPECT_THAT(buffer.deletes(), ElementsAre(0, 2, 11));
  EXPECT_THAT(SortedKeys(buffer), ElementsAre(1, 5, 9));
}

}  // namespace
}  // namespace capstan
