// A checkpoint of format 2 as this release wrote it, kept in tests/golden/checkpoint_v2: later releases must
// read it.
//   storage_test --gtest_also_run_disabled_tests --gtest_filter='*WriteTheGoldenCheckpoint'
// makes it anew, which only a new format is a reason for.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "common/file_system.h"
#include "storage/checkpoint_reader.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::BuiltRow;
using testing::BuiltRows;
using testing::CheckpointSpec;

// Computed apart from our own code, from the definition in storage/model_hash.h.
constexpr char kGoldenModel[] = "68c05093af6a1b748b7e8284986382149432a9c5d2b07d13f306a554acb72f75";

std::string GoldenFolder() { return std::string(CAPSTAN_SOURCE_DIR) + "/tests/golden/checkpoint_v2"; }

BuiltRow GoldenRow(uint32_t floats, Key key, float add) {
  BuiltRow row = {{}, static_cast<uint32_t>(key % 50), static_cast<uint32_t>(key % 7)};
  for (uint32_t i = 0; i < floats; ++i)
    row.values.push_back(static_cast<float>(key % 1000) / 8 - static_cast<float>(i) + add);
  return row;
}

// Tables 0 "wide" (width 1, one slot) and 7 "deep" (width 4, 8 slots); a full layer and one upon it.
CheckpointSpec GoldenSpec() {
  CheckpointSpec spec;
  spec.tables = {{0, "wide", 1, 1}, {7, "deep", 4, 8}};
  spec.partitions = 8;
  spec.shards = 2;
  spec.model_sha256 = true;
  spec.layers.resize(2);
  for (const testing::BuiltTable& table : spec.tables) {
    const uint32_t floats = table.width + table.slots;
    BuiltRows& full = spec.layers[0].puts[table.id];
    for (Key key = 0; key < 100; ++key) full[key * key * key] = GoldenRow(floats, key, 0);
    full[~Key{0}] = GoldenRow(floats, ~Key{0}, 0);
    BuiltRows& increment = spec.layers[1].puts[table.id];
    for (Key key = 0; key < 100; key += 5) increment[key * key * key] = GoldenRow(floats, key, 0.5f);
    increment[1'000'003] = GoldenRow(floats, 3, 2);
    for (Key key = 1; key < 100; key += 9) spec.layers[1].deletes[table.id].insert(key * key * key);
  }
  return spec;
}

TEST(GoldenCheckpoint, IsReadRowByRow) {
  const auto reader =
      CheckpointReader::Open(PosixFileSystem(), GoldenFolder(), CheckpointReader::Verify::kFiles);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->manifest().id(), 2u);
  EXPECT_EQ((*reader)->shards(), 2u);
  for (const auto& [table, wanted] : testing::LiveRows(GoldenSpec())) {
    BuiltRows rows;
    const absl::Status status =
        (*reader)->ForEach(table, 0, (*reader)->partitions(), [&](const StoredRow& row) {
          rows[row.key] = {{row.values, row.values + row.floats}, row.last_step, row.updates};
          return absl::OkStatus();
        });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(rows, wanted) << table;
  }
  const absl::Status verified = (*reader)->VerifyAll({});
  EXPECT_TRUE(verified.ok()) << verified;
  EXPECT_EQ((*reader)->manifest().model_sha256(), kGoldenModel);
  EXPECT_EQ((*reader)->ComputeModelSha256().value_or("failed"), kGoldenModel);
}

TEST(GoldenCheckpoint, DISABLED_WriteTheGoldenCheckpoint) {
  const testing::TemporaryFolder root;
  const std::string folder = testing::BuildCheckpoint(GoldenSpec(), root.path());
  std::filesystem::remove_all(GoldenFolder());
  std::filesystem::create_directories(std::filesystem::path(GoldenFolder()).parent_path());
  std::filesystem::copy(folder, GoldenFolder(), std::filesystem::copy_options::recursive);
}

}  // namespace
}  // namespace capstan
