#include "storage/checkpoint_records.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "common/hash.h"
#include "storage/checkpoint_format.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::CheckpointSpec;
using ::testing::HasSubstr;
using testing::SomeCheckpoint;
using testing::TemporaryFolder;

TEST(FrameRecord, ThereAndBack) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(1000, '\0')}) {
    const std::string framed = FrameRecord(bytes);
    EXPECT_EQ(framed.size(), bytes.size() + 8);
    ASSERT_TRUE(WriteFileAtomically(*fs, "record", framed).ok());
    EXPECT_EQ(ReadRecord(*fs, "record", 2000).value_or("failed"), bytes);
    for (size_t i = 0; i < framed.size(); ++i) {
      std::string bad = framed;
      bad[i] = static_cast<char>(bad[i] ^ 4);
      EXPECT_EQ(UnframeRecord(bad, "record").status().code(), absl::StatusCode::kDataLoss);
    }
    for (size_t size = 0; size < framed.size(); ++size)
      EXPECT_EQ(UnframeRecord(framed.substr(0, size), "record").status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(ReadRecord(*fs, "record", 10).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadRecord(*fs, "nothing", 10).status().code(), absl::StatusCode::kNotFound);
}

TEST(HashFile, IsThatOfThePieces) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  for (const size_t size :
       {size_t{0}, size_t{5}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{3'000'000}}) {
    const std::string bytes(size, 'a');
    ASSERT_TRUE(WriteFileAtomically(*fs, "file", bytes).ok());
    EXPECT_EQ(HashFile(*fs, "file").value_or(""), ToBytes(HashBytes128(bytes.data(), bytes.size()))) << size;
  }
  EXPECT_EQ(HashFile(*fs, "nothing").status().code(), absl::StatusCode::kNotFound);
}

TEST(PlainFileName, NoneLeadsOutOfTheFolder) {
  for (const char* good : {"manifest.pb", "shard-0003/C000007-0000.sst", "a", "a_B-9.x", "_/_"}) {
    EXPECT_TRUE(IsPlainFileName(good)) << good;
  }
  for (const char* bad : {"", "/", "/etc/passwd", "..", "../x", "a/../b", "a//b", "a/", "./a", ".hidden",
                          "a/.b", "a b", "a\nb", "a\\b", "-rf", "ä", "a/-b"}) {
    EXPECT_FALSE(IsPlainFileName(bad)) << bad;
  }
  EXPECT_FALSE(IsPlainFileName(std::string_view("a\0b", 3)));
}

TEST(CheckpointRecords, AreLoadedAsWritten) {
  const TemporaryFolder root;
  const std::string folder = testing::BuildCheckpoint(SomeCheckpoint(3, 50, 3), root.path());
  const auto records = CheckpointRecords::Load(PosixFileSystem(), folder);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->manifest.id(), 3u);
  ASSERT_EQ(records->shards.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(records->shards[i].shard(), i);
  EXPECT_EQ(ReadCheckpointManifest(PosixFileSystem(), folder)->SerializeAsString(),
            records->manifest.SerializeAsString());
}

TEST(CheckpointRecords, ThousandsOfShardsAreNotConfused) {
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(1, 10, 12);
  const auto records =
      CheckpointRecords::Load(PosixFileSystem(), testing::BuildCheckpoint(spec, root.path()));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->shards.size(), 12u);
}

// What a checkpoint says, changed in one place with all checksums right.
struct Lie {
  const char* why;
  std::function<void(CheckpointManifest*)> manifest;
  std::function<void(ShardRecord*)> shard;  // of shard 1
  const char* says;
};

// The builder lists what the shards' records name, twice if they do.
void DropDoubles(CheckpointManifest* manifest) {
  std::set<std::string> names;
  auto* files = manifest->mutable_file();
  files->erase(std::remove_if(files->begin(), files->end(),
                              [&](const StoredFile& file) { return !names.insert(file.name()).second; }),
               files->end());
}

std::vector<Lie> ManifestLies() {
  return {
      {"no partitions",
       [](auto* m) { m->mutable_job()->mutable_config()->mutable_cluster()->set_partitions(0); },
       {},
       "0"},
      {"partitions no power of two",
       [](auto* m) { m->mutable_job()->mutable_config()->mutable_cluster()->set_partitions(15); },
       {},
       "15"},
      {"no table", [](auto* m) { m->mutable_job()->clear_table(); }, {}, "no table"},
      {"a table's id twice",
       [](auto* m) { m->mutable_job()->mutable_table(1)->set_id(0); },
       {},
       "another one has"},
      {"a name outside",
       [](auto* m) { m->mutable_file(1)->set_name("../x"); },
       {},
       "leads out of the folder"},
      {"an absolute name",
       [](auto* m) { m->mutable_file(1)->set_name("/etc/passwd"); },
       {},
       "leads out of the folder"},
      {"a file twice", [](auto* m) { *m->add_file() = m->file(1); }, {}, "there twice"},
      {"the manifest in itself",
       [](auto* m) { m->mutable_file(1)->set_name("manifest.pb"); },
       {},
       "manifest.pb"},
      {"a file without hash", [](auto* m) { m->mutable_file(1)->clear_xxh3(); }, {}, "no XXH3-128"},
      {"no shard", [](auto* m) { m->clear_file(); }, {}, "no shard"},
      {"a shard is missing",
       [](auto* m) { m->mutable_file(0)->set_name("shard-0007/shard.pb"); },
       {},
       "not shard 0"},
      {"a file is missing",
       [](auto* m) {
         m->add_file()->set_name("other");
         m->mutable_file(m->file_size() - 1)->set_xxh3(std::string(16, 'x'));
       },
       {},
       "other' is missing"},
      {"a size", [](auto* m) { m->mutable_file(1)->set_bytes(5); }, {}, "the manifest says 5"},
      {"a layer's hash",
       [](auto* m) { m->mutable_file(1)->set_xxh3(std::string(16, 'x')); },
       {},
       "not in the manifest"},
      {"a shard's hash",
       [](auto* m) { m->mutable_file(0)->set_xxh3(std::string(16, 'x')); },
       {},
       "shard.pb' is damaged"},
      {"rows in all", [](auto* m) { m->set_rows(m->rows() + 1); }, {}, "the manifest says"},
      {"no model's hash", [](auto* m) { m->set_model_sha256("abc"); }, {}, "no SHA-256 in hex"},
      {"another model's hash",
       [](auto* m) { m->set_model_sha256(std::string(64, 'a')); },
       {},
       "model_sha256"},
      {"a layer from the future", [](auto* m) { m->set_id(1); }, {}, "not in order"},
  };
}

std::vector<Lie> ShardLies() {
  return {
      {"another shard", {}, [](auto* s) { s->set_shard(0); }, "says shard 0"},
      {"a partition of two",
       {},
       [](auto* s) {
         s->mutable_owned(0)->set_first(7);
         s->mutable_owned(0)->set_count(9);
       },
       "which shard 0 has too"},
      {"a partition of none",
       {},
       [](auto* s) { s->mutable_owned(0)->set_count(7); },
       "the shard does not own it"},
      {"partitions above all", {}, [](auto* s) { s->mutable_owned(0)->set_count(~0u); }, "owns partitions"},
      {"layers backwards", {}, [](auto* s) { s->mutable_layer(1)->set_checkpoint(1); }, "not in order"},
      {"a file of another shard", DropDoubles,
       [](auto* s) { s->mutable_layer(0)->mutable_file(0)->set_name("shard-0000/C000001-0000.sst"); },
       "not in the manifest"},
      {"a file twice", DropDoubles, [](auto* s) { *s->mutable_layer(0)->add_file() = s->layer(0).file(0); },
       "belongs to two layers"},
      {"files for nothing",
       {},
       [](auto* s) { s->mutable_layer(0)->clear_part(); },
       "1 files for 0 partitions"},
      {"more rows than bytes",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(0)->set_puts(1'000'000'000'000); },
       "more rows than the files can hold"},
      {"more deletions than bytes",
       {},
       [](auto* s) { s->mutable_layer(1)->mutable_part(0)->set_deletes(~uint64_t{0}); },
       "more deletions than"},
      {"deletions below all",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(0)->set_deletes(1); },
       "in the first layer"},
      {"an unknown table",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(0)->set_table(9); },
       "no such table"},
      {"parts backwards",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part()->SwapElements(0, 1); },
       "not in order"},
      {"rows of a gigabyte",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(0)->set_floats(1u << 28); },
       "floats a row"},
      {"rows of no width",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(0)->set_floats(0); },
       "0 floats a row"},
      {"two lengths of row",
       {},
       [](auto* s) { s->mutable_layer(0)->mutable_part(1)->set_floats(3); },
       "3 floats a row"},
      {"rows of nowhere",
       {},
       [](auto* s) { s->mutable_rows(0)->set_partition(0); },
       "more than its layers have"},
      {"rows without end",
       {},
       [](auto* s) { s->mutable_rows(0)->set_rows(~uint64_t{0}); },
       "more than its layers have"},
  };
}

void ExpectFound(const Lie& lie) {
  SCOPED_TRACE(lie.why);
  const TemporaryFolder root;
  CheckpointSpec spec = SomeCheckpoint(2, 100, 2);
  spec.model_sha256 = true;
  spec.edit_manifest = lie.manifest;
  spec.edit_shard = [&](uint32_t shard, ShardRecord* record) {
    if (shard == 1 && lie.shard) lie.shard(record);
  };
  const std::string folder = testing::BuildCheckpoint(spec, root.path());
  const absl::Status status = CheckpointRecords::Load(PosixFileSystem(), folder).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(lie.says));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder));
}

TEST(CheckpointRecords, LiesOfTheManifestAreFound) {
  for (const Lie& lie : ManifestLies()) ExpectFound(lie);
}

TEST(CheckpointRecords, LiesOfAShardAreFound) {
  for (const Lie& lie : ShardLies()) ExpectFound(lie);
}

}  // namespace
}  // namespace capstan
