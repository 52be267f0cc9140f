#include "storage/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hash.h"
#include "common/partition_map.h"
#include "storage/folder_lock.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::BuildCheckpoint;
using testing::BuiltRow;
using testing::BuiltRows;
using testing::BuiltTable;
using testing::CheckpointSpec;
using ::testing::HasSubstr;
using testing::LiveRows;
using testing::SomeCheckpoint;
using testing::TemporaryFolder;
using Verify = CheckpointReader::Verify;

BuiltRow RowOf(const StoredRow& row) {
  return {{row.values, row.values + row.floats}, row.last_step, row.updates};
}

std::unique_ptr<CheckpointReader> OpenGood(const std::string& folder, Verify verify = Verify::kFiles) {
  auto reader = CheckpointReader::Open(PosixFileSystem(), folder, verify);
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// All rows of a table, which must come in (partition, key) order.
BuiltRows ReadAll(const CheckpointReader& reader, TableId table, PartitionId first, PartitionId last) {
  BuiltRows rows;
  std::pair<PartitionId, Key> before;
  const absl::Status status = reader.ForEach(table, first, last, [&](const StoredRow& row) {
    const std::pair<PartitionId, Key> place = {row.partition, row.key};
    EXPECT_EQ(row.partition, PartitionOf(row.key, reader.partitions()));
    EXPECT_TRUE(rows.empty() || before < place) << row.key;
    before = place;
    rows[row.key] = RowOf(row);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return rows;
}

struct RandomLayers {
  explicit RandomLayers(uint64_t seed) : random(seed) {
    spec.tables = {{0, "first", 1, 0}, {300, "middle", 3, 6}, {65535, "last", 2, 2}};
    spec.partitions = 1u << (random() % 7);
    spec.shards = 1 + static_cast<uint32_t>(random() % std::min(4u, spec.partitions));
    spec.max_file_bytes = random() % 2 == 0 ? 36'000 : uint64_t{256} << 20;
    spec.model_sha256 = random() % 2 == 0;
    keys = {0, 1, ~Key{0}, ~Key{0} - 1, Key{1} << 63};
    for (int i = 0; i < 250; ++i) keys.push_back(random());
    const int layers = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < layers; ++i) AddLayer();
  }

  BuiltRow AnyRow(const BuiltTable& table) {
    BuiltRow row = {{}, static_cast<uint32_t>(random()), static_cast<uint32_t>(random())};
    for (uint32_t i = 0; i < table.width + table.slots; ++i)
      row.values.push_back(static_cast<float>(random() % 1000) - 500);
    return row;
  }
  void AddLayer() {
    const bool first = spec.layers.empty();
    testing::BuiltLayer layer;
    for (const BuiltTable& table : spec.tables) {
      if (random() % 5 == 0) continue;  // nothing of this table
      for (const Key key : keys) {
        const uint64_t what = random() % 8;
        if (what < (first ? 6u : 2u)) layer.puts[table.id][key] = AnyRow(table);
        if (what == 7 && !first) layer.deletes[table.id].insert(key);  // whether it was there or not
      }
    }
    spec.layers.push_back(layer);
  }

  std::mt19937_64 random;
  std::vector<Key> keys;
  CheckpointSpec spec;
};

class CheckpointReaderProperty : public ::testing::TestWithParam<uint64_t> {};

TEST_P(CheckpointReaderProperty, ReadsWhatAMapHolds) {
  const TemporaryFolder root;
  RandomLayers made(GetParam());
  const std::string folder = BuildCheckpoint(made.spec, root.path());
  const auto reader = OpenGood(folder);
  std::map<TableId, BuiltRows> wanted = LiveRows(made.spec);
  for (const BuiltTable& table : made.spec.tables) {
    const BuiltRows& rows = wanted[table.id];
    EXPECT_EQ(reader->rows(table.id), rows.size());
    EXPECT_EQ(reader->floats(table.id), rows.empty() ? 0 : table.width + table.slots);
    EXPECT_EQ(ReadAll(*reader, table.id, 0, reader->partitions()), rows);

    const PartitionId middle = static_cast<PartitionId>(made.random() % (reader->partitions() + 1));
    BuiltRows halves = ReadAll(*reader, table.id, 0, middle);
    halves.merge(ReadAll(*reader, table.id, middle, reader->partitions()));
    EXPECT_EQ(halves, rows);

    for (const Key key : made.keys) {
      BuiltRow seen;
      const auto found = reader->Get(table.id, key, [&](const StoredRow& row) { seen = RowOf(row); });
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_EQ(*found, rows.count(key) == 1) << key;
      if (*found) {
        EXPECT_EQ(seen, rows.at(key));
      }
    }
    EXPECT_EQ(reader->Get(table.id, 4242424242, nullptr).value_or(true), false);
  }
  uint64_t told = 0;
  const absl::Status verified = reader->VerifyAll([&](uint64_t bytes) {
    EXPECT_GE(bytes, told);
    told = bytes;
  });
  EXPECT_TRUE(verified.ok()) << verified;
  if (made.spec.model_sha256) {
    EXPECT_EQ(reader->ComputeModelSha256().value_or(""), reader->manifest().model_sha256());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CheckpointReaderProperty, ::testing::Range<uint64_t>(1, 25));

TEST(CheckpointReader, ATableThatIsNotThereHasNoRows) {
  const TemporaryFolder root;
  const auto reader = OpenGood(BuildCheckpoint(SomeCheckpoint(2, 50, 2), root.path()));
  for (const TableId table : {TableId{2}, TableId{65535}}) {
    EXPECT_EQ(reader->rows(table), 0u);
    EXPECT_EQ(reader->floats(table), 0u);
    EXPECT_TRUE(ReadAll(*reader, table, 0, ~0u).empty());
    EXPECT_EQ(reader->Get(table, 0, nullptr).value_or(true), false);
  }
}

TEST(CheckpointReader, TheModelsHashDoesNotDependOnShardsLayersOrFiles) {
  std::vector<std::string> hashes;
  for (const uint32_t shards : {1u, 2u, 3u}) {
    CheckpointSpec spec = SomeCheckpoint(3, 600, shards);
    spec.max_file_bytes = shards == 2 ? 36'000 : uint64_t{256} << 20;
    spec.model_sha256 = shards != 3;
    const TemporaryFolder root;
    const auto reader = OpenGood(BuildCheckpoint(spec, root.path()));
    hashes.push_back(reader->ComputeModelSha256().value_or("failed"));
    CheckpointSpec merged = spec;
    merged.layers = {{LiveRows(spec), {}}};
    const TemporaryFolder other;
    hashes.push_back(
        OpenGood(BuildCheckpoint(merged, other.path()))->ComputeModelSha256().value_or("failed"));
  }
  EXPECT_THAT(hashes, ::testing::Each(hashes[0]));
  EXPECT_EQ(hashes[0].size(), 64u);
}

TEST(CheckpointReader, ThreadsReadDifferentTables) {
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(3, 500, 2);
  const auto reader = OpenGood(BuildCheckpoint(spec, root.path()));
  std::map<TableId, BuiltRows> wanted = LiveRows(spec);
  std::vector<BuiltRows> seen(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] { seen[i] = ReadAll(*reader, static_cast<TableId>(i % 2), 0, 16); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], wanted[static_cast<TableId>(i % 2)]) << i;
}

TEST(CheckpointReader, AnErrorOfTheVisitEndsIt) {
  const TemporaryFolder root;
  const auto reader = OpenGood(BuildCheckpoint(SomeCheckpoint(1, 50, 2), root.path()));
  int visits = 0;
  const absl::Status status = reader->ForEach(
      0, 0, 16, [&](const StoredRow&) { return ++visits == 5 ? Unavailable("enough") : absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(visits, 5);
}

TEST(CheckpointReader, WhileItIsOpenNobodyGetsTheFolderAlone) {
  const TemporaryFolder root;
  const std::string folder = BuildCheckpoint(SomeCheckpoint(1, 5, 1), root.path());
  const std::string manifest = folder + "/" + kManifestFile;
  auto first = OpenGood(folder);
  const auto second = OpenGood(folder);
  first.reset();
  EXPECT_EQ(FolderLock::TryExclusive(manifest).status().code(), absl::StatusCode::kUnavailable);
}

TEST(CheckpointReader, WhatIsNoCheckpointIsNotFound) {
  const TemporaryFolder root;
  for (const std::string& folder : {root.path(), root / "nowhere"}) {
    const absl::Status status = CheckpointReader::Open(PosixFileSystem(), folder, Verify::kFiles).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is no checkpoint"));
  }
}

TEST(CheckpointReader, AnotherFormatIsNamed) {
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(1, 5, 1);
  spec.edit_manifest = [](CheckpointManifest* manifest) {
    manifest->set_format(3);
    manifest->clear_job();  // whatever a later release may write
    manifest->set_written_by("capstan 9.9");
  };
  const absl::Status newer =
      CheckpointReader::Open(PosixFileSystem(), BuildCheckpoint(spec, root.path()), Verify::kRecords)
          .status();
  EXPECT_EQ(newer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(newer.message()), HasSubstr("has format 3, this release reads 2"));
  EXPECT_THAT(std::string(newer.message()), HasSubstr("capstan 9.9"));
}

// Damage under records that were made to fit it: digests, counts and the model's hash are the last line.
TEST(CheckpointReader, RecordsThatTellLiesAreFoundAtTheRead) {
  struct Case {
    const char* why;
    void (*edit)(ShardRecord* shard);
    const char* says;
  };
  const Case cases[] = {
      {"digest of a layer", [](ShardRecord* s) { s->mutable_layer(1)->mutable_part(0)->set_digest_low(1); },
       "digest"},
      {"a row for a deletion",
       [](ShardRecord* s) {
         for (LayerPartition& part : *s->mutable_layer(1)->mutable_part()) {
           if (part.puts() == 0 || part.deletes() == 0) continue;
           part.set_puts(part.puts() - 1);
           part.set_deletes(part.deletes() + 1);
           return;
         }
         FAIL() << "no partition with rows and deletions";
       },
       "the shard's record says"},
      {"fewer rows in all", [](ShardRecord* s) { s->mutable_rows(0)->set_rows(s->rows(0).rows() - 1); },
       "the record says"},
      {"the layers in one count",
       [](ShardRecord* s) { s->mutable_layer(0)->mutable_part(0)->set_puts(s->layer(0).part(0).puts() - 1); },
       "the shard's record says"},
  };
  for (const Case& c : cases) {
    const TemporaryFolder root;
    CheckpointSpec spec = SomeCheckpoint(2, 200, 2);
    spec.edit_shard = [&](uint32_t shard, ShardRecord* record) {
      if (shard == 1) c.edit(record);
    };
    const auto reader = OpenGood(BuildCheckpoint(spec, root.path()));
    absl::Status status;
    for (TableId table = 0; table < 2 && status.ok(); ++table)
      status = reader->ForEach(table, 0, 16, [](const StoredRow&) { return absl::OkStatus(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr("shard-0001")) << c.why;
    EXPECT_FALSE(reader->VerifyAll({}).ok()) << c.why;
  }
}

TEST(CheckpointReader, AWrongHashOfAPartitionIsFoundByVerify) {
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(1, 50, 1);
  spec.model_sha256 = true;
  spec.edit_shard = [](uint32_t, ShardRecord* record) {
    record->mutable_rows(3)->set_sha256(std::string(32, 'x'));
  };
  const absl::Status status = OpenGood(BuildCheckpoint(spec, root.path()))->VerifyAll({});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("SHA-256"));
}

}  // namespace
}  // namespace capstan
