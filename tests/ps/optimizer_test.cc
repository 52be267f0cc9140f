#include "ps/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/random.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

using Row4 = std::vector<float>;

OptimizerConfig ConfigOf(const std::string& name, double rate, double epsilon) {
  OptimizerConfig config;
  config.set_name(name);
  config.set_learning_rate(rate);
  config.set_epsilon(epsilon);
  return config;
}

// One row of any width in its own memory.
class OneRow {
 public:
  OneRow(const Optimizer& optimizer, const std::vector<float>& weights)
      : layout_{static_cast<uint32_t>(weights.size()),
                optimizer.SlotFloats(static_cast<uint32_t>(weights.size()))},
        memory_(layout_.bytes() / sizeof(uint64_t)) {
    std::memcpy(ref().weights(), weights.data(), weights.size() * sizeof(float));
    optimizer.InitSlots(ref().slots(layout_), layout_.width);
  }
  RowRef ref() { return RowRef(reinterpret_cast<std::byte*>(memory_.data())); }
  const RowLayout& layout() const { return layout_; }
  std::vector<float> weights() { return {ref().weights(), ref().weights() + layout_.width}; }
  std::vector<float> slots() { return {ref().slots(layout_), ref().slots(layout_) + layout_.slot_floats}; }
  RowCounters counters() { return *ref().counters(layout_); }
  void Update(const Optimizer& optimizer, const std::vector<float>& gradient, uint64_t step,
              float factor = 1) {
    const RowRef rows[] = {ref()};
    optimizer.Update(layout_, rows, gradient.data(), 1, optimizer.Prepare({factor, step}));
  }

 private:
  RowLayout layout_;
  std::vector<uint64_t> memory_;
};

const Row4 kStart = {0.125f, -0.25f, 0.5f, -1.0f};
const Row4 kGradients[] = {
    {0.5f, -0.25f, 0.125f, 1.0f}, {-0.25f, 0.5f, 0.75f, -0.5f}, {0.0625f, 0.0f, -1.0f, 0.25f}};

// Weights after three steps from kStart, lr 0.1, computed in fp64 by an independent reference that agrees
// with PyTorch 1.13 (the lazy row: with that reference alone).
struct GoldenCase {
  const char* why;
  const char* name;
  double epsilon;
  std::vector<uint64_t> steps;  // which of the three steps touch the row
  std::vector<double> weights;
};
const GoldenCase kGolden[] = {
    {"sgd", "sgd", 1e-8, {1, 2, 3}, {0.09375, -0.275, 0.5125, -1.075}},
    {"adagrad", "adagrad", 1e-8, {1, 2, 3}, {0.0586102498, -0.239442721, 0.380963591, -1.07710043}},
    {"adam", "adam", 1e-8, {1, 2, 3}, {-0.0291981663, -0.214910264, 0.32696764, -1.16067662}},
    {"adam, eps added after the bias correction",
     "adam",
     1e-2,
     {1, 2, 3},
     {-0.025756407, -0.217002651, 0.335761328, -1.15884659}},
    {"adam, untouched at step 2: nothing decays, t is the table's step",
     "adam",
     1e-8,
     {1, 3},
     {-0.0400047677, -0.0924780158, 0.456257343, -1.17130369}},
};

TEST(Optimizers, ReachTheGoldenWeights) {
  for (const GoldenCase& c : kGolden) {
    SCOPED_TRACE(c.why);
    const auto optimizer = MakeOptimizer(ConfigOf(c.name, 0.1, c.epsilon));
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    OneRow row(**optimizer, kStart);
    for (const uint64_t step : c.steps) row.Update(**optimizer, kGradients[step - 1], step);
    const std::vector<float> weights = row.weights();
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(weights[i], c.weights[i], 2e-6 * std::abs(c.weights[i])) << "element " << i;
    }
    EXPECT_EQ(row.counters().last_step, 3u);
    EXPECT_EQ(row.counters().updates, c.steps.size());
  }
}

TEST(Optimizers, AdagradAccumulatesSquares) {
  const auto optimizer = MakeOptimizer(ConfigOf("adagrad", 0.1, 1e-8));
  ASSERT_TRUE(optimizer.ok());
  OneRow row(**optimizer, kStart);
  for (const uint64_t step : {1, 2, 3}) row.Update(**optimizer, kGradients[step - 1], step);
  EXPECT_THAT(row.slots(), testing::ElementsAre(0.31640625f, 0.3125f, 1.578125f, 1.3125f));  // exact in fp32
}

TEST(Optimizers, AdagradStartsFromTheInitialAccumulatorAsAFloat) {
  OptimizerConfig config = ConfigOf("adagrad", 0.1, 1e-8);
  config.set_initial_accumulator(0.1);
  const auto optimizer = MakeOptimizer(config);
  ASSERT_TRUE(optimizer.ok());
  OneRow row(**optimizer, {1, 2, 3});
  EXPECT_THAT(row.slots(), testing::Each(0.1f));
}

TEST(Optimizers, TheFactorMultipliesTheLearningRate) {
  for (const std::string_view name : OptimizerNames()) {
    SCOPED_TRACE(name);
    const auto full = MakeOptimizer(ConfigOf(std::string(name), 0.5, 1e-8));
    const auto half = MakeOptimizer(ConfigOf(std::string(name), 0.25, 1e-8));
    ASSERT_TRUE(full.ok() && half.ok());
    OneRow a(**full, kStart), b(**half, kStart);
    a.Update(**full, kGradients[0], 1, 0.5f);
    b.Update(**half, kGradients[0], 1, 1.0f);
    EXPECT_EQ(a.weights(), b.weights());
    EXPECT_NE(a.weights(), kStart);
  }
}

TEST(Optimizers, StayFiniteOverManyStepsAndZeroGradients) {
  for (const std::string_view name : OptimizerNames()) {
    SCOPED_TRACE(name);
    const auto optimizer = MakeOptimizer(ConfigOf(std::string(name), 0.1, 1e-8));
    ASSERT_TRUE(optimizer.ok());
    for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, ~uint64_t{0}}) {
      OneRow row(**optimizer, kStart);
      row.Update(**optimizer, {0, 0, 0, 0}, step);
      EXPECT_EQ(row.weights(), kStart) << "step " << step;
      row.Update(**optimizer, kGradients[0], step);
      for (const float w : row.weights()) EXPECT_TRUE(std::isfinite(w)) << "step " << step;
      EXPECT_EQ(row.counters().last_step, static_cast<uint32_t>(step));
    }
  }
}

// Vector code handles some elements of a row and scalar code the rest: a row's bits must not depend on which,
// nor on how many rows a call updates.
TEST(Optimizers, BitsDoNotDependOnWidthOrBatching) {
  constexpr uint32_t kWidest = 67;
  constexpr size_t kRows = 5;
  for (const std::string_view name : OptimizerNames()) {
    const auto made = MakeOptimizer(ConfigOf(std::string(name), 0.05, 1e-8));
    ASSERT_TRUE(made.ok());
    const Optimizer& optimizer = **made;
    SeededRandom random(11);
    std::vector<float> start(kRows * kWidest), gradient(kRows * kWidest);
    for (float& x : start) x = UniformFromBits(random.Next());
    for (float& x : gradient) x = UniformFromBits(random.Next()) * 8;
    // The reference: every element a row of its own.
    std::vector<float> expected;
    for (size_t i = 0; i < start.size(); ++i) {
      OneRow row(optimizer, {start[i]});
      for (const uint64_t step : {3, 4}) row.Update(optimizer, {gradient[i]}, step);
      expected.push_back(row.weights()[0]);
    }
    for (const uint32_t width : {1u, 3u, 4u, 7u, 8u, 9u, 16u, 31u, 32u, 64u, 67u}) {
      SCOPED_TRACE(std::string(name) + " width " + std::to_string(width));
      std::vector<OneRow> rows;
      std::vector<RowRef> refs;
      for (size_t r = 0; r < kRows; ++r) {
        rows.emplace_back(optimizer,
                          std::vector<float>(start.begin() + r * width, start.begin() + (r + 1) * width));
      }
      for (OneRow& row : rows) refs.push_back(row.ref());
      for (const uint64_t step : {3, 4}) {
        optimizer.Update(rows[0].layout(), refs.data(), gradient.data(), kRows,
                         optimizer.Prepare({1.0f, step}));
      }
      for (size_t r = 0; r < kRows; ++r) {
        const std::vector<float> weights = rows[r].weights();
        EXPECT_EQ(std::memcmp(weights.data(), expected.data() + r * width, width * sizeof(float)), 0)
            << "row " << r;
        EXPECT_EQ(rows[r].counters().updates, 2u);
      }
    }
  }
}

TEST(MakeOptimizer, NamesTheKnownOnesForAnUnknownName) {
  const auto optimizer = MakeOptimizer(ConfigOf("adamm", 0.1, 1e-8));
  ASSERT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(optimizer.status().message()),
              testing::AllOf(testing::HasSubstr("'adamm'"), testing::HasSubstr("sgd, adagrad, adam")));
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct RangeCase {
  const char* name;
  const char* setting;
  double value;
  bool accepted;
};
constexpr RangeCase kRanges[] = {
    {"sgd", "learning_rate", 0, true},
    {"sgd", "learning_rate", -0.1, false},
    {"sgd", "learning_rate", kNan, false},
    {"sgd", "learning_rate", kInfinity, false},
    {"sgd", "epsilon", 0, true},  // sgd does not read it
    {"adagrad", "learning_rate", -1, false},
    {"adagrad", "epsilon", 1e-30, true},
    {"adagrad", "epsilon", 0, false},
    {"adagrad", "initial_accumulator", 0, true},
    {"adagrad", "initial_accumulator", -1e-9, false},
    {"adagrad", "initial_accumulator", kNan, false},
    {"adam", "learning_rate", kNan, false},
    {"adam", "epsilon", -1e-8, false},
    {"adam", "beta1", 0, true},
    {"adam", "beta1", 0.999, true},
    {"adam", "beta1", 1, false},
    {"adam", "beta1", -0.1, false},
    {"adam", "beta2", 0.999999, true},
    {"adam", "beta2", 0.9999999999, false},  // 1 as a float
    {"adam", "beta2", kNan, false},
};

TEST(MakeOptimizer, ChecksTheSettingsItReads) {
  for (const RangeCase& c : kRanges) {
    OptimizerConfig config = ConfigOf(c.name, 0.1, 1e-8);
    const std::string setting = c.setting;
    if (setting == "learning_rate") config.set_learning_rate(c.value);
    if (setting == "epsilon") config.set_epsilon(c.value);
    if (setting == "beta1") config.set_beta1(c.value);
    if (setting == "beta2") config.set_beta2(c.value);
    if (setting == "initial_accumulator") config.set_initial_accumulator(c.value);
    const auto optimizer = MakeOptimizer(config);
    EXPECT_EQ(optimizer.ok(), c.accepted) << c.name << " " << setting << " " << c.value;
    if (optimizer.ok()) continue;
    EXPECT_EQ(optimizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(optimizer.status().message()),
                testing::AllOf(testing::HasSubstr(c.name), testing::HasSubstr(setting)));
  }
}

TEST(Optimizers, CountUpToTheLargestCountAndLeaveTheMarksAlone) {
  for (const std::string_view name : OptimizerNames()) {
    SCOPED_TRACE(name);
    const auto optimizer = MakeOptimizer(ConfigOf(std::string(name), 0.1, 1e-8));
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    OneRow row(**optimizer, kStart);
    RowCounters* const counters = row.ref().counters(row.layout());
    counters->updates = RowCounters::kMaxUpdates - 1;
    counters->list = 2;
    counters->seen = 1;
    for (uint64_t step = 1; step <= 3; ++step) {
      row.Update(**optimizer, {1, 1, 1, 1}, step);
      EXPECT_EQ(counters->updates, RowCounters::kMaxUpdates);
      EXPECT_EQ(counters->list, 2u);
      EXPECT_EQ(counters->seen, 1u);
      EXPECT_EQ(counters->last_step, step);
    }
  }
}

}  // namespace
}  // namespace capstan
