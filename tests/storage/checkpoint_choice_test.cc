// Which checkpoint of a run is taken: the newest whose bytes are as they were written; and what is said where none is.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/checkpoint_records.h"
#include "storage/checkpoint_root.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::BuildCheckpoint;
using testing::SomeCheckpoint;
using testing::TemporaryFolder;

void FlipAByte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file) << path;
  file.seekg(0, std::ios::end);
  const auto middle = file.tellg() / 2;
  file.seekg(middle);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle);
  file.put(byte);
}

class CheckpointChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    auto root = CheckpointRoot::Open(fs_, root_);
    ASSERT_TRUE(root.ok()) << root.status();
    token_ = (*root)->token();
    older_ = BuildCheckpoint(SomeCheckpoint(1, 40, 2), root_);
    newest_ = BuildCheckpoint(SomeCheckpoint(2, 40, 2), root_);
  }

  std::string Find(const std::string& path, CheckpointCheck check = CheckpointCheck::kFiles) {
    skipped_.clear();
    const auto found = FindCheckpoint(fs_, path, check, &skipped_);
    if (found.ok()) return *found;
    failure_ = found.status();
    return std::string(found.status().message());
  }

  FileSystem& fs_ = PosixFileSystem();
  TemporaryFolder folder_;
  const std::string run_ = folder_ / "run";
  const std::string root_ = run_ + "/checkpoints";
  std::string token_, older_, newest_;
  std::vector<std::string> skipped_;
  absl::Status failure_;
};

TEST_F(CheckpointChoice, OneFlippedByteInAnyFileMakesItTheOneBefore) {
  const auto manifest = ReadCheckpointManifest(fs_, newest_);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::vector<std::string> names = {"manifest.pb"};
  for (const StoredFile& file : manifest->file()) names.push_back(file.name());
  ASSERT_GE(names.size(), 5u);
  EXPECT_EQ(Find(run_), newest_);
  EXPECT_THAT(skipped_, IsEmpty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string path = newest_ + "/" + name;
    FlipAByte(path);
    EXPECT_EQ(Find(run_), older_);
    ASSERT_THAT(skipped_, SizeIs(1));
    EXPECT_THAT(skipped_[0], AllOf(HasSubstr("C000002"), HasSubstr(path)));
    // By its name it is refused.
    EXPECT_THAT(Find(newest_), AllOf(HasSubstr(path), HasSubstr("damaged")));
    EXPECT_TRUE(absl::IsDataLoss(failure_)) << failure_;
    FlipAByte(path);
  }
  EXPECT_EQ(Find(newest_), newest_);
}

TEST_F(CheckpointChoice, NoneIsGoodNamesThemAll) {
  for (const std::string& folder : {older_, newest_}) {
    FlipAByte(folder + "/" + ReadCheckpointManifest(fs_, folder)->file(1).name());
  }
  EXPECT_THAT(Find(run_), AllOf(HasSubstr("no good checkpoint"), HasSubstr("C000001"), HasSubstr("C000002")));
}

// The check of retention is the quick one: lists stay quick, whatever the size.
TEST_F(CheckpointChoice, TheQuickCheckReadsNoRows) {
  const std::string table = ReadCheckpointManifest(fs_, newest_)->file(1).name();
  ASSERT_THAT(table, HasSubstr(".sst"));
  FlipAByte(newest_ + "/" + table);
  EXPECT_EQ(Find(run_, CheckpointCheck::kRecords), newest_);
}

TEST_F(CheckpointChoice, SaysWhatIsMissing) {
  EXPECT_THAT(Find(folder_ / "nothing"), HasSubstr("does not exist"));
  ASSERT_EQ(fs_.MakeFolders(folder_ / "empty"), absl::OkStatus());
  EXPECT_THAT(Find(folder_ / "empty"), HasSubstr("is no checkpoint"));
  // A path through a file can be of nobody's.
  testing::OverwriteFile(folder_ / "file", "x");
  EXPECT_THAT(Find(folder_ / "file"), Not(HasSubstr("does not exist")));
  ASSERT_EQ(fs_.Remove(root_ + "/capstan-root.pb"), absl::OkStatus());
  for (const std::string& path : {run_, root_}) {
    EXPECT_THAT(Find(path), AllOf(HasSubstr("capstan-root.pb"), HasSubstr(root_ + "/C000002")));
    EXPECT_TRUE(absl::IsDataLoss(failure_)) << failure_;
  }
  EXPECT_EQ(Find(newest_), newest_) << "by its name it needs no root";
}

TEST_F(CheckpointChoice, SaysThatItMayNotLook) {
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");  // also for root, whom no permission stops
  EXPECT_THAT(Find(folder_ / "loop"), AllOf(HasSubstr("cannot be looked into"), HasSubstr("loop")));
  EXPECT_TRUE(absl::IsDataLoss(failure_)) << failure_;
}

TEST_F(CheckpointChoice, TheRunsMarkIsLookedAt) {
  const std::string mark = newest_ + "/capstan-made.pb";
  EXPECT_THAT(WhatIsWrongWithMark(fs_, newest_), AllOf(HasSubstr(mark), HasSubstr("missing")));
  const std::string good = *ReadWholeFile(fs_, root_ + "/capstan-root.pb", 4096);
  testing::OverwriteFile(mark, good);
  EXPECT_EQ(WhatIsWrongWithMark(fs_, newest_), "");
  EXPECT_EQ(WhatIsWrongWithMark(fs_, newest_ + "/"), "");
  FlipAByte(mark);
  EXPECT_THAT(WhatIsWrongWithMark(fs_, newest_), AllOf(HasSubstr(mark), HasSubstr("damaged")));
  std::filesystem::rename(newest_, folder_ / "copy");
  EXPECT_EQ(WhatIsWrongWithMark(fs_, folder_ / "copy"), "") << "on its own it needs none";
}

}  // namespace
}  // namespace capstan
