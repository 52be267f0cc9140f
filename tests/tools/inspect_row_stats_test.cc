#include "tools/inspect/row_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

std::string BinsOf(const std::vector<double>& values) {
  LogHistogram histogram;
  for (const double value : values) histogram.Add(value);
  EXPECT_EQ(histogram.total(), values.size());
  std::string text;
  for (const LogHistogram::Bin& bin : histogram.bins())
    text += fmt::format("[{} {}) {}\n", bin.low, bin.high, bin.count);
  return text;
}

TEST(LogHistogram, BinsArePowersOfTwoFromTheFirstToTheLastThatHasSomething) {
  EXPECT_EQ(BinsOf({}), "");
  EXPECT_EQ(BinsOf({0, 0}), "[0 0) 2\n");
  EXPECT_EQ(BinsOf({1}), "[1 2) 1\n");
  EXPECT_EQ(BinsOf({1, std::nextafter(2.0, 0), 2, 8, 15.5}), "[1 2) 2\n[2 4) 1\n[4 8) 0\n[8 16) 2\n");
}

TEST(LogHistogram, ZerosHaveABinOfTheirOwnAndNoneBetweenThemAndTheRest) {
  EXPECT_EQ(BinsOf({0, 4}), "[0 0) 1\n[4 8) 1\n");
}

TEST(LogHistogram, WhatLiesBeyondItsEndsIsCountedAtThem) {
  LogHistogram histogram;
  for (const double value :
       {1e-300, 1e300, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()})
    histogram.Add(value);
  const std::vector<LogHistogram::Bin> bins = histogram.bins();
  ASSERT_GE(bins.size(), 2u);
  EXPECT_EQ(bins.front().count, 2u);
  EXPECT_EQ(bins.front().low, 0);  // it holds all that is smaller
  EXPECT_EQ(bins.back().count, 2u);
  EXPECT_EQ(bins.back().high, std::numeric_limits<double>::infinity());
}

TEST(TopRows, KeepsTheHighestAndOfEqualOnesTheLowerKeys) {
  std::mt19937_64 random(5);
  std::vector<TopRow> all;
  TopRows top(20);
  for (int i = 0; i < 2000; ++i) {
    all.push_back({static_cast<double>(random() % 100), random() % 100'000});
    top.Add(all.back().key, all.back().score);
  }
  std::sort(all.begin(), all.end(),
            [](const TopRow& a, const TopRow& b) { return a.score != b.score ? a.score > b.score : a.key < b.key; });
  const std::vector<TopRow> sorted = top.Sorted();
  ASSERT_EQ(sorted.size(), 20u);
  for (size_t i = 0; i < sorted.size(); ++i) {
    EXPECT_EQ(sorted[i].key, all[i].key);
    EXPECT_EQ(sorted[i].score, all[i].score);
  }
  TopRows none(0);
  none.Add(1, 1);
  EXPECT_TRUE(none.Sorted().empty());
}

struct AgeCase {
  const char* why;
  uint64_t clock;
  uint32_t last_step, updates;
  double age;
};
constexpr AgeCase kAges[] = {
    {"just now", 100, 100, 1, 0},
    {"a step ago", 100, 99, 1, 1},
    {"the push of the next step is in already", 100, 101, 1, 0},
    {"never updated", 100, 0, 0, 0},
    {"the 32 bits of a step have run over", (uint64_t{1} << 32) + 5, 0xFFFFFFFF, 1, 6},
    {"and the clock's are taken alike", (uint64_t{7} << 32) + 5, 3, 1, 2},
};
TEST(AgeOf, FollowsTheTable) {
  for (const AgeCase& c : kAges) {
    StoredRow row;
    row.last_step = c.last_step;
    row.updates = c.updates;
    EXPECT_EQ(AgeOf(row, c.clock), c.age) << c.why;
  }
}

}  // namespace
}  // namespace capstan
