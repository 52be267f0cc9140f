#include "models/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"

namespace capstan {
namespace {

struct EvalRows {
  std::vector<float> scores;
  std::vector<float> labels;
  std::vector<float> weights;
};

// 64 different scores over `n` rows, hence many ties; every value exact in single precision.
EvalRows TiedRows(size_t n) {
  EvalRows rows;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t h = Mix64(i);
    rows.scores.push_back((static_cast<float>(h & 63) + 0.5f) / 64);
    rows.labels.push_back(((h >> 8) & 127) < (h & 63) + 10 ? 1.0f : 0.0f);
    rows.weights.push_back(static_cast<float>(((h >> 16) & 7) + 1) / 4);
  }
  return rows;
}

EvalMetrics ComputeAll(const EvalRows& rows) {
  MetricsAccumulator accumulator;
  accumulator.Add(rows.scores, rows.labels, rows.weights);
  return accumulator.Compute();
}

// The definition, pair by pair.
double PairwiseAuc(const EvalRows& rows) {
  double ordered = 0;
  double pairs = 0;
  for (size_t i = 0; i < rows.scores.size(); ++i) {
    for (size_t j = 0; j < rows.scores.size(); ++j) {
      if (rows.labels[i] != 1 || rows.labels[j] != 0) continue;
      const double weight = static_cast<double>(rows.weights[i]) * rows.weights[j];
      pairs += weight;
      if (rows.scores[i] > rows.scores[j]) ordered += weight;
      if (rows.scores[i] == rows.scores[j]) ordered += 0.5 * weight;
    }
  }
  return ordered / pairs;
}

void ExpectSameBits(const EvalMetrics& a, const EvalMetrics& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.bad_rows, b.bad_rows);
  EXPECT_EQ(a.weight, b.weight);
  EXPECT_EQ(a.auc, b.auc);
  EXPECT_EQ(a.logloss, b.logloss);
  EXPECT_EQ(a.normalized_entropy, b.normalized_entropy);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.calibration, b.calibration);
  EXPECT_EQ(a.rmse, b.rmse);
}

// Recorded from scikit-learn (roc_auc_score, log_loss, accuracy_score, mean_squared_error) on the same rows.
TEST(EvalMetrics, AgreeWithScikitLearn) {
  EvalRows rows = TiedRows(2000);
  const EvalMetrics weighted = ComputeAll(rows);
  EXPECT_NEAR(weighted.auc.value(), 0.6938266285551815, 1e-12);
  EXPECT_NEAR(weighted.logloss.value(), 0.7245232090805841, 1e-12);
  EXPECT_NEAR(weighted.accuracy.value(), 0.6317003514938488, 1e-12);
  EXPECT_NEAR(weighted.rmse.value(), 0.4939069319935729, 1e-12);
  EXPECT_NEAR(weighted.calibration.value(), 1.4395287016309561, 1e-12);
  EXPECT_NEAR(weighted.normalized_entropy.value(), 1.126236041547121, 1e-12);

  rows.weights.clear();
  const EvalMetrics plain = ComputeAll(rows);
  EXPECT_EQ(plain.rows, 2000u);
  EXPECT_EQ(plain.weight, 2000);
  EXPECT_NEAR(plain.auc.value(), 0.6913089235890156, 1e-12);
  EXPECT_NEAR(plain.logloss.value(), 0.7269878960609374, 1e-12);
  EXPECT_NEAR(plain.accuracy.value(), 0.6335, 1e-12);
  EXPECT_NEAR(plain.rmse.value(), 0.4950608094750836, 1e-12);
  EXPECT_NEAR(plain.calibration.value(), 1.4496425953079177, 1e-12);
  EXPECT_NEAR(plain.normalized_entropy.value(), 1.1329153970601284, 1e-12);
}

TEST(ExactAuc, AgreesWithItsDefinition) {
  for (const uint64_t seed : {1u, 2u, 3u, 4u}) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed);
    EvalRows rows;
    for (int i = 0; i < 400; ++i) {
      // Between 4 and 256 different scores, some of them negative.
      rows.scores.push_back(static_cast<float>(random.Below(uint64_t{1} << (2 * seed))) - 2);
      rows.labels.push_back(static_cast<float>(random.Below(2)));
      rows.weights.push_back(static_cast<float>(random.Below(4)));  // 0 included
    }
    EXPECT_NEAR(ExactAuc(rows.scores, rows.labels, rows.weights).value(), PairwiseAuc(rows), 1e-12);
  }
}

struct AucCase {
  const char* why;
  std::vector<float> scores;
  std::vector<float> labels;
  std::optional<double> auc;
};

TEST(ExactAuc, FollowsTheTable) {
  const std::vector<AucCase> cases = {
      {"no rows", {}, {}, std::nullopt},
      {"positives only", {0.1f, 0.9f}, {1, 1}, std::nullopt},
      {"negatives only", {0.1f, 0.9f}, {0, 0}, std::nullopt},
      {"right order", {0.1f, 0.9f}, {0, 1}, 1.0},
      {"wrong order", {0.1f, 0.9f}, {1, 0}, 0.0},
      {"all tied", {0.5f, 0.5f, 0.5f}, {1, 0, 1}, 0.5},
      {"zeros of both signs are one score", {0.0f, -0.0f}, {0, 1}, 0.5},
      {"one pair of two tied", {0.2f, 0.2f, 0.1f}, {1, 0, 0}, 0.75},
      {"next representable score is no tie", {0.5f, std::nextafter(0.5f, 1.0f)}, {0, 1}, 1.0},
  };
  for (const AucCase& c : cases) EXPECT_EQ(ExactAuc(c.scores, c.labels, {}), c.auc) << c.why;
}

TEST(MetricsAccumulator, ChunksDoNotShowInTheResult) {
  const EvalRows rows = TiedRows(5000);
  const EvalMetrics whole = ComputeAll(rows);
  for (const size_t chunk : {1u, 7u, 1024u, 1025u, 4999u}) {
    SCOPED_TRACE(chunk);
    MetricsAccumulator merged;
    for (size_t begin = 0; begin < rows.scores.size(); begin += chunk) {
      const size_t size = std::min(chunk, rows.scores.size() - begin);
      MetricsAccumulator part;
      part.Add(std::span(rows.scores).subspan(begin, size), std::span(rows.labels).subspan(begin, size),
               std::span(rows.weights).subspan(begin, size));
      merged.Append(part);
    }
    ExpectSameBits(merged.Compute(), whole);
  }
}

// Weights may turn up late, and chunks without them count as ones.
TEST(MetricsAccumulator, MixesChunksWithAndWithoutWeights) {
  EvalRows rows = TiedRows(300);
  for (size_t i = 0; i < 100; ++i) rows.weights[i] = rows.weights[200 + i] = 1;
  MetricsAccumulator accumulator;
  const std::span<const float> scores = rows.scores;
  const std::span<const float> labels = rows.labels;
  const std::span<const float> weights = rows.weights;
  accumulator.Add(scores.first(100), labels.first(100), {});
  EXPECT_TRUE(accumulator.weights().empty());
  accumulator.Add(scores.subspan(100, 100), labels.subspan(100, 100), weights.subspan(100, 100));
  accumulator.Add(scores.last(100), labels.last(100), weights.last(100));
  EXPECT_EQ(accumulator.weights().size(), 300u);
  ExpectSameBits(accumulator.Compute(), ComputeAll(rows));
}

TEST(MetricsAccumulator, AppendsItself) {
  const EvalRows rows = TiedRows(50);
  MetricsAccumulator accumulator;
  accumulator.Add(rows.scores, rows.labels, rows.weights);
  accumulator.Append(accumulator);
  EXPECT_EQ(accumulator.Compute().rows, 100u);
}

TEST(EvalMetrics, NothingIsSaidAboutNoRows) {
  const EvalMetrics empty = MetricsAccumulator().Compute();
  EXPECT_EQ(empty.rows, 0u);
  EXPECT_FALSE(empty.auc || empty.logloss || empty.accuracy || empty.calibration || empty.rmse ||
               empty.normalized_entropy);
}

TEST(EvalMetrics, OneClassHasNoAuc) {
  const EvalMetrics negatives = ComputeAll({{0.25f, 0.5f}, {0, 0}, {}});
  EXPECT_FALSE(negatives.auc.has_value());
  EXPECT_FALSE(negatives.calibration.has_value());
  EXPECT_FALSE(negatives.normalized_entropy.has_value());
  EXPECT_EQ(negatives.accuracy, 1.0);  // 0.5 does not exceed the threshold
  EXPECT_NEAR(negatives.logloss.value(), -(std::log(0.75) + std::log(0.5)) / 2, 1e-15);

  const EvalMetrics positives = ComputeAll({{0.25f, 0.75f}, {1, 1}, {}});
  EXPECT_FALSE(positives.auc.has_value());
  EXPECT_EQ(positives.calibration, 0.5);
  EXPECT_EQ(positives.accuracy, 0.5);
}

TEST(EvalMetrics, RowsOfWeightZeroCountNowhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const EvalMetrics with = ComputeAll({{0.25f, nan, 0.75f}, {0, 1, 1}, {1, 0, 1}});
  ExpectSameBits(with, ComputeAll({{0.25f, 0.75f}, {0, 1}, {}}));
}

TEST(EvalMetrics, ADivergedModelGetsNoFigures) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<EvalRows> cases = {
      {{0.5f, nan}, {0, 1}, {}},        {{0.5f, inf}, {0, 1}, {}},       {{0.5f, 0.5f}, {0, nan}, {}},
      {{0.5f, 0.5f}, {0, 1}, {1, nan}}, {{0.5f, 0.5f}, {0, 1}, {1, -1}},
  };
  for (const EvalRows& rows : cases) {
    const EvalMetrics metrics = ComputeAll(rows);
    EXPECT_EQ(metrics.bad_rows, 1u);
    EXPECT_EQ(metrics.rows, 1u);
    EXPECT_FALSE(metrics.auc || metrics.logloss || metrics.accuracy || metrics.calibration || metrics.rmse);
  }
}

TEST(EvalMetrics, CertainAndWrongIsExpensiveButFinite) {
  const EvalMetrics metrics = ComputeAll({{1, 0}, {0, 1}, {}});
  EXPECT_NEAR(metrics.logloss.value(), -std::log(kProbabilityFloor), 1e-8);
  const EvalMetrics right = ComputeAll({{1, 0}, {1, 0}, {}});
  EXPECT_NEAR(right.logloss.value(), 0, 2 * kProbabilityFloor);
}

}  // namespace
}  // namespace capstan
