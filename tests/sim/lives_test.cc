// Checkpoints under a whole cluster: everything is killed at drawn times and goes on from the newest checkpoint with
// other numbers of servers, shards and workers. Every sample once, and in sync the same bits.
#include <cstdlib>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/planted_bugs.h"
#include "sim_cluster.h"

namespace capstan::sim {
namespace {

uint64_t Environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr uint64_t kSeedsPerMode = 1000;

LivesOutcome JudgeLives(uint64_t seed, const std::string& mode) {
  Scenario scenario = DrawScenario(seed, mode);
  // A reference run does not care about checkpoints.
  const JobShape plain = scenario.shape;
  const Lives lives = DrawLives(seed, &scenario.shape);
  LivesOutcome outcome = RunLives(seed, scenario.shape, scenario.weather, lives);
  if (outcome.ok() && mode == "sync") {
    const Bug bug = std::exchange(g_planted_bug, Bug::kNone);
    if (ReferenceSha256(plain) != outcome.model_sha256) outcome.faults.push_back("sync: other bits than undisturbed");
    g_planted_bug = bug;
  }
  return outcome;
}

class LivesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LivesTest, GoesOnFromTheNewestCheckpoint) {
  const std::string mode = GetParam();
  const uint64_t only = Environment("CAPSTAN_SIM_SEED", 0);
  const uint64_t seeds = only != 0 ? 1 : Environment("CAPSTAN_SIM_SEEDS", kSeedsPerMode);
  uint64_t resumed = 0, checkpoints = 0;
  for (uint64_t i = 0; i < seeds; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    const LivesOutcome outcome = JudgeLives(seed, mode);
    ASSERT_TRUE(outcome.ok()) << "mode " << mode << ", seed " << seed << "\n  " << outcome.Text()
                              << "\nreplay: CAPSTAN_SIM_SEED=" << seed
                              << " build/release/bin/sim_test --gtest_filter='*GoesOnFromTheNewestCheckpoint/"
                              << mode.substr(0, 3) << "*'";
    resumed += outcome.resumed;
    checkpoints += outcome.checkpoints;
  }
  fmt::print("{}: {} seeds, {} lives began from a checkpoint, {} checkpoints\n", mode, seeds, resumed, checkpoints);
  if (seeds >= kSeedsPerMode) {
    EXPECT_GT(resumed, seeds / 4) << "the kills miss";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, LivesTest, ::testing::Values("sync", "ssp:2", "async"), [](const auto& param) {
  std::string name = param.param;
  std::erase(name, ':');
  return name;
});

struct PlantedInLives {
  Bug bug;
  const char* name;
  const char* mode;
};
constexpr PlantedInLives kPlantedInLives[] = {
    {Bug::kCutNow, "cut_now", "sync"},
    {Bug::kLedgersMergedOnRestore, "ledgers_merged_on_restore", "async"},
    {Bug::kLedgerNotStored, "ledger_not_stored", "async"},
    {Bug::kLeasesFromAfterTheCut, "leases_from_after_the_cut", "async"},
    {Bug::kClockLostOnRestore, "clock_lost_on_restore", "sync"},
    {Bug::kEpochLostOnRestore, "epoch_lost_on_restore", "sync"},
};

class PlantedInLivesTest : public ::testing::TestWithParam<PlantedInLives> {};

TEST_P(PlantedInLivesTest, IsCaught) {
  g_planted_bug = GetParam().bug;
  std::string first;
  uint64_t seed = 1;
  for (; seed <= kSeedsPerMode && first.empty(); ++seed) {
    const LivesOutcome outcome = JudgeLives(seed, GetParam().mode);
    if (!outcome.ok()) first = outcome.faults[0];
  }
  g_planted_bug = Bug::kNone;
  EXPECT_FALSE(first.empty()) << GetParam().name << " lived through " << kSeedsPerMode << " seeds";
  fmt::print("{}: seed {}: {}\n", GetParam().name, seed - 1, first);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedInLivesTest, ::testing::ValuesIn(kPlantedInLives),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace capstan::sim
