#include "storage/scheduler_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/scheduler_state.pb.h"
#include "tests/support/core_testing.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kFolder[] = "run/scheduler/1";

SchedulerState StateOf(uint32_t generation) {
  SchedulerState state;
  state.set_job_id(7);
  state.set_generation(generation);
  return state;
}

std::unique_ptr<SchedulerStateStore> OpenStore(FileSystem& fs) {
  auto store = SchedulerStateStore::Open(fs, kFolder);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

TEST(SchedulerStateStore, RemembersTheNewestState) {
  const auto disk = NewMemoryFileSystem();
  std::vector<std::string> damaged;
  {
    const auto store = OpenStore(*disk);
    EXPECT_TRUE(absl::IsNotFound(store->Load(&damaged).status()));
    for (uint32_t g = 1; g <= 3; ++g) ASSERT_EQ(store->Write(StateOf(g)), absl::OkStatus());
    ASSERT_EQ(store->WriteJob(testing::SmallJob(testing::JobOptions())), absl::OkStatus());
    ASSERT_EQ(store->WriteJob(testing::SmallJob(testing::JobOptions())), absl::OkStatus());
  }
  const auto store = OpenStore(*disk);
  EXPECT_EQ(store->Load(&damaged)->generation(), 3u);
  EXPECT_EQ(store->Load(&damaged)->sequence(), 3u);
  EXPECT_EQ(store->ReadJob()->table_size(), 2);
  testing::JobOptions other;
  other.ranks = 9;
  EXPECT_TRUE(absl::IsInvalidArgument(store->WriteJob(testing::SmallJob(other))));
  EXPECT_THAT(damaged, IsEmpty());
}

TEST(SchedulerStateStore, ADamagedStateIsNamedAndTheOneBeforeIsUsed) {
  const auto disk = NewMemoryFileSystem();
  const auto store = OpenStore(*disk);
  for (uint32_t g = 1; g <= 2; ++g) ASSERT_EQ(store->Write(StateOf(g)), absl::OkStatus());
  const std::string path = std::string(kFolder) + "/state.pb";
  std::string bytes = *ReadWholeFile(*disk, path, 1 << 20);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_EQ(WriteFileAtomically(*disk, path, bytes), absl::OkStatus());
  std::vector<std::string> damaged;
  EXPECT_EQ(OpenStore(*disk)->Load(&damaged)->generation(), 1u);
  ASSERT_THAT(damaged, SizeIs(1));
  EXPECT_THAT(damaged[0], HasSubstr("state.pb"));
}

TEST(SchedulerStateStore, NoFailureAndNoPowerCutLosesTheLastState) {
  for (const bool power_cut : {false, true}) {
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(at);
      const auto disk = NewMemoryFileSystem();
      FaultyFileSystem faulty(*disk);
      auto store = OpenStore(faulty);
      for (uint32_t g = 1; g <= 2; ++g) ASSERT_EQ(store->Write(StateOf(g)), absl::OkStatus());
      DiskFault fault;
      fault.at = at;
      fault.for_ever = power_cut;
      faulty.Arm(fault);
      const absl::Status written = store->Write(StateOf(3));
      const bool fired = faulty.fired();
      faulty.Arm({});
      if (power_cut) disk->PowerCut(MemoryFileSystem::Keep::kSomething, at);
      std::vector<std::string> damaged;
      store = OpenStore(*disk);
      const auto state = store->Load(&damaged);
      ASSERT_TRUE(state.ok()) << state.status();
      EXPECT_GE(state->generation(), written.ok() ? 3u : 2u);
      ASSERT_EQ(store->Write(StateOf(4)), absl::OkStatus());
      EXPECT_EQ(store->Load(&damaged)->generation(), 4u);
      if (!fired) break;
      ASSERT_LT(at, 200u);
    }
  }
}

}  // namespace
}  // namespace capstan
