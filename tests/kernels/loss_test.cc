#include "kernels/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace capstan {
namespace {

constexpr double kUlp = std::numeric_limits<double>::epsilon();

TEST(Loss, ExpAndLogAreAsGoodAsTheyClaim) {
  for (int i = 0; i <= 200000; ++i) {
    const double x = -0.0035 * i;
    ASSERT_NEAR(ExpOfNegative(x), std::exp(x), 2 * kUlp * std::exp(x)) << x;
    const double u = i / 200000.0;
    ASSERT_NEAR(Log1pOfUnit(u), std::log1p(u), 4 * kUlp * std::log1p(u)) << u;
  }
  EXPECT_EQ(ExpOfNegative(0.0), 1.0);
  EXPECT_EQ(ExpOfNegative(-708.5), 0.0);
  EXPECT_GT(ExpOfNegative(-708.0), 0.0);
  EXPECT_EQ(ExpOfNegative(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_TRUE(std::isnan(ExpOfNegative(std::nan(""))));
  EXPECT_DOUBLE_EQ(Log1pOfUnit(1e-300), 1e-300);
}

struct BceCase {
  double logit;
  float label, weight;
  double loss, gradient;
};
// log1p(e^-1) = 0.3132616875182228, σ(1) = 0.7310585786300049.
constexpr BceCase kBceCases[] = {
    {0, 0, 1, 0.6931471805599453, 0.5},
    {0, 1, 1, 0.6931471805599453, -0.5},
    {1, 1, 1, 0.3132616875182228, -0.2689414213699951},
    {1, 0, 1, 1.3132616875182228, 0.7310585786300049},
    {-1, 1, 2, 2.6265233750364456, -1.4621171572600098},
    {100, 1, 1, 3.720075976020836e-44, 0},
    {100, 0, 1, 100, 1},
    {-100, 1, 1, 100, -1},
    {-1000, 0, 1, 0, 0},
    {1000, 0, 3, 3000, 3},
    {5, 1, 0, 0, 0},
};

TEST(Loss, BinaryCrossEntropyFollowsTheTable) {
  for (const BceCase& c : kBceCases) {
    double gradient = -9, loss = 10, weight = 20;
    BinaryCrossEntropy(1, &c.logit, &c.label, &c.weight, &gradient, &loss, &weight);
    EXPECT_NEAR(loss - 10, c.loss, 1e-13 * (1 + c.loss)) << c.logit << " " << c.label;
    EXPECT_NEAR(gradient, c.gradient, 1e-15 * (1 + std::fabs(c.gradient))) << c.logit << " " << c.label;
    EXPECT_EQ(weight, 20.0 + static_cast<double>(c.weight));
  }
}

TEST(Loss, FloatIsTheRoundedDouble) {
  for (int i = -300; i <= 300; ++i) {
    const float logit = static_cast<float>(i) * 0.37f, label = i % 2 == 0 ? 1.0f : 0.0f, weight = 1.25f;
    const double exact = logit;
    float g = 0;
    double h = 0, loss = 0, reference = 0, sum = 0;
    BinaryCrossEntropy(1, &logit, &label, &weight, &g, &loss, &sum);
    BinaryCrossEntropy(1, &exact, &label, &weight, &h, &reference, &sum);
    EXPECT_EQ(g, static_cast<float>(h));
    EXPECT_EQ(loss, reference);
  }
}

TEST(Loss, BadLogitsShowInTheResult) {
  const float logits[] = {std::nanf(""), 1.0f};
  const float labels[] = {0, 0}, weights[] = {1, 1};
  float gradient[2];
  double loss = 0, weight = 0;
  BinaryCrossEntropy(2, logits, labels, weights, gradient, &loss, &weight);
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(gradient[0]));
  EXPECT_NEAR(gradient[1], 0.7310586, 1e-7);
}

TEST(Loss, SigmoidIsSymmetricAndBounded) {
  EXPECT_EQ(Sigmoid(0), 0.5);
  EXPECT_EQ(Sigmoid(1000), 1.0);
  EXPECT_EQ(Sigmoid(-1000), 0.0);
  EXPECT_EQ(Sigmoid(std::numeric_limits<double>::infinity()), 1.0);
  EXPECT_EQ(Sigmoid(-std::numeric_limits<double>::infinity()), 0.0);
  for (double z = -30; z < 30; z += 0.1) EXPECT_NEAR(Sigmoid(z), 1.0 / (1.0 + std::exp(-z)), 1e-15);
}

}  // namespace
}  // namespace capstan
