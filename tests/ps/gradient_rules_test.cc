// Clipping and penalties, through a table.
#include "ps/gradient_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <google/protobuf/text_format.h>

#include "proto/control.pb.h"
#include "ps/table.h"

namespace capstan {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

// A row that begins at 0 (the first update sets it), after each of the gradients.
std::vector<float> After(const std::string& optimizer, const std::vector<std::vector<float>>& gradients) {
  TableSpec spec;
  spec.set_name("t");
  spec.set_width(static_cast<uint32_t>(gradients[0].size()));
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(optimizer, spec.mutable_optimizer())) << optimizer;
  const auto table = Table::Create(spec, 1);
  if (!table.ok()) {
    ADD_FAILURE() << table.status();
    return {};
  }
  const Key key = 7;
  uint64_t step = 0;
  for (const std::vector<float>& g : gradients) (*table)->Apply({&key, 1}, g.data(), {1.0f, ++step});
  std::vector<float> weights(spec.width());
  (*table)->Gather({&key, 1}, weights.data());
  return weights;
}

TEST(GradientRules, ClipElements) {
  EXPECT_THAT(After("name: 'sgd' learning_rate: 1 clip_value: 2", {{3, -5, 1, -2}}), ElementsAre(-2, 2, -1, 2));
}

TEST(GradientRules, ClipTheNormOfARow) {
  EXPECT_THAT(After("name: 'sgd' learning_rate: 1 clip_norm: 10", {{3, 4}}), ElementsAre(-3, -4)) << "5 is below";
  EXPECT_THAT(After("name: 'sgd' learning_rate: 1 clip_norm: 1", {{3, 4}}), ElementsAre(FloatEq(-0.6f), FloatEq(-0.8f)));
  const std::vector<float> huge = After("name: 'sgd' learning_rate: 1 clip_norm: 1", {{3e38f, 3e38f}});
  EXPECT_THAT(huge, testing::Each(FloatEq(-std::sqrt(0.5f)))) << "the square of the norm is no float";
}

TEST(GradientRules, ClipByValueComesBeforeTheNorm) {
  EXPECT_THAT(After("name: 'sgd' learning_rate: 1 clip_value: 3 clip_norm: 2.5", {{300, 4}}),
              ElementsAre(FloatEq(-2.5f * std::sqrt(0.5f)), FloatEq(-2.5f * std::sqrt(0.5f))));
}

TEST(GradientRules, ClippingReachesTheSlots) {
  EXPECT_EQ(After("name: 'adagrad' learning_rate: 1 clip_value: 1", {{5}, {1}}),
            After("name: 'adagrad' learning_rate: 1", {{1}, {1}}));
}

TEST(GradientRules, L2PullsTowardsZero) {
  // -4, then g = 0 + 0.5 * -4.
  EXPECT_THAT(After("name: 'sgd' learning_rate: 0.5 l2: 0.5", {{8}, {0}}), ElementsAre(-3));
  EXPECT_THAT(After("name: 'sgd' learning_rate: 0.5 l2: 0.5 clip_value: 8", {{8}, {8}}), ElementsAre(-7))
      << "the penalty is not clipped";
}

TEST(GradientRules, L1ShrinksAndStopsAtZero) {
  EXPECT_THAT(After("name: 'sgd' learning_rate: 0.5 l1: 1", {{8, -2, 1, 0}}), ElementsAre(-3.5f, 0.5f, 0, 0));
  EXPECT_THAT(After("name: 'sgd' learning_rate: 0.5 l1: 1 schedule { kind: 'step' boundary: 1 step_factor: 0 }",
                    {{8}, {8}, {8}}),
              ElementsAre(-3.5f))
      << "a rate of 0 does not shrink either";
}

TEST(GradientRules, FtrlHasPenaltiesOfItsOwn) {
  // z = 1, n = 1: w = (0.5 - 1) / ((1 + 1) / 0.5 + 1).
  EXPECT_THAT(After("name: 'ftrl' learning_rate: 0.5 l1: 0.5 l2: 1", {{1}}), ElementsAre(FloatEq(-0.1f)));
}

TEST(GradientRules, RefuseWhatIsOutOfRange) {
  for (const char* setting : {"clip_value", "clip_norm", "l1", "l2"}) {
    for (const double value : {-1.0, std::numeric_limits<double>::quiet_NaN(), 1e31}) {
      OptimizerConfig config;
      config.set_name("sgd");
      config.GetReflection()->SetDouble(&config, config.GetDescriptor()->FindFieldByName(setting), value);
      const auto rules = GradientRules::Make(config, false);
      ASSERT_FALSE(rules.ok()) << setting << " " << value;
      EXPECT_THAT(std::string(rules.status().message()), testing::HasSubstr(setting));
    }
  }
}

}  // namespace
}  // namespace capstan
