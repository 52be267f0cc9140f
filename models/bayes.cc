#include "models/bayes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include <glog/logging.h>

#include "models/metrics.h"

namespace capstan {

namespace {

constexpr size_t kBayesBlock = 1024;  // rows per partial sum

// Mean of term(i), summed by fixed blocks in row order.
template <typename Term>
double BlockMean(size_t rows, Term term) {
  double total = 0;
  for (size_t begin = 0; begin < rows; begin += kBayesBlock) {
    double sum = 0;
    const size_t end = std::min(rows, begin + kBayesBlock);
    for (size_t i = begin; i < end; ++i) sum += term(i);
    total += sum;
  }
  return total / static_cast<double>(rows);
}

double ExpectedRowLoss(double p, double q) { return -p * std::log(q) - (1 - p) * std::log1p(-q); }

// p ln(p/q) + (1-p) ln((1-p)/(1-q)); close to p = q the difference of two entropies would be mere rounding.
double RowDivergence(double p, double q) {
  return p * std::log1p((p - q) / q) + (1 - p) * std::log1p((q - p) / (1 - q));
}

}  // namespace

std::optional<double> ExpectedAuc(std::span<const double> probabilities, std::span<const double> scores) {
  CHECK_EQ(probabilities.size(), scores.size());
  struct Row {
    double score;
    double p;
  };
  std::vector<Row> rows(scores.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = {scores[i], probabilities[i]};
  std::sort(rows.begin(), rows.end(),
            [](const Row& a, const Row& b) { return std::tie(a.score, a.p) < std::tie(b.score, b.p); });

  double positives = 0;
  double negatives = 0;  // expected number among the rows below the present score
  double with_itself = 0;
  double ordered_pairs = 0;
  for (size_t begin = 0; begin < rows.size();) {
    double tied_positives = 0;
    double tied_negatives = 0;
    double tied_with_itself = 0;
    size_t end = begin;
    for (; end < rows.size() && rows[end].score == rows[begin].score; ++end) {
      const double p = rows[end].p;
      tied_positives += p;
      tied_negatives += 1 - p;
      tied_with_itself += p * (1 - p);
    }
    ordered_pairs += tied_positives * negatives + 0.5 * (tied_positives * tied_negatives - tied_with_itself);
    positives += tied_positives;
    negatives += tied_negatives;
    with_itself += tied_with_itself;
    begin = end;
  }
  const double pairs = positives * negatives - with_itself;
  if (rows.size() < 2 || !(pairs > 0)) return std::nullopt;
  return ordered_pairs / pairs;
}

double ExpectedLogLoss(std::span<const double> probabilities, std::span<const double> scores) {
  CHECK_EQ(probabilities.size(), scores.size());
  CHECK(!scores.empty());
  return BlockMean(scores.size(),
                   [&](size_t i) { return ExpectedRowLoss(probabilities[i], ClampProbability(scores[i])); });
}

GapReport CompareToOptimum(std::span<const double> probabilities, std::span<const double> scores) {
  GapReport report;
  report.auc = ExpectedAuc(probabilities, scores);
  report.best_auc = ExpectedAuc(probabilities, probabilities);
  report.logloss = ExpectedLogLoss(probabilities, scores);
  report.best_logloss = ExpectedLogLoss(probabilities, probabilities);
  report.logloss_gap = BlockMean(scores.size(), [&](size_t i) {
    return RowDivergence(ClampProbability(probabilities[i]), ClampProbability(scores[i]));
  });
  return report;
}

}  // namespace capstan
