#include "storage/layer_merge.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "storage/checkpoint_reader.h"
#include "storage/layer_files.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::BuildCheckpoint;
using testing::CheckpointSpec;
using testing::SomeCheckpoint;
using testing::TemporaryFolder;

std::unique_ptr<CheckpointReader> MustOpen(const std::string& folder) {
  auto reader = CheckpointReader::Open(PosixFileSystem(), folder, CheckpointReader::Verify::kFiles);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

std::vector<const StoredLayer*> LayersOf(const ShardRecord& record) {
  std::vector<const StoredLayer*> layers;
  for (const StoredLayer& layer : record.layer()) layers.push_back(&layer);
  return layers;
}

TEST(MergeLayers, OneLayerIsWhatTheChainWas) {
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(5, 400, 1);
  spec.max_file_bytes = 36'000;
  const auto chain = MustOpen(BuildCheckpoint(spec, root.path()));

  // The merged layer becomes a checkpoint of its own, so that a reader can be asked about it.
  CheckpointSpec empty = spec;
  empty.first_id = 9;
  empty.layers = {{}};
  empty.edit_shard = [&](uint32_t, ShardRecord* record) {
    std::vector<PartitionRows> rows;
    const auto merged = MergeLayers(LayersOf(chain->shard(0)), chain->folder(),
                                    {root / "C000009/shard-0000", "shard-0000/", 9}, nullptr, &rows);
    ASSERT_TRUE(merged.ok()) << merged.status();
    *record->mutable_layer(0) = *merged;
    ASSERT_EQ(rows.size(), static_cast<size_t>(chain->shard(0).rows_size()));
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_EQ(rows[i].SerializeAsString(), chain->shard(0).rows(static_cast<int>(i)).SerializeAsString());
    record->mutable_rows()->Assign(rows.begin(), rows.end());
  };
  const auto merged = MustOpen(BuildCheckpoint(empty, root.path()));
  EXPECT_EQ(merged->shard(0).layer_size(), 1);
  for (const LayerPartition& part : merged->shard(0).layer(0).part()) EXPECT_EQ(part.deletes(), 0u);
  EXPECT_TRUE(merged->VerifyAll({}).ok());
  EXPECT_EQ(merged->ComputeModelSha256().value_or("merged"), chain->ComputeModelSha256().value_or("chain"));
  EXPECT_EQ(merged->rows(1), chain->rows(1));
}

TEST(MergeLayers, EndsWhenItIsCancelled) {
  const TemporaryFolder root;
  const auto chain = MustOpen(BuildCheckpoint(SomeCheckpoint(2, 50, 1), root.path()));
  const std::atomic<bool> cancel = true;
  std::filesystem::create_directory(root / "out");
  const auto merged =
      MergeLayers(LayersOf(chain->shard(0)), chain->folder(), {root / "out", "", 9}, &cancel, nullptr);
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kCancelled);
}

TEST(MergeLayers, ADamagedLayerIsNotMerged) {
  const TemporaryFolder root;
  const auto chain = MustOpen(BuildCheckpoint(SomeCheckpoint(2, 50, 1), root.path()));
  ShardRecord record = chain->shard(0);
  record.mutable_layer(1)->mutable_part(0)->set_digest_high(1);
  std::filesystem::create_directory(root / "out");
  const auto merged = MergeLayers(LayersOf(record), chain->folder(), {root / "out", "", 9}, nullptr, nullptr);
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace capstan
