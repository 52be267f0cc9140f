#include "ps/gradient_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"

namespace capstan {
namespace {

constexpr float kBadValues[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()};

struct Pushed {  // of one rank, in key order
  std::vector<Key> keys;
  std::vector<float> gradients;
};

struct Merged {
  std::vector<std::pair<Key, std::vector<uint32_t>>> rows;  // bits, so that -0 and 0 differ
  uint64_t nonfinite_rows = 0;
  bool operator==(const Merged& other) const {
    return rows == other.rows && nonfinite_rows == other.nonfinite_rows;
  }
};

std::vector<uint32_t> Bits(const float* values, size_t n) {
  std::vector<uint32_t> bits(n);
  std::memcpy(bits.data(), values, n * sizeof(float));
  return bits;
}

bool Finite(const std::vector<float>& row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
}

// What the header promises, with a map and one row at a time.
Merged NaiveMerge(const std::vector<Pushed>& ranks, uint32_t width, double divisor) {
  Merged merged;
  std::map<Key, std::vector<float>> sums;
  for (const Pushed& rank : ranks) {
    for (size_t i = 0; i < rank.keys.size(); ++i) {
      const float* const g = rank.gradients.data() + i * width;
      const std::vector<float> row(g, g + width);
      if (!Finite(row)) {
        ++merged.nonfinite_rows;
        continue;
      }
      const auto [at, fresh] = sums.try_emplace(rank.keys[i], row);
      for (uint32_t j = 0; j < width && !fresh; ++j) at->second[j] += row[j];
    }
  }
  for (auto& [key, row] : sums) {
    for (float& x : row) x = x / static_cast<float>(divisor);
    if (Finite(row)) {
      merged.rows.emplace_back(key, Bits(row.data(), width));
    } else {
      ++merged.nonfinite_rows;
    }
  }
  return merged;
}

// Cuts a rank's rows into chunks of `chunk` (0: one chunk), with an empty chunk in front of each.
RankGradients Cut(const Pushed& rank, uint32_t width, size_t chunk) {
  RankGradients chunks;
  const size_t n = rank.keys.size();
  const size_t size = chunk == 0 ? std::max<size_t>(n, 1) : chunk;
  for (size_t first = 0; first < n; first += size) {
    chunks.push_back({});
    chunks.push_back({std::span(rank.keys).subspan(first, std::min(size, n - first)),
                      rank.gradients.data() + first * width});
  }
  return chunks;
}

Merged OurMerge(const std::vector<Pushed>& ranks, uint32_t width, double divisor, size_t chunk,
                size_t block) {
  std::vector<RankGradients> gradients;
  for (const Pushed& rank : ranks) gradients.push_back(Cut(rank, width, chunk));
  Merged merged;
  const MergeCounts counts =
      SumInRankOrder(gradients, width, divisor, block, [&](std::span<const Key> keys, const float* rows) {
        EXPECT_GE(keys.size(), 1u);
        EXPECT_LE(keys.size(), block);
        for (size_t i = 0; i < keys.size(); ++i) {
          merged.rows.emplace_back(keys[i], Bits(rows + i * width, width));
        }
      });
  EXPECT_EQ(counts.keys, merged.rows.size());
  merged.nonfinite_rows = counts.nonfinite_rows;
  return merged;
}

// Every choice of which of three ranks has which of three keys, the extreme keys among them.
TEST(SumInRankOrder, EqualsTheNaiveMapOnAllSmallCases) {
  constexpr Key kKeys[] = {0, 7, ~Key{0}};
  // Values whose sum depends on the order, and zeros of both signs.
  constexpr float kValues[3][3] = {{1e8f, -0.0f, 0.1f}, {1.0f, -0.0f, 0.2f}, {-1e8f, 0.0f, 0.3f}};
  for (uint32_t mask = 0; mask < (1u << 9); ++mask) {
    std::vector<Pushed> ranks(3);
    for (int r = 0; r < 3; ++r) {
      for (int k = 0; k < 3; ++k) {
        if (!(mask >> (3 * r + k) & 1)) continue;
        ranks[r].keys.push_back(kKeys[k]);
        for (int j = 0; j < 2; ++j) ranks[r].gradients.push_back(kValues[r][(k + j) % 3]);
      }
    }
    for (const double divisor : {1.0, 3.0}) {
      const Merged expected = NaiveMerge(ranks, 2, divisor);
      for (const size_t chunk : {0, 1, 2}) {
        for (const size_t block : {1, 2, 100}) {
          ASSERT_TRUE(OurMerge(ranks, 2, divisor, chunk, block) == expected)
              << "mask " << mask << " divisor " << divisor << " chunk " << chunk << " block " << block;
        }
      }
    }
  }
}

TEST(SumInRankOrder, EqualsTheNaiveMapOnRandomCases) {
  SeededRandom random(5);
  for (int round = 0; round < 300; ++round) {
    const uint32_t width = 1 + random.Below(20);
    std::vector<Pushed> ranks(random.Below(6));
    for (Pushed& rank : ranks) {
      const uint64_t space = 1 + random.Below(60);
      for (Key key = 0; key < space; ++key) {
        if (random.Below(3) == 0) continue;
        rank.keys.push_back(key * 0x0400000000000001ull);  // increasing up to the top of the range
        const bool bad = random.Below(10) == 0;
        const uint32_t bad_at = static_cast<uint32_t>(random.Below(width));
        for (uint32_t j = 0; j < width; ++j) {
          const float value = UniformFromBits(random.Next()) * (random.Below(50) == 0 ? 3e38f : 1.0f);
          rank.gradients.push_back(bad && j == bad_at ? kBadValues[random.Below(3)] : value);
        }
      }
    }
    const double divisor = random.Below(2) == 0 ? 1.0 : 0.25 + random.Unit() * 100;
    const size_t chunk = random.Below(9), block = 1 + random.Below(40);
    ASSERT_TRUE(OurMerge(ranks, width, divisor, chunk, block) == NaiveMerge(ranks, width, divisor))
        << "round " << round;
  }
}

TEST(SumInRankOrder, LeavesOutTheBadRowOfOneRankOnly) {
  for (const float bad : kBadValues) {
    const std::vector<Pushed> ranks = {{{1, 2}, {1, 1, 2, bad}}, {{1, 2}, {10, 10, 20, 20}}};
    const Merged merged = OurMerge(ranks, 2, 1, 0, 10);
    EXPECT_EQ(merged.nonfinite_rows, 1u);
    ASSERT_EQ(merged.rows.size(), 2u);
    const float first[] = {11, 11}, second[] = {20, 20};
    EXPECT_EQ(merged.rows[0].second, Bits(first, 2));
    EXPECT_EQ(merged.rows[1].second, Bits(second, 2));
  }
}

TEST(SumInRankOrder, LeavesOutASumThatOverflows) {
  const std::vector<Pushed> ranks = {{{1, 2}, {3e38f, 1}}, {{1, 2}, {3e38f, 1}}};
  const Merged merged = OurMerge(ranks, 1, 1, 0, 10);
  EXPECT_EQ(merged.nonfinite_rows, 1u);
  ASSERT_EQ(merged.rows.size(), 1u);
  EXPECT_EQ(merged.rows[0].first, 2u);
}

TEST(SumInRankOrder, AKeyWithoutAFiniteContributionIsNotHandedOn) {
  const std::vector<Pushed> ranks = {{{5}, {kBadValues[0]}}, {{5}, {kBadValues[1]}}};
  const Merged merged = OurMerge(ranks, 1, 1, 0, 10);
  EXPECT_EQ(merged.nonfinite_rows, 2u);
  EXPECT_TRUE(merged.rows.empty());
}

TEST(SumInRankOrder, ADivisorThatMakesNoSenseLeavesOutEverything) {
  for (const double divisor : {0.0, std::numeric_limits<double>::quiet_NaN()}) {
    for (const size_t ranks : {1, 2}) {
      const Merged merged = OurMerge(std::vector<Pushed>(ranks, {{3, 4}, {1, 2}}), 1, divisor, 0, 10);
      EXPECT_TRUE(merged.rows.empty());
      EXPECT_EQ(merged.nonfinite_rows, 2u);
    }
  }
}

TEST(SumInRankOrder, OneCleanRankIsReadInPlace) {
  const Pushed rank = {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}};
  const RankGradients chunks[] = {Cut(rank, 1, 3)};
  std::vector<const float*> seen;
  SumInRankOrder(chunks, 1, 1.0, 2, [&](std::span<const Key>, const float* rows) { seen.push_back(rows); });
  const float* const base = rank.gradients.data();
  EXPECT_EQ(seen, (std::vector<const float*>{base, base + 2, base + 3}));
}

}  // namespace
}  // namespace capstan
