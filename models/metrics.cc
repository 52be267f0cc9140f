#include "models/metrics.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <glog/logging.h>

namespace capstan {

namespace {

constexpr size_t kSumBlock = 1024;  // rows; part of what the bits of a result depend on
constexpr double kDecisionThreshold = 0.5;

struct EvalSums {
  double weight = 0;
  double loss = 0;
  double correct = 0;
  double score = 0;
  double label = 0;
  double squared_error = 0;

  void Add(const EvalSums& other) {
    weight += other.weight;
    loss += other.loss;
    correct += other.correct;
    score += other.score;
    label += other.label;
    squared_error += other.squared_error;
  }
};

void AddRow(double score, double label, double weight, EvalSums* sums) {
  const double p = ClampProbability(score);
  const double error = score - label;
  sums->weight += weight;
  sums->loss -= weight * (label * std::log(p) + (1 - label) * std::log1p(-p));
  sums->correct += (score > kDecisionThreshold) == (label > kDecisionThreshold) ? weight : 0;
  sums->score += weight * score;
  sums->label += weight * label;
  sums->squared_error += weight * error * error;
}

double EntropyOfRate(double p) { return -p * std::log(p) - (1 - p) * std::log1p(-p); }

bool IsBadRow(float score, float label, float weight) {
  return !std::isfinite(score) || !std::isfinite(label) || !std::isfinite(weight) || weight < 0;
}

}  // namespace

double ClampProbability(double p) { return std::clamp(p, kProbabilityFloor, 1 - kProbabilityFloor); }

std::optional<double> ExactAuc(std::span<const float> scores, std::span<const float> labels,
                               std::span<const float> weights) {
  CHECK_EQ(scores.size(), labels.size());
  CHECK(weights.empty() || weights.size() == scores.size());
  struct Row {
    float score;
    float label;
    float weight;
  };
  std::vector<Row> rows;
  rows.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const float weight = weights.empty() ? 1.0f : weights[i];
    if (weight != 0) rows.push_back({scores[i], labels[i], weight});
  }
  // Rows that are equal in all three are interchangeable, so the sums below do not depend on the sort.
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.score, a.label, a.weight) < std::tie(b.score, b.label, b.weight);
  });

  double positives = 0;
  double negatives = 0;  // with scores below the present one
  double ordered_pairs = 0;
  for (size_t begin = 0; begin < rows.size();) {
    double tied_positives = 0;
    double tied_negatives = 0;
    size_t end = begin;
    for (; end < rows.size() && rows[end].score == rows[begin].score; ++end) {
      (rows[end].label > kDecisionThreshold ? tied_positives : tied_negatives) += rows[end].weight;
    }
    ordered_pairs += tied_positives * (negatives + 0.5 * tied_negatives);
    positives += tied_positives;
    negatives += tied_negatives;
    begin = end;
  }
  if (!(positives > 0) || !(negatives > 0)) return std::nullopt;
  return ordered_pairs / (positives * negatives);
}

void MetricsAccumulator::Add(std::span<const float> scores, std::span<const float> labels,
                             std::span<const float> weights) {
  CHECK_EQ(scores.size(), labels.size());
  CHECK(weights.empty() || weights.size() == scores.size());
  const bool all_ones = std::all_of(weights.begin(), weights.end(), [](float w) { return w == 1.0f; });
  if (!all_ones && weights_.empty()) weights_.assign(scores_.size(), 1.0f);
  if (!all_ones) {
    weights_.insert(weights_.end(), weights.begin(), weights.end());
  } else if (!weights_.empty()) {
    weights_.resize(weights_.size() + scores.size(), 1.0f);
  }
  scores_.insert(scores_.end(), scores.begin(), scores.end());
  labels_.insert(labels_.end(), labels.begin(), labels.end());
}

void MetricsAccumulator::Append(const MetricsAccumulator& later) {
  if (&later == this) {
    const MetricsAccumulator copy = later;
    Add(copy.scores_, copy.labels_, copy.weights_);
    return;
  }
  Add(later.scores_, later.labels_, later.weights_);
}

EvalMetrics MetricsAccumulator::Compute() const {
  EvalMetrics result;
  EvalSums total;
  for (size_t begin = 0; begin < scores_.size(); begin += kSumBlock) {
    EvalSums block;
    const size_t end = std::min(scores_.size(), begin + kSumBlock);
    for (size_t i = begin; i < end; ++i) {
      const float weight = weights_.empty() ? 1.0f : weights_[i];
      if (weight == 0) continue;
      if (IsBadRow(scores_[i], labels_[i], weight)) {
        ++result.bad_rows;
        continue;
      }
      ++result.rows;
      AddRow(scores_[i], labels_[i], weight, &block);
    }
    total.Add(block);
  }
  result.weight = total.weight;
  if (result.bad_rows > 0 || result.rows == 0) return result;

  result.logloss = total.loss / total.weight;
  result.accuracy = total.correct / total.weight;
  result.rmse = std::sqrt(total.squared_error / total.weight);
  const double rate = total.label / total.weight;
  if (rate > 0) result.calibration = total.score / total.label;
  if (rate > 0 && rate < 1) result.normalized_entropy = *result.logloss / EntropyOfRate(rate);
  result.auc = ExactAuc(scores_, labels_, weights_);
  return result;
}

}  // namespace capstan
