#include "storage/model_store.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/partition_map.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kPartitions = 8;
constexpr char kFolder[] = "model";

// Rows of two tables: 'wide' (width 1, one slot) and 'deep' (width 3, no slot).
using TestRows = std::map<Key, std::vector<float>>;
struct TestModel {
  std::vector<std::string> names = {"wide", "deep"};
  std::vector<uint32_t> widths = {1, 3};
  std::vector<TestRows> rows = std::vector<TestRows>(2);
};

TestModel MakeTestModel() {
  TestModel model;
  for (const Key key : {Key{0}, Key{1}, Key{77}, Key{1} << 40, ~Key{0}}) {
    model.rows[0][key] = {static_cast<float>(key % 97) + 0.5f, 2.0f};
  }
  for (Key key = 0; key < 12; ++key) model.rows[1][key] = {1.0f, -static_cast<float>(key), 3e-9f};
  return model;
}

std::string PathOf(const std::string& file) { return std::string(kFolder) + "/" + file; }

// Writes the model as `shards` shards would, tables in the given order.
ModelManifest WriteTestModel(FileSystem& fs, const TestModel& model, uint32_t shards,
                             bool tables_backwards = false) {
  const ShardMap map = *ShardMap::Even(kPartitions, shards);
  ModelManifest manifest;
  manifest.mutable_job()->mutable_config()->mutable_cluster()->set_partitions(kPartitions);
  for (TableId t = 0; t < 2; ++t) {
    TableSpec* spec = manifest.mutable_job()->add_table();
    spec->set_id(t);
    spec->set_name(model.names[t]);
    spec->set_width(model.widths[t]);
  }
  std::vector<PartitionSum> sums;
  uint64_t total_rows = 0;
  EXPECT_TRUE(fs.MakeFolders(kFolder).ok());
  for (ShardId shard = 0; shard < shards; ++shard) {
    std::unique_ptr<PartWriter> writer = *PartWriter::Create(fs, PathOf(PartFileName(shard)));
    for (TableId turn = 0; turn < 2; ++turn) {
      const TableId t = tables_backwards ? 1 - turn : turn;
      for (PartitionId p = 0; p < kPartitions; ++p) {
        std::vector<Key> keys;
        std::vector<const float*> records;
        size_t floats = 1;
        for (const auto& [key, values] : model.rows[t]) {
          if (map.OwnerOfPartition(p) != shard || PartitionOf(key, kPartitions) != p) continue;
          keys.push_back(key);
          records.push_back(values.data());
          floats = values.size();
        }
        EXPECT_TRUE(
            writer->Add(t, p, static_cast<uint32_t>(floats), keys, [&](size_t i) { return records[i]; })
                .ok());
        total_rows += keys.size();
      }
    }
    EXPECT_TRUE(writer->Finish().ok());
    ModelManifest::Part* part = manifest.add_part();
    part->set_file(PartFileName(shard));
    part->set_bytes(writer->bytes());
    const Sha256Digest digest = writer->file_sha256();
    part->set_sha256(digest.data(), digest.size());
    sums.insert(sums.end(), writer->sums().begin(), writer->sums().end());
  }
  manifest.set_rows(total_rows);
  manifest.set_steps(10);
  manifest.set_examples(1000);
  manifest.set_model_sha256(ModelSha256(model.names, sums));
  EXPECT_TRUE(WriteManifest(fs, kFolder, manifest).ok());
  return manifest;
}

std::string Contents(FileSystem& fs, const std::string& path) { return *ReadWholeFile(fs, path, 1 << 20); }

void Overwrite(FileSystem& fs, const std::string& path, const std::string& contents) {
  ASSERT_TRUE(WriteFileAtomically(fs, path, contents).ok());
}

TEST(ModelStore, WhatWasWrittenIsRead) {
  const TestModel model = MakeTestModel();
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  const ModelManifest manifest = WriteTestModel(*fs, model, 3);
  const auto saved = SavedModel::Load(*fs, kFolder, SavedModel::Keep::kWeightsAndSlots);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ((*saved)->model_sha256(), manifest.model_sha256());
  EXPECT_EQ((*saved)->manifest().steps(), 10u);
  for (TableId t = 0; t < 2; ++t) {
    EXPECT_EQ((*saved)->rows(t), model.rows[t].size());
    EXPECT_EQ((*saved)->width(t), model.widths[t]);
    TestRows visited;
    uint64_t last_place = 0;
    (*saved)->ForEach(t, [&](Key key, std::span<const float> values) {
      visited[key].assign(values.begin(), values.end());
      const uint64_t place = PartitionOf(key, kPartitions);
      EXPECT_LE(last_place, place);
      last_place = place;
    });
    EXPECT_EQ(visited, model.rows[t]);
    for (const auto& [key, values] : model.rows[t]) {
      const float* weights = (*saved)->Find(t, key);
      ASSERT_NE(weights, nullptr);
      EXPECT_TRUE(std::equal(values.begin(), values.begin() + model.widths[t], weights));
    }
    EXPECT_EQ((*saved)->Find(t, 424242), nullptr);
  }
  EXPECT_EQ((*saved)->Find(9, 0), nullptr);
}

TEST(ModelStore, WeightsAloneLeaveTheSlotsOut) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  WriteTestModel(*fs, MakeTestModel(), 1);
  const auto saved = SavedModel::Load(*fs, kFolder);
  ASSERT_TRUE(saved.ok()) << saved.status();
  uint64_t rows = 0;
  (*saved)->ForEach(0, [&](Key, std::span<const float> values) {
    EXPECT_EQ(values.size(), 1u);
    ++rows;
  });
  EXPECT_EQ(rows, 5u);
  EXPECT_EQ((*saved)->Find(0, 77)[0], 77.5f);
}

TEST(ModelStore, TheHashDependsOnRowsAlone) {
  TestModel model = MakeTestModel();
  std::vector<std::string> hashes;
  for (const uint32_t shards : {1u, 2u, 8u}) {
    for (const bool backwards : {false, true}) {
      const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
      hashes.push_back(WriteTestModel(*fs, model, shards, backwards).model_sha256());
    }
  }
  EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
  const auto changed = [](const TestModel& other) {
    const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
    return WriteTestModel(*fs, other, 2).model_sha256();
  };
  TestModel slot = model;
  slot.rows[0][77][1] = 2.5f;
  EXPECT_NE(changed(slot), hashes[0]);
  TestModel sign = model;
  sign.rows[1][0][1] = 0.0f;  // was -0
  EXPECT_NE(changed(sign), hashes[0]);
  TestModel name = model;
  name.names[0] = "wider";
  EXPECT_NE(changed(name), hashes[0]);
}

TEST(ModelStore, EveryFlippedByteIsFound) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  WriteTestModel(*fs, MakeTestModel(), 2);
  for (const std::string& path : {PathOf("manifest.pb"), PathOf(PartFileName(0)), PathOf(PartFileName(1))}) {
    const std::string good = Contents(*fs, path);
    for (size_t i = 0; i < good.size(); ++i) {
      SCOPED_TRACE(path + ", byte " + std::to_string(i));
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      Overwrite(*fs, path, bad);
      const absl::Status status = SavedModel::Load(*fs, kFolder).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
      ASSERT_THAT(std::string(status.message()), HasSubstr(path));
    }
    Overwrite(*fs, path, good);
  }
  EXPECT_TRUE(SavedModel::Load(*fs, kFolder).ok());
}

TEST(ModelStore, EveryTruncationAndExtensionIsFound) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  WriteTestModel(*fs, MakeTestModel(), 1);
  for (const std::string& path : {PathOf("manifest.pb"), PathOf(PartFileName(0))}) {
    const std::string good = Contents(*fs, path);
    for (size_t size = 0; size <= good.size(); ++size) {
      SCOPED_TRACE(path + ", size " + std::to_string(size));
      Overwrite(*fs, path, size < good.size() ? good.substr(0, size) : good + '\0');
      const absl::Status status = SavedModel::Load(*fs, kFolder).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    }
    Overwrite(*fs, path, good);
  }
}

// Damage under a manifest that was made to fit it: what is left to the checks of the format itself.
TEST(ModelStore, AForgedPartNeverAllocatesMoreThanItHolds) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  ModelManifest manifest = WriteTestModel(*fs, MakeTestModel(), 1);
  const std::string path = PathOf(PartFileName(0));
  const std::string good = Contents(*fs, path);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int value : {0x00, 0xFF, 0x7F}) {
      std::string bad = good;
      if (bad[i] == static_cast<char>(value)) continue;
      bad[i] = static_cast<char>(value);
      Sha256 hash;
      hash.Update(bad.data(), bad.size());
      const Sha256Digest digest = hash.Finish();
      manifest.mutable_part(0)->set_sha256(digest.data(), digest.size());
      ASSERT_TRUE(WriteManifest(*fs, kFolder, manifest).ok());
      Overwrite(*fs, path, bad);
      EXPECT_EQ(SavedModel::Load(*fs, kFolder).status().code(), absl::StatusCode::kDataLoss) << i;
    }
  }
}

TEST(ModelStore, WhatIsMissingIsNamed) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  WriteTestModel(*fs, MakeTestModel(), 2);
  ASSERT_TRUE(fs->Remove(PathOf(PartFileName(1))).ok());
  const absl::Status part = SavedModel::Load(*fs, kFolder).status();
  EXPECT_EQ(part.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(part.message()), HasSubstr("part-00001.rows"));
  ASSERT_TRUE(fs->Remove(PathOf("manifest.pb")).ok());
  const absl::Status manifest = SavedModel::Load(*fs, kFolder).status();
  EXPECT_EQ(manifest.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(manifest.message()), HasSubstr("is no saved model"));
}

TEST(ModelStore, AManifestThatWouldNotLoadIsNotWritten) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  const ModelManifest good = WriteTestModel(*fs, MakeTestModel(), 1);
  struct Case {
    const char* why;
    void (*change)(ModelManifest*);
    const char* says;
  };
  const Case cases[] = {
      {"no rows", [](ModelManifest* m) { m->clear_rows(); }, "rows, steps or examples"},
      {"no model hash", [](ModelManifest* m) { m->set_model_sha256("ab"); }, "model_sha256"},
      {"no part", [](ModelManifest* m) { m->clear_part(); }, "no part"},
      {"a part outside", [](ModelManifest* m) { m->mutable_part(0)->set_file("../x"); }, "plain file name"},
      {"a part twice", [](ModelManifest* m) { *m->add_part() = m->part(0); }, "used twice"},
      {"no part hash", [](ModelManifest* m) { m->mutable_part(0)->clear_sha256(); }, "no SHA-256"},
      {"partitions",
       [](ModelManifest* m) { m->mutable_job()->mutable_config()->mutable_cluster()->set_partitions(3); },
       "3"},
      {"no table", [](ModelManifest* m) { m->mutable_job()->clear_table(); }, "no table"},
      {"two ids alike", [](ModelManifest* m) { m->mutable_job()->mutable_table(1)->set_id(0); },
       "another one has"},
      {"width 0", [](ModelManifest* m) { m->mutable_job()->mutable_table(0)->set_width(0); }, "width 0"},
  };
  for (const Case& c : cases) {
    ModelManifest bad = good;
    c.change(&bad);
    const absl::Status status = WriteManifest(*fs, kFolder, bad);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.why;
  }
}

TEST(ModelStore, TheDataPlanIsLeftOut) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  ModelManifest manifest = WriteTestModel(*fs, MakeTestModel(), 1);
  manifest.mutable_job()->mutable_plan()->set_rows(5);
  ASSERT_TRUE(WriteManifest(*fs, kFolder, manifest).ok());
  EXPECT_FALSE(ReadManifest(*fs, kFolder)->job().has_plan());
}

TEST(PartitionSums, PackAndUnpack) {
  std::vector<PartitionSum> sums(3);
  sums[1] = {65535, 4095, 1ull << 40, {1, 2, 3}};
  sums[2].sha256.fill(0xEE);
  const std::string packed = PackSums(sums);
  EXPECT_EQ(packed.size(), 3u * 48);
  const auto unpacked = UnpackSums(packed);
  ASSERT_TRUE(unpacked.ok());
  EXPECT_EQ(*unpacked, sums);
  EXPECT_TRUE(UnpackSums("")->empty());
  EXPECT_EQ(UnpackSums(packed.substr(1)).status().code(), absl::StatusCode::kInvalidArgument);
  std::string big_table = packed;
  big_table[2] = 1;
  EXPECT_EQ(UnpackSums(big_table).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PartitionSums, EmptyPartitionsDoNotCount) {
  const std::vector<std::string> names = {"b", "a"};
  const PartitionSum one = {0, 1, 5, {9}};
  const PartitionSum two = {1, 0, 5, {8}};
  EXPECT_EQ(ModelSha256(names, {one, two}), ModelSha256(names, {two, {0, 0, 0, {}}, one}));
  EXPECT_NE(ModelSha256(names, {one}), ModelSha256(names, {two}));
}

}  // namespace
}  // namespace capstan
