#include "storage/checkpoint_root.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "tests/storage/fake_parts.h"

namespace capstan {
namespace {

using testing::CommitFake;
using ::testing::ElementsAre;
using testing::FakeHead;
using testing::FlipBit;
using testing::GetFile;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PutFile;
using testing::WriteFakeParts;

constexpr char kRoot[] = "/run/checkpoints";

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class CheckpointRootTest : public ::testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    absl::StatusOr<std::unique_ptr<CheckpointRoot>> root = CheckpointRoot::Open(*fs_, kRoot);
    ASSERT_TRUE(root.ok()) << root.status();
    root_ = *std::move(root);
  }
  CheckpointEntry Add(uint64_t version) {
    const absl::StatusOr<CheckpointEntry> entry = CommitFake(*fs_, *root_, FakeHead(version));
    EXPECT_TRUE(entry.ok()) << entry.status();
    return entry.value_or(CheckpointEntry());
  }

  const std::unique_ptr<MemoryFileSystem> fs_ = NewMemoryFileSystem();
  std::unique_ptr<CheckpointRoot> root_;
};

TEST_F(CheckpointRootTest, ListsWhatWasCommitted) {
  EXPECT_EQ(root_->NewestGood(nullptr).status().code(), absl::StatusCode::kNotFound);
  CheckpointManifest head = FakeHead(100);
  head.set_metric(0.75);
  const absl::StatusOr<CheckpointEntry> first = CommitFake(*fs_, *root_, head);
  ASSERT_TRUE(first.ok()) << first.status();
  Add(200);
  std::vector<std::string> skipped;
  const auto entries = root_->List(&skipped);
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(skipped, IsEmpty());
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ(entries->at(0).id, 1u);
  EXPECT_EQ(entries->at(0).folder, std::string(kRoot) + "/C000001");
  EXPECT_EQ(entries->at(0).version, 100u);
  EXPECT_EQ(entries->at(0).examples, 25600u);
  EXPECT_EQ(entries->at(0).metric, 0.75);
  EXPECT_TRUE(entries->at(0).full);
  EXPECT_FALSE(entries->at(1).full);
  EXPECT_FALSE(entries->at(1).metric.has_value());
  EXPECT_GT(entries->at(1).bytes, entries->at(0).bytes) << "it has the older layer as well";
  EXPECT_EQ(root_->NewestGood(nullptr)->id, 2u);
}

TEST_F(CheckpointRootTest, TheManifestNamesEveryFileAndCountsRows) {
  Add(1);
  const std::string folder = Add(2).folder;
  const auto manifest = ReadCheckpointManifest(*fs_, folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<std::string> names;
  for (const StoredFile& file : manifest->file()) names.push_back(file.name());
  EXPECT_THAT(names, ElementsAre("shard-0000/shard.pb", "shard-0000/C000001-0000.sst",
                                 "shard-0000/C000002-0000.sst", "shard-0001/shard.pb",
                                 "shard-0001/C000001-0000.sst", "shard-0001/C000002-0000.sst"));
  EXPECT_EQ(manifest->rows(), 8u);
  EXPECT_EQ(manifest->format(), kCheckpointFormat);
  EXPECT_THAT(*fs_->List(kRoot), ElementsAre("C000001", "C000002", "capstan-root.pb"));
}

TEST_F(CheckpointRootTest, OtherFoldersAreRefusedByName) {
  PutFile(*fs_, "/home/thesis.txt", "x");
  const absl::Status status = CheckpointRoot::Open(*fs_, "/home").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("'/home' holds 'thesis.txt' and no capstan-root.pb"));
  EXPECT_THAT(*fs_->List("/home"), ElementsAre("thesis.txt"));
}

TEST_F(CheckpointRootTest, TheTokenStaysAndTellsFoldersApart) {
  const std::string token = root_->token();
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  Reopen();
  EXPECT_EQ(root_->token(), token);
  EXPECT_TRUE(CheckRootToken(*fs_, kRoot, token).ok());
  ASSERT_TRUE(CheckpointRoot::Open(*fs_, "/other").ok());
  const absl::Status other = CheckRootToken(*fs_, "/other", token);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(other), HasSubstr("mount the same file system"));
  const absl::Status none = CheckRootToken(*fs_, "/nowhere", token);
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(none), HasSubstr("does not see the folder of checkpoints '/nowhere'"));
}

TEST_F(CheckpointRootTest, IdsAreNeverUsedTwice) {
  EXPECT_EQ(*root_->NextId(), 1u);
  EXPECT_EQ(Add(1).id, 1u);
  ASSERT_TRUE(root_->Begin(2).ok());
  EXPECT_EQ(*root_->NextId(), 3u) << "one that is being made counts";
  EXPECT_EQ(root_->Begin(2).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(root_->Abandon(2).ok());
  Reopen();
  EXPECT_EQ(*root_->NextId(), 3u) << "one that was given up counts";
  ASSERT_TRUE(RemoveTree(*fs_, std::string(kRoot) + "/C000001").ok());
  Reopen();
  EXPECT_EQ(*root_->NextId(), 3u) << "one that somebody removed counts";
  ASSERT_TRUE(fs_->MakeFolders(std::string(kRoot) + "/C000041.del").ok());
  EXPECT_EQ(*root_->NextId(), 42u) << "any folder counts";
}

TEST_F(CheckpointRootTest, ADamagedTokenFileIsMadeAgainFromTheMarkers) {
  const std::string token = root_->token();
  Add(1);
  FlipBit(*fs_, std::string(kRoot) + "/capstan-root.pb");
  Reopen();
  EXPECT_EQ(root_->token(), token);
  EXPECT_GT(*root_->NextId(), 1000u) << "which ids were used is not known any more";
  EXPECT_EQ(root_->NewestGood(nullptr)->id, 1u);
  EXPECT_TRUE(CheckRootToken(*fs_, kRoot, token).ok());
}

TEST_F(CheckpointRootTest, AbandonRemovesTheWorkingFolder) {
  ASSERT_TRUE(root_->Begin(1).ok());
  ASSERT_TRUE(WriteFakeParts(*fs_, root_->WorkingFolderOf(1), 1, "").ok());
  ASSERT_TRUE(root_->Abandon(1).ok());
  EXPECT_THAT(*fs_->List(kRoot), ElementsAre("capstan-root.pb"));
  EXPECT_TRUE(root_->Abandon(1).ok()) << "nothing there is fine";
}

std::string TableFileOf(FileSystem& fs, const std::string& shard_folder) {
  const absl::StatusOr<std::vector<std::string>> names = fs.List(shard_folder);
  EXPECT_TRUE(names.ok()) << names.status();
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name.ends_with(".sst")) return shard_folder + "/" + name;
  }
  ADD_FAILURE() << "no table file in " << shard_folder;
  return "";
}

// What a shard reported and what lies in the folder must be the same.
struct CommitCase {
  const char* why;
  std::function<void(FileSystem&, const std::string& working, std::vector<ShardPart>*, CheckpointManifest*)>
      spoil;
  const char* says;
};

TEST_F(CheckpointRootTest, CommitRefusesWhatDoesNotAgree) {
  const CommitCase kCases[] = {
      {"a record of another size",
       [](FileSystem&, const std::string&, std::vector<ShardPart>* parts, CheckpointManifest*) {
         ++parts->at(1).record_bytes;
       },
       "shard-0001/shard.pb' has"},
      {"a record with another hash",
       [](FileSystem& fs, const std::string& working, std::vector<ShardPart>*, CheckpointManifest*) {
         FlipBit(fs, working + "/shard-0000/shard.pb");
       },
       "shard-0000/shard.pb' has not the hash"},
      {"a table file is gone",
       [](FileSystem& fs, const std::string& working, std::vector<ShardPart>*, CheckpointManifest*) {
         ASSERT_TRUE(fs.Remove(TableFileOf(fs, working + "/shard-0001")).ok());
       },
       ".sst' is missing"},
      {"a table file is cut short",
       [](FileSystem& fs, const std::string& working, std::vector<ShardPart>*, CheckpointManifest*) {
         PutFile(fs, TableFileOf(fs, working + "/shard-0001"), "short");
       },
       ".sst' has 5 bytes, its shard reported"},
      {"a shard's part is missing",
       [](FileSystem&, const std::string&, std::vector<ShardPart>* parts, CheckpointManifest*) {
         parts->pop_back();
       },
       "no shard owns partition 2"},
      {"no shard at all",
       [](FileSystem&, const std::string&, std::vector<ShardPart>* parts, CheckpointManifest*) {
         parts->clear();
       },
       "it lists no shard"},
      {"a job without the table",
       [](FileSystem&, const std::string&, std::vector<ShardPart>*, CheckpointManifest* head) {
         head->mutable_job()->mutable_table(0)->set_id(5);
       },
       "the job has no such table"},
  };
  for (const CommitCase& c : kCases) {
    SCOPED_TRACE(c.why);
    const uint64_t id = *root_->NextId();
    ASSERT_TRUE(root_->Begin(id).ok());
    auto parts = WriteFakeParts(*fs_, root_->WorkingFolderOf(id), id, "");
    ASSERT_TRUE(parts.ok()) << parts.status();
    CheckpointManifest head = FakeHead(1);
    c.spoil(*fs_, root_->WorkingFolderOf(id), &*parts, &head);
    const absl::Status status = root_->Commit(id, head, *parts).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(Message(status), HasSubstr(c.says));
    EXPECT_THAT(Message(status), HasSubstr("committing checkpoint C0000"));
    EXPECT_TRUE(root_->Abandon(id).ok());
  }
  EXPECT_THAT(*fs_->List(kRoot), ElementsAre("capstan-root.pb"));
}

TEST_F(CheckpointRootTest, CommitWantsAWorkingFolderOfOurs) {
  EXPECT_EQ(root_->Commit(1, FakeHead(1), {}).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(fs_->MakeFolders(root_->WorkingFolderOf(1) + "/shard-0000").ok());
  const absl::Status status = root_->Commit(1, FakeHead(1), {}).status();
  EXPECT_THAT(Message(status), HasSubstr("C000001.tmp' is not ours: it has no capstan-folder.pb"));
  EXPECT_EQ(root_->Abandon(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(*fs_->Exists(root_->WorkingFolderOf(1) + "/shard-0000"));
}

// The newest of two checkpoints is spoiled; the one before must be found, and the message must name the
// culprit.
struct DamageCase {
  const char* why;
  std::function<void(FileSystem&, const std::string& folder)> spoil;
  const char* says;
};

void RewriteManifest(FileSystem& fs, const std::string& folder,
                     const std::function<void(CheckpointManifest*)>& edit) {
  auto manifest = ReadCheckpointManifest(fs, folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  edit(&*manifest);
  PutFile(fs, folder + "/manifest.pb", FrameRecord(manifest->SerializeAsString()));
}

const DamageCase kDamageCases[] = {
    {"a bit of the manifest", [](FileSystem& fs, const std::string& f) { FlipBit(fs, f + "/manifest.pb"); },
     "C000002/manifest.pb' is damaged"},
    {"a bit of a record",
     [](FileSystem& fs, const std::string& f) { FlipBit(fs, f + "/shard-0001/shard.pb"); },
     "C000002/shard-0001/shard.pb' is damaged"},
    {"a manifest cut short",
     [](FileSystem& fs, const std::string& f) {
       PutFile(fs, f + "/manifest.pb", GetFile(fs, f + "/manifest.pb").substr(0, 40));
     },
     "C000002/manifest.pb' is damaged"},
    {"an empty manifest", [](FileSystem& fs, const std::string& f) { PutFile(fs, f + "/manifest.pb", ""); },
     "C000002/manifest.pb' is damaged: it has only 0 bytes"},
    {"no manifest",
     [](FileSystem& fs, const std::string& f) { ASSERT_TRUE(fs.Remove(f + "/manifest.pb").ok()); },
     "C000002' is no checkpoint: it has no manifest.pb"},
    {"no record",
     [](FileSystem& fs, const std::string& f) { ASSERT_TRUE(fs.Remove(f + "/shard-0000/shard.pb").ok()); },
     "C000002/shard-0000/shard.pb' is missing"},
    {"no table file",
     [](FileSystem& fs, const std::string& f) {
       ASSERT_TRUE(fs.Remove(f + "/shard-0000/C000001-0000.sst").ok());
     },
     "C000002/shard-0000/C000001-0000.sst' is missing"},
    {"a table file cut short",
     [](FileSystem& fs, const std::string& f) {
       const std::string path = f + "/shard-0001/C000002-0000.sst";
       PutFile(fs, path, GetFile(fs, path).substr(1));
     },
     "C000002/shard-0001/C000002-0000.sst' has"},
    {"a table file too long",
     [](FileSystem& fs, const std::string& f) {
       const std::string path = f + "/shard-0001/C000002-0000.sst";
       PutFile(fs, path, GetFile(fs, path) + "x");
     },
     "C000002/shard-0001/C000002-0000.sst' has"},
    {"a newer format",
     [](FileSystem& fs, const std::string& f) {
       RewriteManifest(fs, f, [](CheckpointManifest* m) {
         m->set_format(kCheckpointFormat + 1);
         m->set_written_by("9.9");
       });
     },
     "made by a newer release (9.9)"},
    {"the manifest of another one",
     [](FileSystem& fs, const std::string& f) {
       RewriteManifest(fs, f, [](CheckpointManifest* m) { m->set_id(1); });
     },
     "C000002' holds the manifest of C000001"},
    {"the manifest of another one, whole",
     [](FileSystem& fs, const std::string& f) {
       PutFile(fs, f + "/manifest.pb", GetFile(fs, std::string(kRoot) + "/C000001/manifest.pb"));
     },
     "C000002' holds the manifest of C000001"},
};

TEST(CheckpointRootDamage, TheOneBeforeIsUsedAndTheDamagedFileIsNamed) {
  for (const DamageCase& c : kDamageCases) {
    SCOPED_TRACE(c.why);
    const auto fs = NewMemoryFileSystem();
    auto root = CheckpointRoot::Open(*fs, kRoot);
    ASSERT_TRUE(root.ok());
    ASSERT_TRUE(CommitFake(*fs, **root, FakeHead(1)).ok());
    ASSERT_TRUE(CommitFake(*fs, **root, FakeHead(2)).ok());
    c.spoil(*fs, std::string(kRoot) + "/C000002");
    std::vector<std::string> skipped;
    const auto newest = (*root)->NewestGood(&skipped);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_EQ(newest->id, 1u);
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_THAT(skipped[0], HasSubstr(c.says));
    EXPECT_EQ(skipped[0].rfind("C000002: ", 0), 0u) << skipped[0];
    EXPECT_EQ(testing::WhatIsNotAsWritten(*fs, newest->folder), "");
  }
}

TEST_F(CheckpointRootTest, WhereNoneIsGoodTheReasonIsTold) {
  const std::string folder = Add(1).folder;
  FlipBit(*fs_, folder + "/manifest.pb");
  const absl::Status status = root_->NewestGood(nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("C000001: '/run/checkpoints/C000001/manifest.pb' is damaged"));
}

TEST_F(CheckpointRootTest, MoreThanSixDigitsAreStillNewer) {
  ASSERT_TRUE(fs_->MakeFolders(std::string(kRoot) + "/C999998.tmp").ok());
  Add(1);
  EXPECT_EQ(Add(2).folder, std::string(kRoot) + "/C1000000");
  EXPECT_EQ(root_->NewestGood(nullptr)->id, 1000000u);
}

TEST_F(CheckpointRootTest, AToolFindsTheNewestGoodOne) {
  const std::string first = Add(1).folder;
  const std::string second = Add(2).folder;
  for (const std::string path : {"/run", "/run/", "/run/checkpoints", "/run/checkpoints//"}) {
    EXPECT_EQ(*FindCheckpoint(*fs_, path, nullptr), second) << path;
  }
  EXPECT_EQ(*FindCheckpoint(*fs_, first + "/", nullptr), first);
  FlipBit(*fs_, second + "/manifest.pb");
  std::vector<std::string> skipped;
  EXPECT_EQ(*FindCheckpoint(*fs_, "/run", &skipped), first);
  EXPECT_EQ(skipped.size(), 1u);
  EXPECT_EQ(*FindCheckpoint(*fs_, second, nullptr), second) << "its reader will say what is wrong with it";
  ASSERT_TRUE(fs_->Remove(second + "/manifest.pb").ok());
  EXPECT_EQ(*FindCheckpoint(*fs_, second, nullptr), second);

  ASSERT_TRUE(root_->Begin(3).ok());
  EXPECT_THAT(Message(FindCheckpoint(*fs_, root_->WorkingFolderOf(3), nullptr).status()),
              HasSubstr("not finished"));
  EXPECT_THAT(Message(FindCheckpoint(*fs_, "/gone", nullptr).status()), HasSubstr("'/gone' does not exist"));
  ASSERT_TRUE(fs_->MakeFolders("/empty").ok());
  EXPECT_THAT(Message(FindCheckpoint(*fs_, "/empty", nullptr).status()),
              HasSubstr("'/empty' holds no checkpoint"));
  EXPECT_EQ(FindCheckpoint(*fs_, "", nullptr).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace capstan
