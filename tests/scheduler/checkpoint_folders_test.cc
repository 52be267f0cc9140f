// The scheduler's hand in the folder of checkpoints.
#include "scheduler/checkpoint_folders.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/checkpoint_format.h"
#include "tests/support/core_testing.h"
#include "tests/support/fake_snapshot.h"

namespace capstan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A shard without tables.
ShardPart WriteEmptyPart(FileSystem& disk, const CheckpointFolders& folders, uint64_t id) {
  ShardRecord record;
  record.add_owned()->set_count(testing::SmallJob(testing::JobOptions()).config().cluster().partitions());
  testing::FakeSnapshotSink sink(disk);
  SnapshotOrder order;
  order.id = id;
  order.folder = folders.WorkingFolder(id) + "/" + ShardFolderName(0);
  sink.Begin(order);
  EXPECT_TRUE(sink.Finish(record));
  const std::optional<SnapshotResult> result = sink.Poll();
  EXPECT_TRUE(result.has_value() && result->status.ok());
  return result.has_value() ? ShardPart{result->record_bytes, result->record_xxh3} : ShardPart{};
}

TEST(CheckpointFolders, ACommitRemovesWhatWasGivenUpBefore) {
  const auto disk = NewMemoryFileSystem();
  std::vector<std::string> log;
  auto folders = CheckpointFolders::Open(*disk, "run/checkpoints", RetentionPolicy(),
                                         [&log](const std::string& line) { log.push_back(line); });
  ASSERT_TRUE(folders.ok()) << folders.status();
  // Its removal failed, as it may while a writer still makes files in it.
  const absl::StatusOr<uint64_t> lost = (*folders)->Begin();
  ASSERT_TRUE(lost.ok());
  WriteEmptyPart(*disk, **folders, *lost);
  const absl::StatusOr<uint64_t> next = (*folders)->Begin();
  ASSERT_TRUE(next.ok());
  CheckpointManifest head;
  *head.mutable_job() = testing::SmallJob(testing::JobOptions());
  const auto entry = (*folders)->Commit(*next, head, {WriteEmptyPart(*disk, **folders, *next)});
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_FALSE(*disk->Exists((*folders)->WorkingFolder(*lost)));
  EXPECT_TRUE(*disk->Exists((*folders)->Folder(*next)));
  EXPECT_THAT(log, Contains(HasSubstr("which was not finished")));
}

}  // namespace
}  // namespace capstan
