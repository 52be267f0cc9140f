// What a root removes, and above all what it does not.
#include <filesystem>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_root.h"
#include "storage/folder_lock.h"
#include "tests/storage/fake_parts.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::CommitFake;
using ::testing::ElementsAre;
using testing::FakeHead;
using testing::FlipBit;
using ::testing::HasSubstr;
using testing::PutFile;
using testing::WhatIsNotAsWritten;
using testing::WriteFakeParts;

std::unique_ptr<CheckpointRoot> OpenRoot(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::unique_ptr<CheckpointRoot>> root = CheckpointRoot::Open(fs, path);
  EXPECT_TRUE(root.ok()) << root.status();
  return *std::move(root);
}

void AddFakes(FileSystem& fs, CheckpointRoot& root, int n) {
  for (int i = 0; i < n; ++i) {
    const absl::StatusOr<CheckpointEntry> entry = CommitFake(fs, root, FakeHead(1));
    ASSERT_TRUE(entry.ok()) << entry.status();
  }
}

std::vector<uint64_t> IdsOf(CheckpointRoot& root) {
  std::vector<uint64_t> ids;
  const absl::StatusOr<std::vector<CheckpointEntry>> entries = root.List(nullptr);
  EXPECT_TRUE(entries.ok()) << entries.status();
  if (!entries.ok()) return ids;
  for (const CheckpointEntry& entry : *entries) ids.push_back(entry.id);
  return ids;
}

constexpr double kNone = -1;  // no metric
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct PolicyCase {
  const char* why;
  RetentionPolicy policy;
  std::vector<double> metrics;  // of checkpoints 1, 2, …
  std::vector<uint64_t> in_use;
  std::vector<uint64_t> kept;
};

const PolicyCase kPolicyCases[] = {
    {"fewer than it keeps", {3, 0, 0}, {kNone, kNone}, {}, {1, 2}},
    {"as many as it keeps", {3, 0, 0}, {kNone, kNone, kNone}, {}, {1, 2, 3}},
    {"one more", {3, 0, 0}, {kNone, kNone, kNone, kNone}, {}, {2, 3, 4}},
    {"the last", {1, 0, 0}, {kNone, kNone, kNone}, {}, {3}},
    {"none is one all the same", {0, 0, 0}, {kNone, kNone, kNone}, {}, {3}},
    {"nothing there", {1, 0, 0}, {}, {}, {}},
    {"every second", {1, 2, 0}, {kNone, kNone, kNone, kNone, kNone}, {}, {2, 4, 5}},
    {"every one", {1, 1, 0}, {kNone, kNone, kNone}, {}, {1, 2, 3}},
    {"every tenth of few", {1, 10, 0}, {kNone, kNone, kNone}, {}, {3}},
    {"the best two", {1, 0, 2}, {0.9, 0.5, 0.8, 0.1}, {}, {1, 3, 4}},
    {"the best is the last", {1, 0, 1}, {0.5, 0.6, 0.9}, {}, {3}},
    {"of equals the newer", {1, 0, 1}, {0.9, 0.9, 0.1}, {}, {2, 3}},
    {"without a metric is not best", {1, 0, 2}, {kNone, 0.1, kNone, kNone}, {}, {2, 4}},
    {"no number is not best", {1, 0, 1}, {kNan, 0.1, kNone}, {}, {2, 3}},
    {"worse than nothing is a metric", {1, 0, 1}, {-5, kNone, kNone}, {}, {1, 3}},
    {"all three", {2, 3, 1}, {0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, {}, {1, 3, 6, 7}},
    {"in use", {1, 0, 0}, {kNone, kNone, kNone}, {1}, {1, 3}},
    {"in use and gone", {1, 0, 0}, {kNone, kNone}, {9}, {2}},
};

TEST(Retention, FollowsTheTable) {
  for (const PolicyCase& c : kPolicyCases) {
    SCOPED_TRACE(c.why);
    const auto fs = NewMemoryFileSystem();
    const auto root = OpenRoot(*fs, "/root");
    for (const double metric : c.metrics) {
      CheckpointManifest head = FakeHead(1);
      if (metric != kNone) head.set_metric(metric);
      ASSERT_TRUE(CommitFake(*fs, *root, head).ok());
    }
    std::vector<std::string> log;
    ASSERT_TRUE(root->Retain(c.policy, c.in_use, &log).ok());
    EXPECT_EQ(IdsOf(*root), c.kept);
    EXPECT_EQ(log.size(), c.metrics.size() - c.kept.size());
    EXPECT_EQ(fs->List("/root")->size(), c.kept.size() + 1) << "something was left behind";
    for (const uint64_t id : c.kept) EXPECT_EQ(WhatIsNotAsWritten(*fs, root->FolderOf(id)), "");
    EXPECT_EQ(*root->NextId(), c.metrics.size() + 1);
  }
}

TEST(Retention, TheOnlyGoodOneStaysHoweverManyDamagedOnesAreNewer) {
  const auto fs = NewMemoryFileSystem();
  const auto root = OpenRoot(*fs, "/root");
  AddFakes(*fs, *root, 5);
  FlipBit(*fs, "/root/C000003/shard-0000/shard.pb");
  FlipBit(*fs, "/root/C000004/manifest.pb");
  ASSERT_TRUE(fs->Remove("/root/C000005/shard-0001/C000005-0000.sst").ok());
  std::vector<std::string> log;
  ASSERT_TRUE(root->Retain({1, 0, 0}, {}, &log).ok());
  EXPECT_EQ(root->NewestGood(nullptr)->id, 2u);
  EXPECT_THAT(*fs->List("/root"), ElementsAre("C000002", "C000003", "C000004", "C000005", "capstan-root.pb"));
  EXPECT_THAT(log, ElementsAre(HasSubstr("left alone: C000004: "), HasSubstr("left alone: C000005: "),
                               HasSubstr("left alone: C000003: "), "C000001: removed"));
}

TEST(Retention, NoneGoodNoneRemoved) {
  const auto fs = NewMemoryFileSystem();
  const auto root = OpenRoot(*fs, "/root");
  AddFakes(*fs, *root, 2);
  for (const char* folder : {"/root/C000001", "/root/C000002"})
    FlipBit(*fs, std::string(folder) + "/shard-0000/shard.pb");
  ASSERT_TRUE(root->Retain({1, 0, 0}, {}, nullptr).ok());
  EXPECT_THAT(*fs->List("/root"), ElementsAre("C000001", "C000002", "capstan-root.pb"));
}

TEST(Retention, WhatWeDidNotMakeIsLeftAlone) {
  const auto fs = NewMemoryFileSystem();
  const auto root = OpenRoot(*fs, "/root");
  const auto other = OpenRoot(*fs, "/other");
  AddFakes(*fs, *root, 3);
  AddFakes(*fs, *other, 3);
  // 1 is of another root, 2 has lost its marker; a folder's name alone is no proof.
  ASSERT_TRUE(RemoveTree(*fs, "/root/C000001").ok());
  ASSERT_TRUE(fs->Rename("/other/C000001", "/root/C000001").ok());
  ASSERT_TRUE(fs->Remove("/root/C000002/capstan-folder.pb").ok());
  PutFile(*fs, "/root/notes.txt", "x");
  PutFile(*fs, "/root/C000009.tmp/thesis.txt", "x");
  PutFile(*fs, "/root/C000010.del/thesis.txt", "x");
  PutFile(*fs, "/root/C000011.tmp", "a file");
  std::vector<std::string> log;
  ASSERT_TRUE(root->Retain({1, 0, 0}, {}, &log).ok());
  ASSERT_TRUE(root->CleanUp(0, &log).ok());
  EXPECT_THAT(*fs->List("/root"), ElementsAre("C000001", "C000002", "C000003", "C000009.tmp", "C000010.del",
                                              "C000011.tmp", "capstan-root.pb", "notes.txt"));
  EXPECT_THAT(log, ElementsAre("C000001: left alone, it was made for another root",
                               "C000002: left alone, it has no capstan-folder.pb",
                               "C000009.tmp: left alone, it has no capstan-folder.pb",
                               "C000010.del: left alone, it has no capstan-folder.pb",
                               "C000011.tmp: left alone, it is no folder"));
}

TEST(CleanUp, RemovesUnfinishedOnesButTheOneInWork) {
  const auto fs = NewMemoryFileSystem();
  const auto root = OpenRoot(*fs, "/root");
  for (uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(root->Begin(id).ok());
    ASSERT_TRUE(WriteFakeParts(*fs, root->WorkingFolderOf(id), id, "").ok());
  }
  ASSERT_TRUE(fs->Rename("/root/C000001.tmp", "/root/C000001.del").ok());
  ASSERT_TRUE(fs->MakeFolders("/root/C000004.tmp").ok());   // a power cut took the marker
  PutFile(*fs, "/root/C000005.tmp/capstan-folder.pb", "");  // or its bytes
  std::vector<std::string> log;
  ASSERT_TRUE(root->CleanUp(2, &log).ok());
  EXPECT_THAT(*fs->List("/root"), ElementsAre("C000002.tmp", "capstan-root.pb"));
  EXPECT_EQ(log.size(), 4u);
  ASSERT_TRUE(root->CleanUp(0, nullptr).ok());
  EXPECT_THAT(*fs->List("/root"), ElementsAre("capstan-root.pb"));
}

// Locks and symbolic links are only on the real disk.
TEST(Retention, WhatAReaderHoldsStaysUntilItLetsGo) {
  const testing::TemporaryFolder folder;
  FileSystem& fs = PosixFileSystem();
  const auto root = OpenRoot(fs, folder / "root");
  AddFakes(fs, *root, 3);
  {
    const auto lock = FolderLock::Shared(root->FolderOf(1) + "/manifest.pb");
    ASSERT_TRUE(lock.ok()) << lock.status();
    std::vector<std::string> log;
    ASSERT_TRUE(root->Retain({1, 0, 0}, {}, &log).ok());
    EXPECT_EQ(IdsOf(*root), (std::vector<uint64_t>{1, 3}));
    EXPECT_EQ(WhatIsNotAsWritten(fs, root->FolderOf(1)), "");
    EXPECT_THAT(log, ElementsAre(HasSubstr("C000001: kept for now, somebody reads"), "C000002: removed"));
  }
  ASSERT_TRUE(root->Retain({1, 0, 0}, {}, nullptr).ok());
  EXPECT_EQ(IdsOf(*root), (std::vector<uint64_t>{3}));
  EXPECT_EQ(WhatIsNotAsWritten(fs, root->FolderOf(3)), "")
      << "its layers were links to files of removed folders";
}

TEST(Retention, LinksAreNotFollowed) {
  const testing::TemporaryFolder folder;
  FileSystem& fs = PosixFileSystem();
  const auto elsewhere = OpenRoot(fs, folder / "elsewhere");
  AddFakes(fs, *elsewhere, 1);
  const auto root = OpenRoot(fs, folder / "root");
  std::filesystem::create_directory_symlink(elsewhere->FolderOf(1), root->FolderOf(1));
  std::filesystem::create_directory_symlink(elsewhere->FolderOf(1), root->WorkingFolderOf(2));
  AddFakes(fs, *root, 2);
  std::filesystem::create_directory_symlink(elsewhere->path(), root->FolderOf(3) + "/shard-0000/link");
  std::vector<std::string> log;
  ASSERT_TRUE(root->Retain({1, 0, 0}, {}, &log).ok());
  ASSERT_TRUE(root->CleanUp(0, &log).ok());
  EXPECT_THAT(log, ElementsAre(HasSubstr("C000001' is a symbolic link"), "C000003: removed",
                               "C000002.tmp: left alone, it is a symbolic link"));
  EXPECT_EQ(WhatIsNotAsWritten(fs, elsewhere->FolderOf(1)), "");
  EXPECT_THAT(*fs.List(root->path()), ElementsAre("C000001", "C000002.tmp", "C000004", "capstan-root.pb"));
}

}  // namespace
}  // namespace capstan
