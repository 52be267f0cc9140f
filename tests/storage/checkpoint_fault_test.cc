// Every call to the disk fails once, and the power is cut after every call: the last good checkpoint is still
// there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_root.h"
#include "tests/storage/fake_parts.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using testing::CommitFake;
using ::testing::ElementsAre;
using testing::FakeHead;
using testing::WhatIsNotAsWritten;

constexpr char kFaultRoot[] = "/run/checkpoints";
constexpr uint64_t kMostCalls = 2000;

// What a scheduler does from its start to the end of a checkpoint.
absl::Status OneRound(FileSystem& fs, uint64_t* committed) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointRoot> root, CheckpointRoot::Open(fs, kFaultRoot));
  CAPSTAN_RETURN_IF_ERROR(root->CleanUp(0, nullptr));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointEntry entry, CommitFake(fs, *root, FakeHead(3)));
  *committed = entry.id;
  return root->Retain({1, 0, 0}, {}, nullptr);
}

// Two checkpoints, the second upon the first.
std::unique_ptr<MemoryFileSystem> DiskWithTwo() {
  std::unique_ptr<MemoryFileSystem> disk = NewMemoryFileSystem();
  const auto root = CheckpointRoot::Open(*disk, kFaultRoot);
  for (uint64_t version = 1; version <= 2; ++version) {
    const absl::StatusOr<CheckpointEntry> entry = CommitFake(*disk, **root, FakeHead(version));
    EXPECT_TRUE(entry.ok()) << entry.status();
  }
  return disk;
}

// The newest good one is the second or a later one, and whole; then all goes well again.
void ExpectWholeAndGoesOn(MemoryFileSystem& disk, uint64_t committed) {
  {
    const auto root = CheckpointRoot::Open(disk, kFaultRoot);
    ASSERT_TRUE(root.ok()) << root.status();
    const auto newest = (*root)->NewestGood(nullptr);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_GE(newest->id, 2u);
    EXPECT_GE(newest->id, committed) << "what was committed was lost";
    EXPECT_EQ(newest->version, newest->id == 2 ? 2u : 3u);
    EXPECT_EQ(WhatIsNotAsWritten(disk, newest->folder), "");
  }
  uint64_t again = 0;
  const absl::Status status = OneRound(disk, &again);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(again, committed);
  EXPECT_GE(again, 3u);
  EXPECT_THAT(*disk.List(kFaultRoot), ElementsAre(fmt::format("C{:06}", again), "capstan-root.pb"));
  EXPECT_EQ(WhatIsNotAsWritten(disk, fmt::format("{}/C{:06}", kFaultRoot, again)), "");
}

struct FaultKind {
  const char* name;
  bool takes_effect;
  bool half_appended;
};

class CheckpointFault : public ::testing::TestWithParam<FaultKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointFault,
                         ::testing::Values(FaultKind{"NothingDone", false, false},
                                           FaultKind{"DoneAllTheSame", true, false},
                                           FaultKind{"ShortWrite", false, true}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(CheckpointFault, NoSingleFailureLosesTheLastGoodOne) {
  uint64_t n = 1;
  for (;; ++n) {
    SCOPED_TRACE(fmt::format("failing call {}", n));
    const auto disk = DiskWithTwo();
    FaultyFileSystem faulty(*disk);
    DiskFault fault;
    fault.at = n;
    fault.takes_effect = GetParam().takes_effect;
    fault.half_appended = GetParam().half_appended;
    faulty.Arm(fault);
    uint64_t committed = 0;
    const absl::Status status = OneRound(faulty, &committed);
    if (!faulty.fired()) {
      EXPECT_TRUE(status.ok()) << status;
      break;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWholeAndGoesOn(*disk, committed));
    ASSERT_LT(n, kMostCalls);
  }
  EXPECT_GT(n, 100u) << "the loop did not see the calls it should";
}

TEST(CheckpointPowerCut, ThePreviousOrTheNewOneIsThereWhole) {
  constexpr uint64_t kSeeds = 8;
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("power cut at call {}, seed {}", n, seed));
      const auto disk = DiskWithTwo();
      FaultyFileSystem faulty(*disk);
      DiskFault fault;
      fault.at = n;
      fault.for_ever = true;
      fault.half_appended = true;
      faulty.Arm(fault);
      uint64_t committed = 0;
      OneRound(faulty, &committed).IgnoreError();
      fired = faulty.fired();
      using Keep = MemoryFileSystem::Keep;
      disk->PowerCut(seed == 0   ? Keep::kSynced
                     : seed == 1 ? Keep::kEverything
                                 : Keep::kSomething,
                     n * kSeeds + seed);
      ASSERT_NO_FATAL_FAILURE(ExpectWholeAndGoesOn(*disk, committed));
    }
    ASSERT_LT(n, kMostCalls);
  }
}

// From nothing: no checkpoint at all is a possible outcome, a root that cannot be opened is not.
TEST(CheckpointPowerCut, TheFirstOneIsThereOrNot) {
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(fmt::format("power cut at call {}, seed {}", n, seed));
      const auto disk = NewMemoryFileSystem();
      FaultyFileSystem faulty(*disk);
      DiskFault fault;
      fault.at = n;
      fault.for_ever = true;
      faulty.Arm(fault);
      uint64_t committed = 0;
      OneRound(faulty, &committed).IgnoreError();
      fired = faulty.fired();
      using Keep = MemoryFileSystem::Keep;
      disk->PowerCut(seed == 0 ? Keep::kSynced : Keep::kSomething, n * 4 + seed);
      const auto root = CheckpointRoot::Open(*disk, kFaultRoot);
      ASSERT_TRUE(root.ok()) << root.status();
      const auto newest = (*root)->NewestGood(nullptr);
      EXPECT_TRUE(committed == 0 || newest.ok()) << newest.status();
      EXPECT_EQ(newest.ok() ? WhatIsNotAsWritten(*disk, newest->folder) : "", "");
      uint64_t again = 0;
      const absl::Status status = OneRound(*disk, &again);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_LT(n, kMostCalls);
  }
}

}  // namespace
}  // namespace capstan
