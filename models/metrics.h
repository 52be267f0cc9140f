// How good scores are: exact AUC, log loss, accuracy, calibration and RMSE over rows that arrive in chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace capstan {

// Log losses clamp probabilities to [kProbabilityFloor, 1 - kProbabilityFloor]: a single-precision sigmoid
// reaches exactly 1 near a logit of 17, and one such row with label 0 would make the mean infinite.
inline constexpr double kProbabilityFloor = 1e-7;
double ClampProbability(double p);

// What cannot be said is absent: no row with weight; AUC and normalised entropy without both labels;
// calibration without a positive label. Everything is weighted; rows of weight 0 count nowhere.
struct EvalMetrics {
  uint64_t rows = 0;      // with weight > 0
  uint64_t bad_rows = 0;  // score, label or weight not finite, or weight < 0; if any, all metrics are absent
  double weight = 0;
  std::optional<double> auc;                 // ties count one half
  std::optional<double> logloss;             // nats
  std::optional<double> normalized_entropy;  // log loss over that of always predicting the mean label
                                             // (He et al., ADKDD 2014)
  std::optional<double> accuracy;            // score > 0.5 means label 1
  std::optional<double> calibration;         // mean score over mean label
  std::optional<double> rmse;
};

// Keeps every row (8 bytes; 12 once a weight differs from 1), since an exact AUC needs all of them. The
// result is a function of the rows and their order alone: sums run in fp64 over fixed blocks of rows,
// whatever the chunks were, and the AUC sorts by (score, label, weight). To merge partial results, append
// them in the order of their rows (splits in split order). Not thread-safe.
class MetricsAccumulator {
 public:
  // One entry per row; `labels` 0 or 1; `weights` ≥ 0, or empty: all are 1. Sizes must agree.
  void Add(std::span<const float> scores, std::span<const float> labels, std::span<const float> weights);
  // The rows of `later`, after ours.
  void Append(const MetricsAccumulator& later);

  // O(n log n). Can be called at any time, and again.
  EvalMetrics Compute() const;

  std::span<const float> scores() const { return scores_; }
  std::span<const float> labels() const { return labels_; }
  std::span<const float> weights() const { return weights_; }  // empty: all are 1

 private:
  std::vector<float> scores_;
  std::vector<float> labels_;
  std::vector<float> weights_;
};

// Chance that a random positive row scores above a random negative one, ties counting one half (the
// Mann-Whitney statistic), rows drawn by weight. Positive means label > 0.5. `weights` may be empty: all
// are 1. Absent if a class has no weight. Rows of weight 0 are not looked at; elsewhere all values must be
// finite, weights > 0.
std::optional<double> ExactAuc(std::span<const float> scores, std::span<const float> labels,
                               std::span<const float> weights);

}  // namespace capstan
