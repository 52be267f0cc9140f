#include "common/metrics.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(Metrics, OneCounterPerNameThatStaysWhereItIs) {
  MetricsRegistry registry;
  EXPECT_THAT(registry.Snapshot(), IsEmpty());
  Counter& pulls = registry.Get("pulls");
  for (int i = 0; i < 100; ++i) registry.Get("other_" + std::to_string(i));
  EXPECT_EQ(&registry.Get("pulls"), &pulls);
  pulls.Add();
  pulls.Add(4);
  EXPECT_EQ(registry.Get("pulls").value(), 5u);
}

TEST(Metrics, SnapshotIsSortedByName) {
  MetricsRegistry registry;
  registry.Get("b").Set(7);
  registry.Get("a").Add(2);
  registry.Get("b").Set(3);
  EXPECT_THAT(registry.Snapshot(), ElementsAre(Pair("a", 2u), Pair("b", 3u)));
}

TEST(Metrics, ThreadsLoseNoCount) {
  MetricsRegistry registry;
  constexpr int kThreads = 4, kEach = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&registry, t] {
      Counter& own = registry.Get("own_" + std::to_string(t));
      for (int i = 0; i < kEach; ++i) {
        registry.Get("shared").Add();
        own.Add();
      }
    });
  }
  for (int i = 0; i < 100; ++i) EXPECT_LE(registry.Snapshot().size(), kThreads + 1u);  // while they run
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.Get("shared").value(), static_cast<uint64_t>(kThreads) * kEach);
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(registry.Get("own_" + std::to_string(t)).value(), uint64_t{kEach});
}

}  // namespace
}  // namespace capstan
