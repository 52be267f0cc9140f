#include "storage/folder_lock.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

TEST(FolderLock, ReadersShareAndTheRemoverIsAlone) {
  const testing::TemporaryFolder root;
  const std::string path = root / "manifest.pb";
  std::ofstream(path) << "x";
  auto one = FolderLock::Shared(path);
  auto two = FolderLock::Shared(path);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(FolderLock::TryExclusive(path).status().code(), absl::StatusCode::kUnavailable);
  one->reset();
  EXPECT_EQ(FolderLock::TryExclusive(path).status().code(), absl::StatusCode::kUnavailable);
  two->reset();
  {
    const auto alone = FolderLock::TryExclusive(path);
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(FolderLock::Shared(path).status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(FolderLock::Shared(path).ok());
}

TEST(FolderLock, WhatIsNotOnTheDiskIsNotLocked) {
  EXPECT_TRUE(FolderLock::Shared("memory/C000001/manifest.pb").ok());
  EXPECT_TRUE(FolderLock::TryExclusive("memory/C000001/manifest.pb").ok());
}

}  // namespace
}  // namespace capstan
