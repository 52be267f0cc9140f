// What the folder of checkpoints must not remove, and what it must find again after a power cut.
#include <filesystem>
#include <limits>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_list.h"
#include "storage/checkpoint_root.h"
#include "tests/support/checkpoint_builder.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<CheckpointRoot> RootAt(FileSystem& fs, const std::string& path) {
  auto root = CheckpointRoot::Open(fs, path);
  EXPECT_TRUE(root.ok()) << root.status();
  return *std::move(root);
}

void FlipABit(FileSystem& fs, const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadWholeFile(fs, path, 4096);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  bytes->at(bytes->size() / 2) ^= 4;
  ASSERT_EQ(WriteFileAtomically(fs, path, *bytes), absl::OkStatus());
}

TEST(CheckpointRemoval, FilesAndLinksWithNamesOfOursAreLeftAlone) {
  const testing::TemporaryFolder folder;
  FileSystem& fs = PosixFileSystem();
  const auto root = RootAt(fs, folder / "root");
  // Where a link leads there is a folder with our very marker: someone moved it to a larger disk.
  ASSERT_EQ(root->Begin(1), absl::OkStatus());
  ASSERT_EQ(WriteFileAtomically(fs, root->WorkingFolderOf(1) + "/rows", "x"), absl::OkStatus());
  std::filesystem::rename(root->WorkingFolderOf(1), folder / "moved");
  std::filesystem::create_directory_symlink(folder / "moved", root->WorkingFolderOf(1));
  std::filesystem::create_directory_symlink(folder / "moved", root->WorkingFolderOf(2));
  std::filesystem::create_symlink("/nowhere/at/all", root->WorkingFolderOf(3));
  ASSERT_EQ(WriteFileAtomically(fs, root->WorkingFolderOf(4), "a file"), absl::OkStatus());
  std::vector<std::string> log;
  EXPECT_EQ(root->CleanUp(0, &log), absl::OkStatus());
  EXPECT_FALSE(root->Abandon(2).ok());
  EXPECT_THAT(*fs.List(root->path()),
              ElementsAre("C000001.tmp", "C000002.tmp", "C000003.tmp", "C000004.tmp", "capstan-root.pb"));
  EXPECT_THAT(*fs.List(folder / "moved"), ElementsAre("capstan-made.pb", "rows"));
  EXPECT_EQ(log.size(), 4u);
}

TEST(CheckpointRemoval, AbandonLeavesAloneWhatHasNoMark) {
  const auto disk = NewMemoryFileSystem();
  const auto root = RootAt(*disk, "/root");
  ASSERT_EQ(WriteFileAtomically(*disk, root->WorkingFolderOf(1) + "/thesis", "x"), absl::OkStatus());
  const absl::Status status = root->Abandon(1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("C000001.tmp"));
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_TRUE(*disk->Exists(root->WorkingFolderOf(1) + "/thesis"));
  EXPECT_EQ(root->Abandon(2), absl::OkStatus()) << "nothing there is fine";
}

// Whatever a crash leaves of a folder being made or removed, the next clean-up takes away.
TEST(CheckpointRemoval, WhatAPowerCutLeavesIsCleanedUp) {
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(fmt::format("power cut at call {}, seed {}", n, seed));
      const auto disk = NewMemoryFileSystem();
      const std::string token = RootAt(*disk, "/root")->token();
      FaultyFileSystem faulty(*disk);
      DiskFault fault;
      fault.at = n;
      fault.for_ever = true;
      faulty.Arm(fault);
      if (const auto root = CheckpointRoot::Open(faulty, "/root"); root.ok() && (*root)->Begin(1).ok()) {
        const std::string file = (*root)->WorkingFolderOf(1) + "/shard-0000/a.sst";
        disk->MakeFolders((*root)->WorkingFolderOf(1) + "/shard-0000").IgnoreError();
        EXPECT_EQ(WriteFileAtomically(*disk, file, "rows"), absl::OkStatus());
        EXPECT_EQ(disk->SyncFolder((*root)->WorkingFolderOf(1)), absl::OkStatus());
        EXPECT_EQ(disk->SyncFolder("/root"), absl::OkStatus());
        (*root)->Abandon(1).IgnoreError();
      }
      fired = faulty.fired();
      disk->PowerCut(MemoryFileSystem::Keep::kSomething, n * 30 + seed);
      const auto again = RootAt(*disk, "/root");
      EXPECT_EQ(again->token(), token);
      std::vector<std::string> log;
      EXPECT_EQ(again->CleanUp(0, &log), absl::OkStatus());
      EXPECT_THAT(*disk->List("/root"), Contains("capstan-root.pb"));
      EXPECT_EQ(disk->List("/root")->size(), 1u) << (log.empty() ? "" : log[0]);
    }
    ASSERT_LT(n, 200u);
  }
}

// One flipped bit in the root's own file must not cost a run all its checkpoints.
TEST(CheckpointRemoval, ADamagedTokenFileIsMadeAgainFromTheMarks) {
  const auto disk = NewMemoryFileSystem();
  std::string token;
  {
    const auto root = RootAt(*disk, "/root");
    token = root->token();
    ASSERT_TRUE(root->NextId().ok());
    ASSERT_EQ(root->Begin(1), absl::OkStatus());
  }
  FlipABit(*disk, "/root/capstan-root.pb");
  const auto root = RootAt(*disk, "/root");
  EXPECT_EQ(root->token(), token);
  EXPECT_GT(*root->NextId(), 1000u) << "which ids were given out is not known any more";
  EXPECT_EQ(CheckRootToken(*disk, "/root", token), absl::OkStatus());

  // Folders that two roots made: which one this was cannot be told.
  ASSERT_EQ(RootAt(*disk, "/other")->Begin(2), absl::OkStatus());
  ASSERT_EQ(disk->Rename("/other/C000002.tmp", "/root/C000002.tmp"), absl::OkStatus());
  FlipABit(*disk, "/root/capstan-root.pb");
  EXPECT_TRUE(absl::IsDataLoss(CheckpointRoot::Open(*disk, "/root").status()));
}

TEST(CheckpointRemoval, AMetricThatIsNoNumberIsNone) {
  CheckpointManifest manifest;
  manifest.set_metric(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(EntryOf(manifest, "x").metric.has_value()) << "it would have no place in an order";
  manifest.set_metric(-0.5);
  EXPECT_EQ(EntryOf(manifest, "x").metric, -0.5);
}

}  // namespace
}  // namespace capstan
