// The folder of checkpoints: whole or absent whatever fails, the last good one never lost, nothing of others removed.
#include "storage/checkpoint_root.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/partition_map.h"
#include "storage/checkpoint_list.h"
#include "storage/checkpoint_reader.h"
#include "tests/support/core_testing.h"
#include "tests/support/fake_snapshot.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kRoot[] = "run/checkpoints";
constexpr uint32_t kPartitions = 8;

// One shard's part of a job with one row in table 0: key 5 has the value of the checkpoint's id.
absl::StatusOr<ShardPart> WritePart(FileSystem& fs, const std::string& folder, uint64_t id) {
  testing::FakeSnapshotSink sink(fs);
  SnapshotOrder order;
  order.id = id;
  order.folder = folder + "/" + ShardFolderName(0);
  order.model_sha256 = true;
  order.tables = {{0, 1}, {1, 2}};
  sink.Begin(order);
  const Key key = 5;
  const PartitionId partition = PartitionOf(key, kPartitions);
  std::vector<std::byte> row(sizeof(Key) + StoredValueBytes(1));
  const auto value = static_cast<float>(id);
  std::memcpy(row.data(), &key, sizeof(key));
  std::memcpy(row.data() + sizeof(key), &value, sizeof(value));
  SnapshotChunk chunk;
  chunk.table = 0;
  chunk.partition = partition;
  chunk.floats = 1;
  chunk.rows = row;
  chunk.last = true;
  chunk.partition_rows = 1;
  chunk.digest.AddRecord(0, row.data(), row.size());
  sink.Offer(chunk);
  ShardRecord record;
  record.add_owned()->set_count(kPartitions);
  PartitionRows* rows = record.add_rows();
  rows->set_table(0);
  rows->set_partition(partition);
  rows->set_rows(1);
  record.set_version(10 * id);
  record.mutable_totals()->set_examples(100 * id);
  sink.Finish(record);
  const std::optional<SnapshotResult> result = sink.Poll();
  if (!result.has_value()) return Internal("no result");
  CAPSTAN_RETURN_IF_ERROR(result->status);
  return ShardPart{result->record_bytes, result->record_xxh3};
}

absl::StatusOr<CheckpointEntry> Store(FileSystem& fs, CheckpointRoot& root, std::optional<double> metric = {}) {
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t id, root.NextId());
  CAPSTAN_RETURN_IF_ERROR(root.Begin(id));
  const absl::StatusOr<ShardPart> part = WritePart(fs, root.WorkingFolderOf(id), id);
  CheckpointManifest head;
  *head.mutable_job() = testing::SmallJob(testing::JobOptions());
  if (metric.has_value()) head.set_metric(*metric);
  absl::StatusOr<CheckpointEntry> entry =
      part.ok() ? root.Commit(id, head, {*part}) : absl::StatusOr<CheckpointEntry>(part.status());
  if (!entry.ok()) root.Abandon(id).IgnoreError();  // as the director does; the first error counts
  return entry;
}

// The value of key 5, read back.
float ValueIn(FileSystem& fs, const std::string& folder) {
  const auto source = testing::FakeRowSources(fs)(folder);
  EXPECT_TRUE(source.ok()) << source.status();
  float value = -1;
  if (!source.ok()) return value;
  EXPECT_EQ((*source)->ForEach(0, 0, kPartitions, [&value](const StoredRow& row) {
    value = row.values[0];
    return absl::OkStatus();
  }), absl::OkStatus());
  return value;
}

std::unique_ptr<CheckpointRoot> OpenRoot(FileSystem& fs) {
  auto root = CheckpointRoot::Open(fs, kRoot);
  EXPECT_TRUE(root.ok()) << root.status();
  return root.ok() ? *std::move(root) : nullptr;
}

std::vector<uint64_t> IdsOf(FileSystem& fs) {
  std::vector<std::string> skipped;
  std::vector<uint64_t> ids;
  const auto entries = ListCheckpoints(fs, kRoot, &skipped);
  EXPECT_TRUE(entries.ok()) << entries.status();
  for (const CheckpointEntry& entry : *entries) ids.push_back(entry.id);
  return ids;
}

TEST(CheckpointRoot, CommitsWhatTheShardsWrote) {
  const auto disk = NewMemoryFileSystem();
  const auto root = OpenRoot(*disk);
  const auto entry = Store(*disk, *root);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->id, 1u);
  EXPECT_EQ(entry->folder, "run/checkpoints/C000001");
  EXPECT_EQ(entry->version, 10u);
  EXPECT_EQ(entry->examples, 100u);
  EXPECT_EQ(entry->model_sha256.size(), 64u);
  EXPECT_EQ(ValueIn(*disk, entry->folder), 1.0f);
  const auto again = OpenRoot(*disk);
  EXPECT_EQ(again->token(), root->token());
  EXPECT_EQ(CheckRootToken(*disk, kRoot, root->token()), absl::OkStatus());
  EXPECT_THAT(std::string(CheckRootToken(*disk, kRoot, "other").message()), HasSubstr("belongs to another run"));
  EXPECT_THAT(std::string(CheckRootToken(*disk, "elsewhere", root->token()).message()), HasSubstr("elsewhere"));
  std::vector<std::string> skipped;
  for (const char* path : {"run", "run/checkpoints", "run/checkpoints/C000001"}) {
    EXPECT_EQ(*FindCheckpoint(*disk, path, CheckpointCheck::kFiles, &skipped), entry->folder) << path;
  }
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(*disk, "else", CheckpointCheck::kFiles, &skipped).status()));
}

TEST(CheckpointRoot, NeverGivesANumberTwice) {
  const auto disk = NewMemoryFileSystem();
  EXPECT_EQ(*OpenRoot(*disk)->NextId(), 1u);
  const auto root = OpenRoot(*disk);
  EXPECT_EQ(*root->NextId(), 2u);
  ASSERT_TRUE(Store(*disk, *root).ok());
  ASSERT_EQ(RemoveTree(*disk, root->FolderOf(3)), absl::OkStatus());
  EXPECT_EQ(*OpenRoot(*disk)->NextId(), 4u);
}

TEST(CheckpointRoot, RefusesAFolderOfOtherThings) {
  const auto disk = NewMemoryFileSystem();
  ASSERT_EQ(disk->MakeFolders(kRoot), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*disk, std::string(kRoot) + "/photo.jpg", "x"), absl::OkStatus());
  const auto root = CheckpointRoot::Open(*disk, kRoot);
  EXPECT_TRUE(absl::IsInvalidArgument(root.status()));
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("photo.jpg"));
}

// Every call fails in turn, in each of these ways.
TEST(CheckpointRootFaults, NoSingleFailureLosesTheLastGoodOne) {
  for (int way = 0; way < 3; ++way) {
    uint64_t committed = 0;
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(fmt::format("way {}, call {}", way, at));
      const auto disk = NewMemoryFileSystem();
      FaultyFileSystem faulty(*disk);
      const auto root = OpenRoot(faulty);
      ASSERT_TRUE(Store(faulty, *root).ok());
      ASSERT_TRUE(Store(faulty, *root).ok());
      DiskFault fault;
      fault.at = at;
      fault.takes_effect = way == 1;
      fault.half_appended = way == 2;
      faulty.Arm(fault);
      const auto entry = Store(faulty, *root);
      std::vector<std::string> log;
      if (entry.ok()) (void)root->Retain({.keep_last = 1}, {entry->id}, &log);
      const bool fired = faulty.fired();
      faulty.Arm({});
      std::vector<std::string> skipped;
      const auto newest = root->NewestGood(&skipped);
      ASSERT_TRUE(newest.ok()) << newest.status();
      EXPECT_GE(newest->id, entry.ok() ? entry->id : 2u);
      EXPECT_EQ(ValueIn(*disk, newest->folder), static_cast<float>(newest->id));
      EXPECT_THAT(skipped, IsEmpty());
      EXPECT_EQ(root->CleanUp(0, &log), absl::OkStatus());
      const auto retry = Store(faulty, *root);
      ASSERT_TRUE(retry.ok()) << "the next one: " << retry.status();
      EXPECT_EQ(ValueIn(*disk, retry->folder), static_cast<float>(retry->id));
      committed += entry.ok() ? 1 : 0;
      if (!fired) break;
      ASSERT_LT(at, 1000u);
    }
    EXPECT_GT(committed, 0u);
  }
}

TEST(CheckpointRootFaults, APowerCutLeavesTheOldOneOrTheNewOneWhole) {
  using Keep = MemoryFileSystem::Keep;
  for (const Keep keep : {Keep::kSynced, Keep::kEverything, Keep::kSomething}) {
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(fmt::format("keep {}, call {}", static_cast<int>(keep), at));
      const auto disk = NewMemoryFileSystem();
      FaultyFileSystem faulty(*disk);
      {
        const auto root = OpenRoot(faulty);
        ASSERT_TRUE(Store(faulty, *root).ok());
        DiskFault fault;
        fault.at = at;
        fault.for_ever = true;  // the process is gone from here on
        faulty.Arm(fault);
        const auto entry = Store(faulty, *root);
        std::vector<std::string> log;
        if (entry.ok()) (void)root->Retain({.keep_last = 1}, {entry->id}, &log);
      }
      const bool fired = faulty.fired();
      disk->PowerCut(keep, at * 7 + 1);
      const auto root = OpenRoot(*disk);
      ASSERT_NE(root, nullptr);
      std::vector<std::string> skipped, log;
      const auto newest = root->NewestGood(&skipped);
      ASSERT_TRUE(newest.ok()) << newest.status();
      EXPECT_THAT(newest->id, AnyOf(1u, 2u));
      EXPECT_EQ(ValueIn(*disk, newest->folder), static_cast<float>(newest->id));
      (void)root->CleanUp(0, &log);
      const auto next = Store(*disk, *root);
      ASSERT_TRUE(next.ok()) << next.status();
      EXPECT_GE(next->id, 2u);
      if (!fired) break;
      ASSERT_LT(at, 1000u);
    }
  }
}

TEST(CheckpointRoot, DamagedOnesAreNamedAndTheOneBeforeIsUsed) {
  struct Case {
    const char* what;
    std::function<void(FileSystem& fs, const std::string& folder)> damage;
    const char* says;
  };
  const auto flip = [](const std::string& name) {
    return [name](FileSystem& fs, const std::string& folder) {
      std::string bytes = *ReadWholeFile(fs, folder + name, 1 << 20);
      bytes[bytes.size() / 2] ^= 1;
      const auto file = *fs.Create(folder + name);
      ASSERT_EQ(file->Append(bytes.data(), bytes.size()), absl::OkStatus());
    };
  };
  const auto truncate = [](const std::string& name) {
    return [name](FileSystem& fs, const std::string& folder) {
      const std::string bytes = *ReadWholeFile(fs, folder + name, 1 << 20);
      const auto file = *fs.Create(folder + name);
      ASSERT_EQ(file->Append(bytes.data(), bytes.size() - 1), absl::OkStatus());
    };
  };
  const auto remove = [](const std::string& name) {
    return [name](FileSystem& fs, const std::string& folder) { ASSERT_EQ(fs.Remove(folder + name), absl::OkStatus()); };
  };
  const auto newer = [](FileSystem& fs, const std::string& folder) {
    CheckpointManifest manifest = *ReadCheckpointManifest(fs, folder);
    manifest.set_format(kCheckpointFormat + 1);
    ASSERT_EQ(WriteFileAtomically(fs, folder + "/manifest.pb", FrameRecord(manifest.SerializeAsString())),
              absl::OkStatus());
  };
  const Case cases[] = {
      {"a flipped bit of the manifest", flip("/manifest.pb"), "manifest.pb"},
      {"a flipped bit of a record", flip("/shard-0000/shard.pb"), "shard.pb"},
      {"a truncated manifest", truncate("/manifest.pb"), "manifest.pb"},
      {"a truncated record", truncate("/shard-0000/shard.pb"), "shard.pb"},
      {"no manifest", remove("/manifest.pb"), "manifest"},
      {"no record", remove("/shard-0000/shard.pb"), "shard.pb"},
      {"a manifest of a newer release", newer, "format 3"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const auto disk = NewMemoryFileSystem();
    const auto root = OpenRoot(*disk);
    ASSERT_TRUE(Store(*disk, *root).ok());
    ASSERT_TRUE(Store(*disk, *root).ok());
    c.damage(*disk, root->FolderOf(2));
    std::vector<std::string> skipped, log;
    const auto newest = root->NewestGood(&skipped);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_EQ(newest->id, 1u);
    ASSERT_THAT(skipped, SizeIs(1));
    EXPECT_THAT(skipped[0], HasSubstr("C000002"));
    EXPECT_THAT(skipped[0], HasSubstr(c.says));
    // However few are to be kept, the good one is among them.
    EXPECT_EQ(root->Retain({.keep_last = 1}, {}, &log), absl::OkStatus());
    EXPECT_TRUE(*disk->Exists(root->FolderOf(1)));
  }
}

TEST(CheckpointRoot, KeepsWhatThePolicySays) {
  struct Case {
    RetentionPolicy policy;
    std::vector<uint64_t> kept;
  };
  const Case cases[] = {
      {{.keep_last = 3}, {6, 7, 8}},
      {{.keep_last = 1}, {8}},
      {{.keep_last = 0}, {8}},
      {{.keep_last = 1, .keep_every = 3}, {3, 6, 8}},
      {{.keep_last = 1, .keep_best = 2}, {2, 5, 8}},
      {{.keep_last = 2, .keep_every = 4, .keep_best = 1}, {2, 4, 7, 8}},
      {{.keep_last = 100}, {1, 2, 3, 4, 5, 6, 7, 8}},
  };
  const double metrics[] = {0.1, 0.9, 0.3, 0.2, 0.8, 0.5, 0.4, 0.6};
  for (const Case& c : cases) {
    const auto disk = NewMemoryFileSystem();
    const auto root = OpenRoot(*disk);
    for (const double metric : metrics) ASSERT_TRUE(Store(*disk, *root, metric).ok());
    std::vector<std::string> log;
    EXPECT_EQ(root->Retain(c.policy, {}, &log), absl::OkStatus());
    EXPECT_EQ(IdsOf(*disk), c.kept);
    EXPECT_EQ(log.size(), 8 - c.kept.size());
  }
}

TEST(CheckpointRoot, RemovesWhatIsUnfinishedBesideWritersAtWork) {
  const auto disk = NewMemoryFileSystem();
  const auto root = OpenRoot(*disk);
  const std::string merge = std::string(kRoot) + "/.compact-shard-0000";
  ASSERT_EQ(disk->MakeFolders(merge), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*disk, merge + "/capstan-compact", "x"), absl::OkStatus());
  ASSERT_EQ(root->Begin(1), absl::OkStatus());
  std::vector<std::string> log;
  EXPECT_EQ(root->RemoveUnfinished(/*keep=*/0, &log), absl::OkStatus());
  EXPECT_FALSE(*disk->Exists(root->WorkingFolderOf(1)));
  EXPECT_TRUE(*disk->Exists(merge));
  EXPECT_EQ(root->CleanUp(/*keep=*/0, &log), absl::OkStatus());
  EXPECT_FALSE(*disk->Exists(merge));
}

TEST(CheckpointRoot, LeavesAloneWhatIsInUseOrNotItsOwn) {
  const auto disk = NewMemoryFileSystem();
  const auto root = OpenRoot(*disk);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Store(*disk, *root).ok());
  // Somebody copied a checkpoint of another run here, and left a folder that looks like one being made.
  ASSERT_EQ(disk->Rename(root->FolderOf(2), root->FolderOf(9)), absl::OkStatus());
  ASSERT_EQ(disk->Remove(root->FolderOf(9) + "/capstan-made.pb"), absl::OkStatus());
  const std::string foreign = std::string(kRoot) + "/C000012.tmp";
  ASSERT_EQ(disk->MakeFolders(foreign), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(*disk, foreign + "/notes", "x"), absl::OkStatus());
  ASSERT_EQ(root->Begin(13), absl::OkStatus());
  ASSERT_EQ(root->Begin(14), absl::OkStatus());
  std::vector<std::string> log;
  EXPECT_EQ(root->CleanUp(/*keep=*/14, &log), absl::OkStatus());
  EXPECT_FALSE(*disk->Exists(root->WorkingFolderOf(13)));
  EXPECT_TRUE(*disk->Exists(root->WorkingFolderOf(14)));
  EXPECT_TRUE(*disk->Exists(foreign + "/notes"));
  EXPECT_THAT(log, ::testing::Contains(HasSubstr("C000012.tmp is left alone")));
  EXPECT_EQ(root->Retain({.keep_last = 1}, {1}, &log), absl::OkStatus());
  EXPECT_THAT(IdsOf(*disk), ElementsAre(1u, 9u)) << "1 is in use, 9 is the newest and not ours; 3 went";
}

}  // namespace
}  // namespace capstan
