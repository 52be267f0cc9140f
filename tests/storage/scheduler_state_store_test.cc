#include "storage/scheduler_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/scheduler_state.pb.h"
#include "storage/checkpoint_records.h"
#include "tests/storage/fake_parts.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using testing::FlipBit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PutFile;

constexpr char kStateFolder[] = "/run/state";

// A state that says `generation` in several places, so that a mixture would be seen.
SchedulerState StateOf(uint32_t generation) {
  SchedulerState state;
  state.set_job_id(77);
  state.set_starts(1);
  state.set_generation(generation);
  state.set_phase(SchedulerState::TRAINING);
  MemberState& member = *state.add_member();
  member.set_name(fmt::format("server-{}", generation));
  member.add_shard_endpoint("tcp://10.0.0.1:5000");
  RankStateRecord& rank = *state.add_rank();
  rank.set_term(generation);
  ShardPlace& place = *state.mutable_map()->add_shard();
  place.add_owned()->set_count(generation);
  state.mutable_leases()->add_granted(generation);
  state.add_checkpoint()->set_id(generation);
  return state;
}

std::string BytesWithoutSequence(SchedulerState state) {
  state.clear_sequence();
  state.clear_format();
  return state.SerializeAsString();
}

std::unique_ptr<SchedulerStateStore> OpenStore(FileSystem& fs) {
  auto store = SchedulerStateStore::Open(fs, kStateFolder);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

uint32_t LoadedGeneration(FileSystem& fs, std::vector<std::string>* damaged = nullptr) {
  const auto state = OpenStore(fs)->Load(damaged);
  EXPECT_TRUE(state.ok()) << state.status();
  if (!state.ok()) return 0;
  EXPECT_EQ(BytesWithoutSequence(*state), BytesWithoutSequence(StateOf(state->generation())));
  return state->generation();
}

TEST(SchedulerStateStore, GivesBackTheNewestState) {
  const auto fs = NewMemoryFileSystem();
  EXPECT_EQ(OpenStore(*fs)->Load(nullptr).status().code(), absl::StatusCode::kNotFound);
  for (uint32_t generation = 1; generation <= 3; ++generation) {
    ASSERT_TRUE(OpenStore(*fs)->Write(StateOf(generation)).ok());
    EXPECT_EQ(OpenStore(*fs)->Load(nullptr)->sequence(), generation) << "it goes on over restarts";
    EXPECT_EQ(LoadedGeneration(*fs), generation);
  }
  EXPECT_THAT(*fs->List(kStateFolder), ElementsAre("state.old.pb", "state.pb"));
}

TEST(SchedulerStateStore, ADamagedStateIsToldAndTheOneBeforeUsed) {
  for (const char* how : {"flip", "cut", "empty", "missing"}) {
    SCOPED_TRACE(how);
    const auto fs = NewMemoryFileSystem();
    const auto store = OpenStore(*fs);
    ASSERT_TRUE(store->Write(StateOf(1)).ok());
    ASSERT_TRUE(store->Write(StateOf(2)).ok());
    const std::string path = std::string(kStateFolder) + "/state.pb";
    if (how == std::string("flip")) FlipBit(*fs, path);
    if (how == std::string("cut")) PutFile(*fs, path, testing::GetFile(*fs, path).substr(0, 30));
    if (how == std::string("empty")) PutFile(*fs, path, "");
    if (how == std::string("missing")) fs->Remove(path).IgnoreError();
    std::vector<std::string> damaged;
    EXPECT_EQ(LoadedGeneration(*fs, &damaged), 1u);
    EXPECT_EQ(damaged.size(), how == std::string("missing") ? 0u : 1u);
    for (const std::string& text : damaged) EXPECT_THAT(text, HasSubstr("/run/state/state.pb' is damaged"));

    ASSERT_TRUE(OpenStore(*fs)->Write(StateOf(3)).ok());
    damaged.clear();
    EXPECT_EQ(LoadedGeneration(*fs, &damaged), 3u);
    EXPECT_THAT(damaged, IsEmpty());
    FlipBit(*fs, path);
    EXPECT_EQ(LoadedGeneration(*fs), 1u) << "the damaged one did not take the place of the last good one";
  }
}

TEST(SchedulerStateStore, BothDamagedIsAnErrorAndNotABeginning) {
  const auto fs = NewMemoryFileSystem();
  const auto store = OpenStore(*fs);
  ASSERT_TRUE(store->Write(StateOf(1)).ok());
  ASSERT_TRUE(store->Write(StateOf(2)).ok());
  FlipBit(*fs, std::string(kStateFolder) + "/state.pb");
  FlipBit(*fs, std::string(kStateFolder) + "/state.old.pb");
  std::vector<std::string> damaged;
  EXPECT_EQ(OpenStore(*fs)->Load(&damaged).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(damaged.size(), 2u);
}

TEST(SchedulerStateStore, AStateOfANewerReleaseIsNotPassedOver) {
  const auto fs = NewMemoryFileSystem();
  ASSERT_TRUE(OpenStore(*fs)->Write(StateOf(1)).ok());
  ASSERT_TRUE(OpenStore(*fs)->Write(StateOf(2)).ok());
  SchedulerState newer = StateOf(3);
  newer.set_format(kSchedulerStateFormat + 1);
  newer.set_sequence(3);
  PutFile(*fs, std::string(kStateFolder) + "/state.pb", FrameRecord(newer.SerializeAsString()));
  const absl::Status status = OpenStore(*fs)->Load(nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has format 2, this release reads 1"));
  EXPECT_EQ(OpenStore(*fs)->Write(StateOf(4)).code(), absl::StatusCode::kInvalidArgument)
      << "nor written over";
}

TEST(SchedulerStateStore, AJobIsWrittenOnce) {
  const auto fs = NewMemoryFileSystem();
  const auto store = OpenStore(*fs);
  EXPECT_EQ(store->ReadJob().status().code(), absl::StatusCode::kNotFound);
  EffectiveJob job;
  job.set_job_id(77);
  ASSERT_TRUE(store->WriteJob(job).ok());
  EXPECT_TRUE(store->WriteJob(job).ok()) << "the same again";
  EXPECT_EQ(store->ReadJob()->job_id(), 77u);
  job.set_job_id(78);
  EXPECT_EQ(store->WriteJob(job).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store->ReadJob()->job_id(), 77u);
  FlipBit(*fs, std::string(kStateFolder) + "/job.pb");
  EXPECT_EQ(store->ReadJob().status().code(), absl::StatusCode::kDataLoss);
}

// A scheduler from its start: the job, and two states after the two that were there.
absl::Status OneLife(FileSystem& fs, uint32_t* written) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<SchedulerStateStore> store,
                           SchedulerStateStore::Open(fs, kStateFolder));
  EffectiveJob job;
  job.set_job_id(77);
  CAPSTAN_RETURN_IF_ERROR(store->WriteJob(job));
  for (uint32_t generation = 3; generation <= 4; ++generation) {
    CAPSTAN_RETURN_IF_ERROR(store->Write(StateOf(generation)));
    *written = generation;
  }
  return absl::OkStatus();
}

std::unique_ptr<MemoryFileSystem> DiskWithTwoStates() {
  std::unique_ptr<MemoryFileSystem> disk = NewMemoryFileSystem();
  const auto store = OpenStore(*disk);
  EXPECT_TRUE(store->Write(StateOf(1)).ok());
  EXPECT_TRUE(store->Write(StateOf(2)).ok());
  return disk;
}

TEST(SchedulerStateStore, NoSingleFailureLosesAState) {
  for (const bool takes_effect : {false, true}) {
    bool fired = true;
    for (uint64_t n = 1; fired; ++n) {
      SCOPED_TRACE(fmt::format("failing call {}, {}", n, takes_effect));
      const auto disk = DiskWithTwoStates();
      FaultyFileSystem faulty(*disk);
      DiskFault fault;
      fault.at = n;
      fault.takes_effect = takes_effect;
      fault.half_appended = true;
      faulty.Arm(fault);
      uint32_t written = 2;
      const absl::Status status = OneLife(faulty, &written);
      fired = faulty.fired();
      EXPECT_TRUE(fired || status.ok()) << status;
      std::vector<std::string> damaged;
      EXPECT_GE(LoadedGeneration(*disk, &damaged), status.ok() ? 4u : written);
      EXPECT_THAT(damaged, IsEmpty());
      ASSERT_TRUE(OneLife(*disk, &written).ok());
      EXPECT_EQ(LoadedGeneration(*disk), 4u);
      ASSERT_LT(n, 500u);
    }
  }
}

TEST(SchedulerStateStore, APowerCutLeavesTheLastStateOrALaterOne) {
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(fmt::format("power cut at call {}, seed {}", n, seed));
      const auto disk = DiskWithTwoStates();
      FaultyFileSystem faulty(*disk);
      DiskFault fault;
      fault.at = n;
      fault.for_ever = true;
      fault.half_appended = true;
      faulty.Arm(fault);
      uint32_t written = 2;
      OneLife(faulty, &written).IgnoreError();
      fired = faulty.fired();
      using Keep = MemoryFileSystem::Keep;
      disk->PowerCut(seed == 0   ? Keep::kSynced
                     : seed == 1 ? Keep::kEverything
                                 : Keep::kSomething,
                     n * 12 + seed);
      EXPECT_GE(LoadedGeneration(*disk), written);
      ASSERT_TRUE(OneLife(*disk, &written).ok());
      EXPECT_EQ(LoadedGeneration(*disk), 4u);
    }
    ASSERT_LT(n, 500u);
  }
}

}  // namespace
}  // namespace capstan
