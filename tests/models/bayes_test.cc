#include "models/bayes.h"

#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "common/random.h"
#include "data/generator_blocks.h"
#include "models/metrics.h"

namespace capstan {
namespace {

// The definition, pair by pair.
double PairwiseExpectedAuc(const std::vector<double>& p, const std::vector<double>& q) {
  double ordered = 0;
  double pairs = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    for (size_t j = 0; j < p.size(); ++j) {
      if (i == j) continue;
      const double weight = p[i] * (1 - p[j]);
      pairs += weight;
      if (q[i] > q[j]) ordered += weight;
      if (q[i] == q[j]) ordered += 0.5 * weight;
    }
  }
  return ordered / pairs;
}

TEST(ExpectedAuc, AgreesWithItsDefinition) {
  SeededRandom random(11);
  std::vector<double> p;
  std::vector<double> q;
  for (int i = 0; i < 300; ++i) {
    p.push_back(random.Unit());
    q.push_back(static_cast<double>(random.Below(20)) / 20);  // ties
  }
  EXPECT_NEAR(ExpectedAuc(p, q).value(), PairwiseExpectedAuc(p, q), 1e-12);
  EXPECT_NEAR(ExpectedAuc(p, p).value(), PairwiseExpectedAuc(p, p), 1e-12);
}

TEST(ExpectedAuc, CertainLabelsGiveTheOrdinaryAuc) {
  const std::vector<double> labels = {0, 1, 1, 0, 1};
  const std::vector<double> scores = {0.25, 0.5, 0.25, 0.125, 0.75};
  const std::vector<float> same_labels = {0, 1, 1, 0, 1};
  const std::vector<float> same_scores = {0.25f, 0.5f, 0.25f, 0.125f, 0.75f};
  EXPECT_DOUBLE_EQ(ExpectedAuc(labels, scores).value(), ExactAuc(same_scores, same_labels, {}).value());
}

TEST(ExpectedAuc, AbsentWherePairsCannotExist) {
  EXPECT_FALSE(ExpectedAuc({}, {}).has_value());
  const std::vector<double> one = {0.5};
  EXPECT_FALSE(ExpectedAuc(one, one).has_value());
  const std::vector<double> certain = {1, 1, 1};
  EXPECT_FALSE(ExpectedAuc(certain, certain).has_value());
}

TEST(CompareToOptimum, TheTruthHasNoGap) {
  const std::vector<double> p = {0.1, 0.7, 0.3, 0.95};
  const GapReport report = CompareToOptimum(p, p);
  EXPECT_EQ(report.auc, report.best_auc);
  EXPECT_EQ(report.logloss, report.best_logloss);
  EXPECT_EQ(report.logloss_gap, 0);
}

TEST(CompareToOptimum, TheGapIsTheDifferenceOfTheLosses) {
  SeededRandom random(5);
  std::vector<double> p;
  std::vector<double> q;
  for (int i = 0; i < 5000; ++i) {
    p.push_back(0.001 + 0.998 * random.Unit());
    q.push_back(0.001 + 0.998 * random.Unit());
  }
  const GapReport report = CompareToOptimum(p, q);
  EXPECT_GT(report.logloss_gap, 0);
  EXPECT_NEAR(report.logloss_gap, report.logloss - report.best_logloss, 1e-12);
  EXPECT_LT(report.auc.value(), report.best_auc.value());
}

// A logit off by a tiny shift costs about shift^2 / 2 * mean p(1-p): less than the rounding error of either loss.
TEST(CompareToOptimum, SeesGapsBelowRounding) {
  std::vector<double> p;
  std::vector<double> q;
  double spread = 0;
  constexpr double kShift = 1e-7;
  for (int i = 0; i < 1000; ++i) {
    const double logit = -3 + 0.004 * i;
    p.push_back(1 / (1 + std::exp(-logit)));
    q.push_back(1 / (1 + std::exp(-logit - kShift)));
    spread += p.back() * (1 - p.back()) / 1000;
  }
  EXPECT_NEAR(CompareToOptimum(p, q).logloss_gap, kShift * kShift * spread / 2, 1e-17);
}

// An independent implementation gave 0.8277987 and 0.4232095 on these rows, and 0.82861 and 0.42217 on the
// first 400,000.
TEST(CompareToOptimum, OptimumOfTheTestRowsOfSeedOne) {
  std::vector<uint64_t> rows(100'000);
  std::iota(rows.begin(), rows.end(), kFirstTestRow);
  const std::vector<double> p = ClickProbabilities(ClickLog(1), rows, 2);
  EXPECT_NEAR(ExpectedAuc(p, p).value(), 0.8277987031751273, 1e-11);
  EXPECT_NEAR(ExpectedLogLoss(p, p), 0.42320945006350486, 1e-11);
}

}  // namespace
}  // namespace capstan
