// Many seeds of whole clusters. CAPSTAN_SIM_SEEDS sets how many per mode, CAPSTAN_SIM_SEED runs a single one.
#include <cstdlib>
#include <map>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/planted_bugs.h"
#include "sim_cluster.h"

namespace capstan::sim {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr uint64_t kDefaultSeeds = 1000;

std::vector<std::string> Judge(uint64_t seed, const std::string& consistency) {
  const Scenario scenario = DrawScenario(seed, consistency);
  Outcome outcome = RunCluster(seed, scenario.shape, scenario.weather, scenario.zombie);
  if (outcome.ok() && consistency == "sync") {
    const Bug bug = g_planted_bug;
    g_planted_bug = Bug::kNone;
    const std::string reference = ReferenceSha256(scenario.shape);
    g_planted_bug = bug;
    if (reference != outcome.model_sha256) outcome.faults.push_back("sync: other bits than one server and one worker");
  }
  return outcome.faults;
}

class ClusterTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ClusterTest, HoldsInAnyWeather) {
  const std::string mode = GetParam();
  const uint64_t only = FromEnvironment("CAPSTAN_SIM_SEED", 0);
  const uint64_t seeds = only != 0 ? 1 : FromEnvironment("CAPSTAN_SIM_SEEDS", kDefaultSeeds);
  for (uint64_t i = 0; i < seeds; ++i) {
    const uint64_t seed = only != 0 ? only : i + 1;
    const std::vector<std::string> faults = Judge(seed, mode);
    std::string text;
    for (const std::string& fault : faults) text += "\n  " + fault;
    ASSERT_TRUE(faults.empty()) << "mode " << mode << ", seed " << seed << text
                                << "\nreplay: CAPSTAN_SIM_SEED=" << seed
                                << " build/release/bin/sim_test --gtest_filter='*HoldsInAnyWeather/" << mode.substr(0, 3)
                                << "*'";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ClusterTest, ::testing::Values("sync", "ssp:1", "ssp:2", "async"), [](const auto& param) {
  std::string name = param.param;
  std::erase(name, ':');
  return name;
});

struct Planted {
  Bug bug;
  const char* name;
  const char* mode;
};
constexpr Planted kPlanted[] = {
    {Bug::kCommitBeforeLastAck, "commit_before_last_ack", "sync"},
    {Bug::kNoEmptyPush, "no_empty_push", "sync"},
    {Bug::kIdleRankInMinimum, "idle_rank_in_minimum", "ssp:2"},
    {Bug::kLateEnterCounts, "late_enter_counts", "ssp:1"},
    {Bug::kForgetClosedLease, "forget_closed_lease", "async"},
    {Bug::kRepeatedPushApplied, "repeated_push_applied", "async"},
    {Bug::kPartsJoinedAcrossRequests, "parts_joined_across_requests", "async"},
    {Bug::kArrivalOrderSum, "arrival_order_sum", "sync"},
    {Bug::kPullAtAnyVersion, "pull_at_any_version", "sync"},
    {Bug::kDivideByRanks, "divide_by_ranks", "sync"},
    {Bug::kEndCountsAsStep, "end_counts_as_step", "sync"},
    {Bug::kLooseStaleness, "loose_staleness", "ssp:1"},
    {Bug::kClosedBeforeApplied, "closed_before_applied", "async"},
    {Bug::kTermIgnored, "term_ignored", "sync"},
    {Bug::kGenerationIgnored, "generation_ignored", "sync"},
    {Bug::kNoResend, "no_resend", "sync"},
    {Bug::kPartAcknowledged, "part_acknowledged", "sync"},
    {Bug::kRepeatedAckCounts, "repeated_ack_counts", "sync"},
    {Bug::kStaleLeaseReply, "stale_lease_reply", "async"},
    {Bug::kOldLeaseRequestGranted, "old_lease_request_granted", "async"},
    {Bug::kClosingStepsMoveOptimizer, "closing_steps_move_optimizer", "sync"},
    {Bug::kEpochClosesAtFirstEnd, "epoch_closes_at_first_end", "sync"},
    {Bug::kEndPushContributes, "end_push_contributes", "sync"},
    {Bug::kRepeatCountsStatistics, "repeat_counts_statistics", "async"},
    {Bug::kJoinerClockZero, "joiner_clock_zero", "ssp:1"},
    {Bug::kCreditNeverReturned, "credit_never_returned", "sync"},
    {Bug::kParkedHoldsCredit, "parked_holds_credit", "sync"},
};

class PlantedBugTest : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedBugTest, IsCaught) {
  g_planted_bug = GetParam().bug;
  std::string first;
  uint64_t seed = 1;
  for (; seed <= kDefaultSeeds && first.empty(); ++seed) {
    const std::vector<std::string> faults = Judge(seed, GetParam().mode);
    if (!faults.empty()) first = faults[0];
  }
  g_planted_bug = Bug::kNone;
  EXPECT_FALSE(first.empty()) << GetParam().name << " lived through " << kDefaultSeeds << " seeds";
  RecordProperty("caught_by_seed", static_cast<int>(seed - 1));
  fmt::print("{}: seed {}: {}\n", GetParam().name, seed - 1, first);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, ::testing::ValuesIn(kPlanted),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace capstan::sim
