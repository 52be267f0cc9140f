#include "models/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "kernels/compute_thread.h"
#include "models/batch_view.h"
#include "models/network.h"
#include "models/step_benchmark.h"
#include "proto/control.pb.h"
#include "tests/models/local_tables.h"
#include "tests/models/test_batch.h"

namespace capstan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig LrConfig() {
  ModelConfig config;
  config.mutable_lr();
  return config;
}
ModelConfig WideDeepConfig(uint32_t dim, const std::vector<uint32_t>& hidden) {
  ModelConfig config;
  config.mutable_wide_deep()->set_embedding_dim(dim);
  for (const uint32_t h : hidden) config.mutable_wide_deep()->add_hidden(h);
  return config;
}
ModelConfig CensusConfig() {
  ModelConfig config;
  config.mutable_census();
  return config;
}

template <typename T>
std::unique_ptr<Network<T>> MakeTestNetwork(const ModelConfig& config, const TestBatchShape& shape) {
  auto network = MakeNetwork<T>(config, FeatureShapeOf(shape));
  EXPECT_TRUE(network.ok()) << network.status();
  return std::move(*network);
}

// Name, kind, rows' width, elements, scale > 0: one line per table.
std::vector<std::string> TableLines(const ModelConfig& config, const FeatureShape& shape) {
  auto model = MakeModel(config, shape);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<std::string> lines;
  for (const TableSpec& t : (*model)->tables()) {
    EXPECT_EQ(t.id(), lines.size());
    EXPECT_EQ(t.init() == TableSpec::UNIFORM, t.scale() > 0);
    lines.push_back(t.name() + (t.kind() == TableSpec::SPARSE ? " sparse " : " dense ") +
                    std::to_string(t.width()) + " " + std::to_string(t.elements()) +
                    (t.scale() > 0 ? " random" : " zero"));
  }
  return lines;
}

TEST(Models, DeclareTheirTables) {
  EXPECT_THAT(TableLines(LrConfig(), {3, {"a", "b"}}),
              ElementsAre("wide sparse 1 0 zero", "numeric dense 3 3 zero", "bias dense 1 1 zero"));
  EXPECT_THAT(TableLines(LrConfig(), {0, {"libsvm"}}),
              ElementsAre("wide sparse 1 0 zero", "bias dense 1 1 zero"));
  EXPECT_THAT(TableLines(LrConfig(), {2, {}}), ElementsAre("numeric dense 2 2 zero", "bias dense 1 1 zero"));
  EXPECT_THAT(TableLines(WideDeepConfig(8, {32, 4}), {3, {"a", "b"}}),
              ElementsAre("wide sparse 1 0 zero", "numeric dense 3 3 zero", "bias dense 1 1 zero",
                          "embedding sparse 8 0 random", "deep/0/weight dense 512 608 random",
                          "deep/0/bias dense 32 32 zero", "deep/1/weight dense 128 128 random",
                          "deep/1/bias dense 4 4 zero", "deep/2/weight dense 4 4 random"));
  EXPECT_THAT(TableLines(CensusConfig(), {0, {}}), ElementsAre("census sparse 1 0 zero"));
  EXPECT_EQ(TableLines(WideDeepConfig(16, {}), {13, std::vector<std::string>(26, "c")}).size(), 11u)
      << "three hidden layers unless told otherwise";
}

struct BadConfigCase {
  const char* why;
  ModelConfig config;
  FeatureShape shape;
  const char* message;
};

TEST(Models, RefuseWhatMakesNoSense) {
  const FeatureShape some{1, {"a"}};
  const BadConfigCase cases[] = {
      {"no kind", ModelConfig(), some, "names no kind"},
      {"no feature", LrConfig(), {}, "data.feature"},
      {"no feature, deep", WideDeepConfig(4, {}), {}, "data.feature"},
      {"no width", WideDeepConfig(0, {}), some, "embedding_dim is 0"},
      {"too wide", WideDeepConfig(4097, {}), some, "embedding_dim is 4097"},
      {"empty layer", WideDeepConfig(4, {8, 0}), some, "a layer of 0"},
      {"huge layer", WideDeepConfig(4, {65537}), some, "a layer of 65537"},
      {"too many layers", WideDeepConfig(4, std::vector<uint32_t>(65, 2)), some, "65 layers"},
  };
  for (const BadConfigCase& c : cases) {
    const auto model = MakeModel(c.config, c.shape);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(c.message)) << c.why;
  }
}

TEST(Models, CollectKeysInRecordFeaturePositionOrder) {
  Batch batch;
  batch.rows = 2;
  batch.sparse = {{{0, 2, 3}, {1, 2, 3}, {}}, {{0, 0, 2}, {11, 12}, {}}};
  const auto model = MakeModel(WideDeepConfig(4, {4}), {0, {"a", "b"}});
  ASSERT_TRUE(model.ok());
  std::vector<std::vector<uint64_t>> keys((*model)->tables().size());
  (*model)->CollectKeys(batch, &keys);
  (*model)->CollectKeys(batch, &keys);
  const std::vector<uint64_t> twice = {1, 2, 3, 11, 12, 1, 2, 3, 11, 12};
  for (size_t t = 0; t < keys.size(); ++t) {
    const bool sparse = (*model)->tables()[t].kind() == TableSpec::SPARSE;
    EXPECT_EQ(keys[t], sparse ? twice : std::vector<uint64_t>()) << t;
    EXPECT_EQ(keys[(*model)->KeysLike(t)], keys[t]) << t;
  }
}

const TestBatchShape kShapes[] = {
    {1, 3, 4, 1, false, 9},       {15, 3, 4, 1, false, 9},   {16, 3, 4, 1, false, 9},
    {17, 0, 1, 9, true, 30},      {511, 2, 5, 1, false, 50}, {513, 5, 3, 2, false, 50},
    {1100, 3, 26, 1, false, 100},
};

// Relative to the largest gradient of the table.
template <typename A, typename B>
void ExpectCloseTables(const LocalTable<A>& a, const LocalTable<B>& b, double tolerance) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size()) << a.spec.name();
  double largest = 0, difference = 0;
  for (size_t j = 0; j < a.gradients.size(); ++j) {
    largest = std::max(largest, std::fabs(static_cast<double>(b.gradients[j])));
    const double d = std::fabs(static_cast<double>(a.gradients[j]) - static_cast<double>(b.gradients[j]));
    ASSERT_FALSE(std::isnan(d)) << a.spec.name();
    difference = std::max(difference, d);
  }
  EXPECT_LE(difference, tolerance * largest) << a.spec.name();
}

TEST(Models, FloatFollowsDouble) {
  SetThreadsOfThisThread(1);
  for (const ModelConfig& config : {LrConfig(), WideDeepConfig(8, {64, 32})}) {
    for (const TestBatchShape& shape : kShapes) {
      SCOPED_TRACE(std::to_string(shape.rows) + " rows");
      const Batch batch = MakeTestBatch(shape, shape.rows);
      const auto single = MakeTestNetwork<float>(config, shape);
      const auto reference = MakeTestNetwork<double>(config, shape);
      LocalTables<float> a(*single, 5);
      LocalTables<double> b(*reference, 5);
      a.Open(batch);
      b.Open(batch);
      const LossSums x = single->ForwardBackward(batch, a.weights(), a.gradients());
      const LossSums y = reference->ForwardBackward(batch, b.weights(), b.gradients());
      EXPECT_NEAR(x.loss, y.loss, 1e-5 * y.loss);
      for (size_t t = 0; t < a.size(); ++t) ExpectCloseTables(a.table(t), b.table(t), 1e-5);
      std::vector<float> p(batch.rows), q(batch.rows);
      single->Predict(batch, a.weights(), p);
      reference->Predict(batch, b.weights(), q);
      for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(p[i], q[i], 1e-5);
    }
  }
}

// With label 0 and weight 1 the gradient of a key used once is the float nearest to the predicted
// probability.
TEST(Models, PredictHasTheBitsOfTraining) {
  SetThreadsOfThisThread(1);
  for (const uint32_t rows : {1u, 7u, 16u, 300u, 1030u}) {
    const TestBatchShape shape{rows, 3, 6, 1, false, 40};
    for (const ModelConfig& config : {LrConfig(), WideDeepConfig(8, {64, 32})}) {
      Batch batch = MakeTestBatch(shape, rows);
      for (uint32_t i = 0; i < rows; ++i) batch.sparse[0].keys[i] = 1'000'000 + i;
      batch.labels.assign(rows, 0.0f);
      batch.weights.assign(rows, 1.0f);
      const auto network = MakeTestNetwork<float>(config, shape);
      LocalTables<float> tables(*network, 5);
      tables.Open(batch);
      network->ForwardBackward(batch, tables.weights(), tables.gradients());
      std::vector<float> scores(rows);
      network->Predict(batch, tables.weights(), scores);
      for (uint32_t i = 0; i < rows; ++i) {
        EXPECT_EQ(tables.table(0).gradients[tables.table(0).index[i * 6]], scores[i])
            << rows << " rows, row " << i;
      }
    }
  }
}

// All gradients and the loss of one step as bytes.
std::string StepBytes(const ModelConfig& config, const TestBatchShape& shape) {
  SetFloatMode();
  SetThreadsOfThisThread(1);
  const auto network = MakeTestNetwork<float>(config, shape);
  LocalTables<float> tables(*network, 5);
  std::string bytes;
  for (const uint64_t seed : {1, 2, 1}) {
    const Batch batch = MakeTestBatch(shape, seed);
    tables.Open(batch);
    const LossSums sums = network->ForwardBackward(batch, tables.weights(), tables.gradients());
    bytes.append(reinterpret_cast<const char*>(&sums.loss), sizeof sums.loss);
    for (size_t t = 0; t < tables.size(); ++t) {
      const std::vector<float>& g = tables.table(t).gradients;
      bytes.append(reinterpret_cast<const char*>(g.data()), g.size() * sizeof(float));
    }
  }
  return bytes;
}

TEST(Models, GiveTheSameBitsAloneAndBesideOtherThreads) {
  const TestBatchShape shape{700, 13, 26, 1, false, 300};
  const ModelConfig config = WideDeepConfig(16, {256, 128, 64});
  const std::string alone = StepBytes(config, shape);
  EXPECT_TRUE(alone == StepBytes(config, shape)) << "twice in a row";
  for (const int threads : {2, 3, 5}) {
    std::vector<std::string> results(static_cast<size_t>(threads));
    std::vector<std::thread> ranks;
    for (std::string& result : results) {
      ranks.emplace_back([&config, &shape, &result] { result = StepBytes(config, shape); });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const std::string& result : results) EXPECT_TRUE(result == alone) << threads << " threads";
  }
}

TEST(Models, GradientsOfMicroBatchesAddUp) {
  SetThreadsOfThisThread(1);
  const TestBatchShape shape{40, 3, 4, 1, false, 9};
  const auto network = MakeTestNetwork<double>(WideDeepConfig(4, {8}), shape);
  const Batch batch = MakeTestBatch(shape, 1);
  LocalTables<double> once(*network, 5), twice(*network, 5);
  once.Open(batch);
  twice.Open(batch);
  const double loss = network->ForwardBackward(batch, once.weights(), once.gradients()).loss;
  EXPECT_DOUBLE_EQ(network->ForwardBackward(batch, twice.weights(), twice.gradients()).loss, loss);
  network->ForwardBackward(batch, twice.weights(), twice.gradients());
  for (size_t t = 0; t < once.size(); ++t) {
    for (double& g : once.table(t).gradients) g *= 2.0;
    ExpectCloseTables(twice.table(t), once.table(t), 1e-12);
  }
}

TEST(Models, RowsOfWeightZeroChangeNothing) {
  SetThreadsOfThisThread(1);
  const TestBatchShape shape{20, 3, 4, 1, false, 9};
  const auto network = MakeTestNetwork<double>(WideDeepConfig(4, {8}), shape);
  Batch batch = MakeTestBatch(shape, 1);
  batch.weights.assign(batch.rows, 0.0f);
  LocalTables<double> tables(*network, 5);
  tables.Open(batch);
  const LossSums sums = network->ForwardBackward(batch, tables.weights(), tables.gradients());
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_EQ(sums.weight, 0.0);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (const double g : tables.table(t).gradients) EXPECT_EQ(g, 0.0);
  }
}

TEST(Models, TakeAnEmptyBatch) {
  const TestBatchShape shape{0, 3, 4, 1, false, 9};
  const auto network = MakeTestNetwork<float>(WideDeepConfig(4, {8}), shape);
  const Batch batch = MakeTestBatch(shape, 1);
  LocalTables<float> tables(*network, 5);
  tables.Open(batch);
  const LossSums sums = network->ForwardBackward(batch, tables.weights(), tables.gradients());
  EXPECT_EQ(sums.examples, 0u);
  EXPECT_EQ(sums.loss, 0.0);
}

// The outer interface hands everything through to the network.
TEST(Models, ModelIsItsNetwork) {
  SetThreadsOfThisThread(1);
  const TestBatchShape shape{33, 3, 4, 1, false, 9};
  const ModelConfig config = WideDeepConfig(4, {8});
  const auto network = MakeTestNetwork<float>(config, shape);
  const auto model = MakeModel(config, FeatureShapeOf(shape));
  ASSERT_TRUE(model.ok());
  const Batch batch = MakeTestBatch(shape, 4);
  LocalTables<float> tables(*network, 5);
  tables.Open(batch);
  LocalTables<float> other = tables;
  std::vector<TableWeights> weights;
  std::vector<TableGradients> gradients;
  for (size_t t = 0; t < other.size(); ++t) {
    weights.push_back({other.table(t).values.data(), other.table(t).index});
    gradients.push_back({other.table(t).gradients.data(), other.table(t).touched.data()});
  }
  const LossSums a = network->ForwardBackward(batch, tables.weights(), tables.gradients());
  const LossSums b = (*model)->ForwardBackward(batch, weights, gradients);
  EXPECT_EQ(a.loss, b.loss);
  for (size_t t = 0; t < tables.size(); ++t)
    EXPECT_EQ(tables.table(t).gradients, other.table(t).gradients) << t;
  std::vector<float> p(batch.rows), q(batch.rows);
  network->Predict(batch, tables.weights(), p);
  (*model)->Predict(batch, weights, q);
  EXPECT_EQ(p, q);
}

TEST(StepBenchmark, MeasuresAStepAndItsProducts) {
  SetThreadsOfThisThread(1);
  const FeatureShape shape{2, {"a", "b", "c"}};
  const auto times = MeasureStep(WideDeepConfig(4, {8}), shape, 40, 2);
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GT(times->floor_seconds, 0.0);
  EXPECT_GT(times->seconds, times->floor_seconds) << "a step has products and more";
  EXPECT_EQ(times->flop, 2.0 * 40 * ((14 * 2 + 12) * 8 + 8 * 3));
  EXPECT_GT(times->unique_rows, 2u * 3) << "rows of both sparse tables";
  EXPECT_LE(times->unique_rows, 2u * 40 * 3);
  EXPECT_EQ(MeasureStep(LrConfig(), shape, 40, 2).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureStep(WideDeepConfig(4, {8}), shape, 0, 2).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Census, AddsOnePerRowWhateverTheJobSays) {
  const TestBatchShape shape{5, 1, 1, 1, false, 9};
  const auto network = MakeTestNetwork<float>(CensusConfig(), shape);
  const TableSpec& spec = network->tables().front();
  EXPECT_EQ(spec.optimizer().name(), "sgd");
  EXPECT_EQ(spec.optimizer().learning_rate(), 1.0);
  EXPECT_EQ(spec.reduction(), TableSpec::SUM);
  Batch batch = MakeTestBatch(shape, 1);
  batch.row_ids = {7, 8, 7, 9, 10};  // 7 twice
  LocalTables<float> tables(*network, 5);
  tables.Open(batch);
  const LossSums sums = network->ForwardBackward(batch, tables.weights(), tables.gradients());
  EXPECT_EQ(sums.loss, 0.0);
  EXPECT_EQ(sums.examples, 5u);
  EXPECT_EQ(sums.weight, batch.WeightSum());
  EXPECT_THAT(tables.table(0).gradients, ElementsAre(-2, -1, -1, -1));
  EXPECT_THAT(tables.table(0).touched, ElementsAre(1, 1, 1, 1));
  tables.table(0).values = {3, 4, 5, 6};
  std::vector<float> scores(5);
  network->Predict(batch, tables.weights(), scores);
  EXPECT_THAT(scores, ElementsAre(3, 4, 3, 5, 6));
}

}  // namespace
}  // namespace capstan
