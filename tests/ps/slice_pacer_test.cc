#include "ps/slice_pacer.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kSlice = microseconds(100);

TEST(SlicePacer, LeavesTheCoreItsPaceWhereTheProcessorIsOurs) {
  SlicePacer pacer;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 0), Duration::zero());
}

TEST(SlicePacer, PausesForAWhileAfterTheProcessorWasTaken) {
  SlicePacer pacer;
  EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 2), Duration::zero()) << "before the first slice";
  EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 3), SlicePacer::kPausePerWork * kSlice);
  for (int i = 1; i < SlicePacer::kCalmSlices; ++i) {
    EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 3), SlicePacer::kPausePerWork * kSlice) << i;
  }
  EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 3), Duration::zero()) << "calm";
  EXPECT_GT(pacer.After(Duration::zero(), kSlice, 4), Duration::zero()) << "taken once more";
}

TEST(SlicePacer, WhatIsLostBetweenCheckpointsCountsForNothing) {
  SlicePacer pacer;
  EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 0), Duration::zero());
  pacer.Rest();
  EXPECT_EQ(pacer.After(Duration::zero(), kSlice, 9), Duration::zero());
  EXPECT_GT(pacer.After(Duration::zero(), kSlice, 10), Duration::zero());
}

TEST(SlicePacer, PausesNoLongerThanItsLimit) {
  SlicePacer pacer;
  pacer.After(Duration::zero(), kSlice, 0);
  EXPECT_EQ(pacer.After(Duration::zero(), milliseconds(5), 1), SlicePacer::kLongestPause);
}

TEST(SlicePacer, ChangesNothingForWorkThatMustNotWaitOrWaitsAnyway) {
  SlicePacer pacer;
  EXPECT_EQ(pacer.After(Duration(-1), kSlice, 1), Duration(-1));
  EXPECT_EQ(pacer.After(Duration::max(), kSlice, 2), Duration::max());
  EXPECT_EQ(pacer.After(milliseconds(1), kSlice, 3), milliseconds(1));
}

TEST(SlicePacer, RunsTheSliceAtTheTimeOfTheClock) {
  ManualClock clock;
  SlicePacer pacer;
  Time seen{};
  const Duration pause = RunSlice(clock, [&](Time now) {
    seen = now;
    clock.Advance(kSlice);
    return Duration::max();
  }, &pacer);
  EXPECT_EQ(pause, Duration::max());
  EXPECT_EQ(seen, clock.Now() - kSlice);
}

}  // namespace
}  // namespace capstan
