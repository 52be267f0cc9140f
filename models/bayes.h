// Scores judged against known click probabilities instead of labels: the noise of the labels is integrated
// out, so a gap of 0.0005 shows in rows where realised labels would need a hundred times as many. For the
// generated click log (data/generator.h), whose probabilities are exact.
#pragma once

#include <optional>
#include <span>

namespace capstan {

// The AUC expected over draws of the labels from `probabilities`, given these scores; ties count one half:
//   sum over i != j of p_i (1 - p_j) [q_i > q_j]  /  (sum p * sum (1 - p) - sum p (1 - p)).
// That ratio of expectations is the mean AUC up to O(1/n). O(n log n). Absent below two rows, or if no label
// can differ from another. Sizes agree; probabilities in [0, 1]; scores finite, on any scale.
std::optional<double> ExpectedAuc(std::span<const double> probabilities, std::span<const double> scores);

// The log loss (nats) expected over draws of the labels; scores in [0, 1], clamped as in models/metrics.h.
// Not empty.
double ExpectedLogLoss(std::span<const double> probabilities, std::span<const double> scores);

struct GapReport {
  std::optional<double> auc;       // expected, of the scores
  std::optional<double> best_auc;  // of the true probabilities
  double logloss = 0;              // expected, of the scores
  double best_logloss = 0;         // of the true probabilities: their mean entropy
  double logloss_gap = 0;          // mean Kullback-Leibler divergence, ≥ 0; equals logloss - best_logloss
};

// Not empty; sizes agree.
GapReport CompareToOptimum(std::span<const double> probabilities, std::span<const double> scores);

}  // namespace capstan
