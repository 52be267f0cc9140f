// Training, not only gradients: the loss must fall to what is known to be the best.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/compute_thread.h"
#include "kernels/loss.h"
#include "models/network.h"
#include "proto/control.pb.h"
#include "tests/models/local_tables.h"
#include "tests/models/test_batch.h"

namespace capstan {
namespace {

// A problem whose best loss is known: labels are drawn with the probability that a hidden rule gives.
struct LearningProblem {
  const char* name;
  const char* model;
  bool interaction;     // the rule multiplies two features, which a linear model cannot follow
  double lower, upper;  // bounds of the mean loss on fresh rows, less the best possible
};
const LearningProblem kProblems[] = {
    {"LrOnALinearRule", "lr", false, -0.01, 0.01},
    {"LrOnAnInteraction", "lr", true, 0.1, 0.6},
    {"WideDeepOnALinearRule", "deep", false, -0.01, 0.015},
    {"WideDeepOnAnInteraction", "deep", true, -0.01, 0.03},
};
class Learning : public testing::TestWithParam<LearningProblem> {};

constexpr TestBatchShape kLearningShape{256, 2, 3, 1, false, 10};

double HiddenLogit(const LearningProblem& problem, const Batch& batch, uint32_t i) {
  const auto effect = [&](uint32_t f) { return UniformFromBits(Mix64(batch.sparse[f].keys[i])); };
  const double x = batch.numeric[i * 2];
  if (problem.interaction) return 3.0 * (effect(0) > 0 ? 1 : -1) * (effect(1) > 0 ? 1 : -1) + x;
  return 2.0 * effect(0) - effect(1) + 1.5 * effect(2) + x;
}

// Returns the best possible loss of the rows, given how they are drawn.
double DrawLabels(const LearningProblem& problem, uint64_t seed, Batch* batch) {
  SeededRandom random(seed ^ 0x5eed);
  double best = 0;
  for (uint32_t i = 0; i < batch->rows; ++i) {
    const double p = Sigmoid(HiddenLogit(problem, *batch, i));
    batch->labels[i] = random.Unit() < p ? 1.0f : 0.0f;
    batch->weights[i] = 1.0f;
    best -= batch->labels[i] > 0 ? std::log(p) : std::log(1 - p);
  }
  return best;
}

TEST_P(Learning, ComesDownToTheBestPossibleLoss) {
  SetFloatMode();
  SetThreadsOfThisThread(1);
  const LearningProblem& problem = GetParam();
  ModelConfig config;
  if (std::string(problem.model) == "lr") {
    config.mutable_lr();
  } else {
    config.mutable_wide_deep()->set_embedding_dim(8);
    for (const uint32_t width : {32, 16}) config.mutable_wide_deep()->add_hidden(width);
  }
  auto network = MakeNetwork<float>(config, FeatureShapeOf(kLearningShape));
  ASSERT_TRUE(network.ok()) << network.status();
  LocalTables<float> tables(**network, 1);
  constexpr uint64_t kTraining = 600, kFresh = 40;
  double loss = 0, best = 0, rows = 0;
  for (uint64_t step = 0; step < kTraining + kFresh; ++step) {
    Batch batch = MakeTestBatch(kLearningShape, step);
    const double best_of_batch = DrawLabels(problem, step, &batch);
    tables.Open(batch);
    const LossSums sums = (*network)->ForwardBackward(batch, tables.weights(), tables.gradients());
    if (step < kTraining) {
      tables.ApplyAdam(sums.weight, 0.01);
    } else {
      loss += sums.loss;
      best += best_of_batch;
      rows += batch.rows;
    }
  }
  EXPECT_GT((loss - best) / rows, problem.lower) << loss / rows << " against " << best / rows;
  EXPECT_LT((loss - best) / rows, problem.upper) << loss / rows << " against " << best / rows;
}

INSTANTIATE_TEST_SUITE_P(Problems, Learning, testing::ValuesIn(kProblems),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace capstan
