#include "common/consistency.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMaxStep = std::numeric_limits<uint64_t>::max();

struct PullCase {
  Step wanted;
  Step slowest_done;
  uint64_t staleness;
  bool answered;
};

TEST(Consistency, MayAnswerPullAtEveryBound) {
  const PullCase kCases[] = {
      // Sync: exactly when everybody has done `wanted` steps.
      {0, 0, 0, true},
      {1, 0, 0, false},
      {1, 1, 0, true},
      {5, 4, 0, false},
      {5, 5, 0, true},
      {5, 6, 0, true},
      // ssp:2 lets the fastest be two steps ahead of the slowest, and no third.
      {0, 0, 2, true},
      {1, 0, 2, true},
      {2, 0, 2, true},
      {3, 0, 2, false},
      {3, 1, 2, true},
      {4, 1, 2, false},
      {10, 7, 2, false},
      {10, 8, 2, true},
      // Async never waits; nothing wraps at the ends of the range.
      {0, 0, kUnbounded, true},
      {kMaxStep, 0, kUnbounded, true},
      {kMaxStep, 0, kMaxStep - 1, false},
      {kMaxStep, 1, kMaxStep - 1, true},
      {kMaxStep, kMaxStep, 0, true},
      {kMaxStep, kMaxStep - 1, 0, false},
  };
  for (const PullCase& c : kCases) {
    EXPECT_EQ(MayAnswerPull(c.wanted, c.slowest_done, c.staleness), c.answered)
        << "wanted " << c.wanted << ", slowest " << c.slowest_done << ", staleness " << c.staleness;
  }
}

struct ParseCase {
  const char* text;
  ConsistencyMode mode;
  uint64_t staleness;
};

TEST(Consistency, ReadsAndWritesEachMode) {
  const ParseCase kCases[] = {
      {"sync", ConsistencyMode::kSync, 0},
      {"async", ConsistencyMode::kAsync, kUnbounded},
      {"ssp:1", ConsistencyMode::kSsp, 1},
      {"ssp:1000000", ConsistencyMode::kSsp, 1'000'000},
  };
  for (const ParseCase& c : kCases) {
    const absl::StatusOr<Consistency> parsed = ParseConsistency(c.text);
    ASSERT_TRUE(parsed.ok()) << c.text << ": " << parsed.status();
    EXPECT_EQ(parsed->mode, c.mode) << c.text;
    EXPECT_EQ(parsed->staleness, c.staleness) << c.text;
    EXPECT_EQ(parsed->ToString(), c.text);
    EXPECT_EQ(parsed->sync(), c.mode == ConsistencyMode::kSync);
  }
}

TEST(Consistency, RefusesTheRestAndSaysWhatIsAccepted) {
  const char* const kBad[] = {"",
                              "Sync",
                              "bsp",
                              "ssp",
                              "ssp:",
                              "ssp:0",
                              "ssp:-1",
                              "ssp:2x",
                              "ssp: 2",
                              "ssp:1000001",
                              "ssp:99999999999999999999",
                              "async:1"};
  for (const char* text : kBad) {
    const absl::StatusOr<Consistency> parsed = ParseConsistency(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("must be sync, async, or ssp:K"));
  }
}

}  // namespace
}  // namespace capstan
