#include "ps/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "proto/job.pb.h"
#include "ps/optimizers.h"

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

// Weights and slots after three steps from kStart, lr 0.1, computed in fp64 by an independent reference. Its weights of
// sgd, momentum, nesterov, adagrad, rmsprop, adam and adamw agree with PyTorch 1.13; the others are the reference's alone.
struct GoldenCase {
  const char* why;
  const char* name;
  double epsilon;
  Row4 start;
  std::vector<uint64_t> steps;  // which of the three steps touch the row
  std::vector<double> weights;
  std::vector<double> slots;    // none: not looked at
};
const Row4 kZeros = {0, 0, 0, 0};
const GoldenCase kGolden[] = {
    {"sgd", "sgd", 1e-8, kStart, {1, 2, 3}, {0.09375, -0.275, 0.5125, -1.075}, {}},
    {"momentum, the rate inside v", "momentum", 1e-8, kStart, {1, 2, 3},
     {0.03075, -0.27725, 0.423625, -1.201}, {-0.02425, -0.02475, 0.022375, -0.061}},
    {"nesterov", "nesterov", 1e-8, kStart, {1, 2, 3},
     {0.008925, -0.299525, 0.4437625, -1.2559}, {-0.02425, -0.02475, 0.022375, -0.061}},
    {"adagrad", "adagrad", 1e-8, kStart, {1, 2, 3},
     {0.0586102498, -0.239442721, 0.380963591, -1.07710043}, {0.31640625, 0.3125, 1.578125, 1.3125}},
    {"rowwise_adagrad", "rowwise_adagrad", 1e-8, kStart, {1, 2, 3},
     {0.0634883274, -0.270460859, 0.489143985, -1.13634928}, {0.8798828125}},
    {"rmsprop", "rmsprop", 1e-8, kStart, {1, 2, 3},
     {-0.0823501579, -0.219486543, 0.128011718, -1.24424944}, {0.026265625, 0.0275625, 0.151890625, 0.10975}},
    {"adam", "adam", 1e-8, kStart, {1, 2, 3},
     {-0.0291981663, -0.214910264, 0.32696764, -1.16067662},
     {0.02425, 0.02475, -0.022375, 0.061, 0.000315844, 0.0003121250625, 0.00157753127, 0.001310251}},
    {"adam, eps added after the bias correction", "adam", 1e-2, kStart, {1, 2, 3},
     {-0.025756407, -0.217002651, 0.335761328, -1.15884659}, {}},
    {"adam, untouched at step 2: nothing decays, t is the table's step", "adam", 1e-8, kStart, {1, 3},
     {-0.0400047677, -0.0924780158, 0.456257343, -1.17130369}, {}},
    {"adamw, weight_decay 0.01", "adamw", 1e-8, kStart, {1, 2, 3},
     {-0.0293462577, -0.214324303, 0.325753452, -1.15745308},
     {0.02425, 0.02475, -0.022375, 0.061, 0.000315844, 0.0003121250625, 0.00157753127, 0.001310251}},
    {"partial_rowwise_adam", "partial_rowwise_adam", 1e-8, kStart, {1, 2, 3},
     {0.00269464403, -0.249616338, 0.411574593, -1.25312807}, {0.02425, 0.02475, -0.022375, 0.061, 0.000878937832}},
    {"ftrl from 0, l1 0.05, l2 0.1", "ftrl", 1e-8, kZeros, {1, 2, 3},
     {-0.0178423441, -0.00962065318, -0.00484648466, -0.035365279},
     {0.330570862, 0.200949683, 0.159832705, 0.812349487, 0.31640625, 0.3125, 1.578125, 1.3125}},
    {"ftrl, z from the initial weights", "ftrl", 1e-8, kStart, {1, 2, 3},
     {0.103846398, -0.262025816, 0.490748229, -1.03785284},
     {-1.6829846, 4.16122959, -11.1715054, 22.4224117, 0.31640625, 0.3125, 1.578125, 1.3125}},
    {"lamb, weight_decay 0.01", "lamb", 1e-8, kStart, {1, 2, 3},
     {-0.0251461698, -0.297050431, 0.36726688, -1.16005621},
     {0.02425, 0.02475, -0.022375, 0.061, 0.000315844, 0.0003121250625, 0.00157753127, 0.001310251}},
};

OptimizerConfig GoldenConfig(const std::string& name, double epsilon) {
  OptimizerConfig config = ConfigOf(name, 0.1, epsilon);
  config.set_weight_decay(0.01);
  config.set_l1(0.05);  // the rules but ftrl do not read l1 and l2
  config.set_l2(0.1);
  return config;
}

void ExpectNear(const std::vector<float>& seen, const std::vector<double>& wanted) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_NEAR(seen[i], wanted[i], 2e-6 * std::abs(wanted[i])) << "element " << i;
  }
}

TEST(Optimizers, ReachTheGoldenWeightsAndSlots) {
  std::set<std::string_view> covered;
  for (const GoldenCase& c : kGolden) {
    SCOPED_TRACE(c.why);
    covered.insert(c.name);
    const auto optimizer = MakeOptimizer(GoldenConfig(c.name, c.epsilon));
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    OneRow row(**optimizer, c.start);
    for (const uint64_t step : c.steps) row.Update(**optimizer, kGradients[step - 1], step);
    ExpectNear(row.weights(), c.weights);
    if (!c.slots.empty()) ExpectNear(row.slots(), c.slots);
    EXPECT_EQ(row.counters().last_step, 3u);
    EXPECT_EQ(row.counters().updates, c.steps.size());
  }
  for (const std::string_view name : OptimizerNames()) EXPECT_EQ(covered.count(name), 1u) << name;
}

// The same fp64 reference with a rate of 0.1, 0.05, 0.01: a plain formula would shrink the weights with the rate.
TEST(Optimizers, FtrlKeepsItsWeightsWhenTheRateChanges) {
  const auto optimizer = MakeOptimizer(GoldenConfig("ftrl", 1e-8));
  ASSERT_TRUE(optimizer.ok());
  OneRow row(**optimizer, kStart);
  const float factors[] = {1.0f, 0.5f, 0.1f};
  for (const uint64_t step : {1, 2, 3}) row.Update(**optimizer, kGradients[step - 1], step, factors[step - 1]);
  ExpectNear(row.weights(), {0.0994799136, -0.246143211, 0.472174681, -1.03914025});
  // The second gradient of step 3 is 0: that z is of step 2, and read back from w when it is needed.
  ExpectNear(row.slots(), {-15.6036845, 7.74944331, -106.630896, 223.116411, 0.31640625, 0.3125, 1.578125, 1.3125});
  const std::vector<float> before = row.weights();
  row.Update(**optimizer, kGradients[0], 4, 0.0f);
  EXPECT_EQ(row.weights(), before) << "a rate of 0 moves nothing";
}

TEST(Optimizers, FtrlMakesExactZeros) {
  OptimizerConfig config = ConfigOf("ftrl", 0.1, 1e-8);
  config.set_l1(0.6);
  const auto optimizer = MakeOptimizer(config);
  ASSERT_TRUE(optimizer.ok());
  OneRow row(**optimizer, kZeros);
  row.Update(**optimizer, kGradients[0], 1);
  EXPECT_EQ(row.weights()[0], 0.0f);
  EXPECT_LT(row.weights()[3], 0.0f);
}

TEST(Optimizers, LambLeavesZeroWeightsAndSurvivesAZeroDirection) {
  OptimizerConfig config = ConfigOf("lamb", 0.1, 1e-8);
  config.set_weight_decay(0);
  const auto optimizer = MakeOptimizer(config);
  ASSERT_TRUE(optimizer.ok());
  OneRow zero(**optimizer, kZeros);
  zero.Update(**optimizer, kGradients[0], 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(std::abs(zero.weights()[i]), 0.1f, 1e-6) << "a ratio of 1";
  OneRow still(**optimizer, kStart);
  still.Update(**optimizer, kZeros, 1);
  EXPECT_EQ(still.weights(), kStart);
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
    OptimizerConfig config = ConfigOf(std::string(name), 0.1, 1e-8);
    config.set_weight_decay(0);  // it moves weights without a gradient
    const auto optimizer = MakeOptimizer(config);
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

// These look at the row as a whole: a part of it moves otherwise.
bool IsRowwise(std::string_view name) {
  return name == "rowwise_adagrad" || name == "partial_rowwise_adam" || name == "lamb";
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
    for (const uint32_t width : {1u, 3u, 4u, 7u, 8u, 9u, 16u, 31u, 32u, 64u, 67u}) {
      SCOPED_TRACE(std::string(name) + " width " + std::to_string(width));
      // The reference: every element a row of its own, or every row in a call of its own.
      const size_t piece = IsRowwise(name) ? width : 1;
      std::vector<float> expected;
      for (size_t i = 0; i < kRows * width; i += piece) {
        OneRow row(optimizer, {start.begin() + i, start.begin() + i + piece});
        const std::vector<float> g(gradient.begin() + i, gradient.begin() + i + piece);
        for (const uint64_t step : {3, 4}) row.Update(optimizer, g, step);
        const std::vector<float> weights = row.weights();
        expected.insert(expected.end(), weights.begin(), weights.end());
      }
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

// A sum over a row has one order, whatever the vectors are: 16 lanes, then halves.
TEST(Optimizers, SquaresAreSummedInSixteenLanes) {
  SeededRandom random(5);
  for (const size_t width : {1u, 2u, 15u, 16u, 17u, 31u, 33u, 64u, 100u}) {
    std::vector<float> row(width);
    for (float& x : row) x = UniformFromBits(random.Next());
    double lanes[16] = {};
    for (size_t j = 0; j < width; ++j) {
      volatile double square = static_cast<double>(row[j]) * row[j];  // one at a time
      lanes[j % 16] += square;
    }
    for (const size_t half : {8, 4, 2, 1}) {
      for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    EXPECT_EQ(SumOfSquares(row.data(), width), lanes[0]) << width;
  }
  const std::vector<float> large(8, 3e38f);
  EXPECT_TRUE(std::isfinite(SumOfSquares(large.data(), large.size())));
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
    {"momentum", "momentum", 0, true},
    {"momentum", "momentum", 1, false},
    {"nesterov", "momentum", -0.5, false},
    {"rowwise_adagrad", "epsilon", 0, false},
    {"rowwise_adagrad", "initial_accumulator", -1, false},
    {"rmsprop", "decay", 1, false},
    {"rmsprop", "epsilon", kNan, false},
    {"adamw", "weight_decay", 0, true},
    {"adamw", "weight_decay", -0.01, false},
    {"adamw", "beta1", 1, false},
    {"partial_rowwise_adam", "beta2", 1, false},
    {"ftrl", "beta", 0, false},
    {"ftrl", "l1", -1, false},
    {"ftrl", "l2", kInfinity, false},
    {"ftrl", "initial_accumulator", -1, false},
    {"lamb", "weight_decay", kNan, false},
    {"lamb", "learning_rate", -1, false},
};

TEST(MakeOptimizer, ChecksTheSettingsItReads) {
  for (const RangeCase& c : kRanges) {
    OptimizerConfig config = ConfigOf(c.name, 0.1, 1e-8);
    const std::string setting = c.setting;
    const google::protobuf::FieldDescriptor* const field = config.GetDescriptor()->FindFieldByName(setting);
    ASSERT_NE(field, nullptr) << setting;
    config.GetReflection()->SetDouble(&config, field, c.value);
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
