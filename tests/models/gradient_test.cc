// Every layer and every model against finite differences, in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/layer.h"
#include "models/network.h"
#include "models/table_list.h"
#include "proto/control.pb.h"
#include "tests/models/local_tables.h"
#include "tests/models/test_batch.h"

namespace capstan {
namespace {

// d f / d *x by a five-point stencil: the error is about step⁴ + 2⁻⁵³/step of the function's scale.
double FiniteDifference(double* x, double step, const std::function<double()>& f) {
  const double at = *x;
  const auto value = [&](double offset) {
    *x = at + offset * step;
    return f();
  };
  const double slope = (8.0 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12.0 * step);
  *x = at;
  return slope;
}

// `analytic` is d f / d *x. A stencil across the kink of a ReLU is wrong, so a shorter one may replace it.
void ExpectGradient(double analytic, double* x, const std::function<double()>& f, const std::string& where) {
  double error = 0, numeric = 0;
  for (const double step : {1e-4, 1e-5, 1e-6}) {
    numeric = FiniteDifference(x, step, f);
    error = std::fabs(analytic - numeric) / std::max({std::fabs(analytic), std::fabs(numeric), 1e-2});
    if (error < 1e-6) return;
  }
  ADD_FAILURE() << where << ": " << analytic << ", by finite differences " << numeric << ", error " << error;
}

std::vector<double> RandomVector(size_t n, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<double> v(n);
  for (double& x : v) x = 2.0 * random.Unit() - 1.0;
  return v;
}

double WeightedSum(const std::vector<double>& values, const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) sum += values[i] * weights[i];
  return sum;
}

// The parameters and gradients of a layer, one vector per table.
struct LayerParameters {
  explicit LayerParameters(std::vector<size_t> sizes, std::span<const uint32_t> sparse_index = {}) {
    for (size_t t = 0; t < sizes.size(); ++t) {
      values.push_back(RandomVector(sizes[t], 77 + t));
      sums.emplace_back(sizes[t], 0.0);
      touched.emplace_back(sizes[t], 0);
    }
    for (size_t t = 0; t < sizes.size(); ++t) {
      weights.push_back({values[t].data(), sparse_index});
      gradients.push_back({sums[t].data(), touched[t].data()});
    }
  }
  void ExpectGradientsOf(const std::function<double()>& f) {
    for (size_t t = 0; t < values.size(); ++t) {
      for (size_t j = 0; j < values[t].size(); ++j) {
        ExpectGradient(sums[t][j], &values[t][j], f, fmt::format("table {} element {}", t, j));
      }
    }
  }
  std::vector<std::vector<double>> values, sums;
  std::vector<std::vector<uint8_t>> touched;
  std::vector<Weights<double>> weights;
  std::vector<Gradients<double>> gradients;
};

struct DenseCase {
  const char* name;
  size_t rows, in, out;
  bool bias;
  Activation activation;
};
class DenseLayerGradient : public testing::TestWithParam<DenseCase> {};

TEST_P(DenseLayerGradient, IsThatOfTheForwardPass) {
  const DenseCase& c = GetParam();
  TableList tables;
  const DenseLayer<double> layer("d", c.in, c.out, c.bias, c.activation, &tables);
  LayerParameters parameters(c.bias ? std::vector<size_t>{c.in * c.out, c.out}
                                    : std::vector<size_t>{c.in * c.out});
  MatrixProducts products;
  const size_t stride = c.in + 3;
  std::vector<double> x = RandomVector(c.rows * stride, 1), y(c.rows * c.out), dx(c.rows * stride);
  const std::vector<double> pull = RandomVector(c.rows * c.out, 2);  // the function is Σ pull · y
  const auto f = [&] {
    layer.Forward(products, c.rows, x.data(), stride, parameters.weights, y.data());
    return WeightedSum(y, pull);
  };
  f();
  std::vector<double> dy = pull;
  layer.Backward(products, c.rows, x.data(), stride, y.data(), dy.data(), parameters.weights,
                 parameters.gradients, dx.data(), c.in);
  parameters.ExpectGradientsOf(f);
  for (size_t i = 0; i < c.rows; ++i) {
    for (size_t k = 0; k < c.in; ++k) {
      ExpectGradient(dx[i * stride + k], &x[i * stride + k], f, "input");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DenseLayerGradient,
                         testing::Values(DenseCase{"Linear", 5, 4, 3, true, Activation::kNone},
                                         DenseCase{"Relu", 7, 6, 5, true, Activation::kRelu},
                                         DenseCase{"NoBias", 6, 3, 1, false, Activation::kNone},
                                         DenseCase{"OneRow", 1, 2, 2, true, Activation::kRelu},
                                         DenseCase{"ReluNoBias", 4, 5, 2, false, Activation::kRelu}),
                         [](const auto& test) { return test.param.name; });

TEST(MultiLayerGradient, IsThatOfTheForwardPass) {
  TableList tables;
  MultiLayer<double> layers("deep", 5, {4, 3}, &tables);
  LayerParameters parameters({20, 4, 12, 3, 3});
  const Block block{0, 6};
  std::vector<double> x = RandomVector(block.padded_rows() * 5, 3), dx(x.size()), out(block.rows);
  std::fill(x.begin() + 30, x.end(), 0.0);
  const std::vector<double> pull = RandomVector(block.rows, 4);
  const auto f = [&] {
    std::fill(out.begin(), out.end(), 0.0);
    layers.Forward(block, x.data(), 5, parameters.weights, out.data());
    return WeightedSum(out, pull);
  };
  f();
  layers.Backward(block, x.data(), 5, pull.data(), parameters.weights, parameters.gradients, dx.data(), 5);
  parameters.ExpectGradientsOf(f);
  for (size_t k = 0; k < 30; ++k) ExpectGradient(dx[k], &x[k], f, "input");
}

struct SparseCase {
  const char* name;
  TestBatchShape shape;
};
const SparseCase kSparseCases[] = {
    {"OneKeyEach", {6, 2, 3, 1, false, 4}},
    {"SomeKeys", {6, 0, 3, 3, false, 4}},
    {"KeysWithValues", {6, 2, 1, 5, true, 8}},
};
class SparseLayerGradient : public testing::TestWithParam<SparseCase> {};

// An index into `vocabulary` rows, made from the keys.
std::vector<uint32_t> IndexOf(const Batch& batch, uint32_t rows) {
  std::vector<uint64_t> keys;
  AppendKeys(batch, &keys);
  std::vector<uint32_t> index;
  for (const uint64_t key : keys) index.push_back(static_cast<uint32_t>(key % rows));
  return index;
}

TEST_P(SparseLayerGradient, OfEmbeddings) {
  const Batch batch = MakeTestBatch(GetParam().shape, 5);
  const std::vector<uint32_t> index = IndexOf(batch, 5);
  constexpr size_t kWidth = 3;
  TableList tables;
  const EmbeddingLayer<double> layer("e", batch.sparse.size(), kWidth, 0.1f, &tables);
  LayerParameters parameters({5 * kWidth}, index);
  SparseView view;
  view.Reset(batch);
  const size_t stride = layer.out() + 2;
  std::vector<double> out(batch.rows * stride);
  const std::vector<double> pull = RandomVector(out.size(), 6);
  const Block block{0, batch.rows};
  const auto f = [&] {
    layer.Forward(block, view, parameters.weights, out.data(), stride);
    return WeightedSum(out, pull);
  };
  layer.Backward(block, view, parameters.weights, pull.data(), stride, parameters.gradients);
  parameters.ExpectGradientsOf(f);
}

TEST_P(SparseLayerGradient, OfTheLinearPart) {
  const TestBatchShape& shape = GetParam().shape;
  const Batch batch = MakeTestBatch(shape, 5);
  const std::vector<uint32_t> index = IndexOf(batch, 5);
  TableList tables;
  const LinearLayer<double> layer(batch.sparse.size(), shape.numeric_width, &tables);
  LayerParameters parameters(
      shape.numeric_width > 0 ? std::vector<size_t>{5, shape.numeric_width, 1} : std::vector<size_t>{5, 1},
      index);
  SparseView view;
  view.Reset(batch);
  const std::vector<double> numeric = RandomVector(size_t{batch.rows} * shape.numeric_width, 7);
  std::vector<double> out(batch.rows);
  const std::vector<double> pull = RandomVector(out.size(), 8);
  const Block block{0, batch.rows};
  const auto f = [&] {
    layer.Forward(block, view, numeric.data(), shape.numeric_width, parameters.weights, out.data());
    return WeightedSum(out, pull);
  };
  layer.Backward(block, view, numeric.data(), shape.numeric_width, parameters.weights, pull.data(),
                 parameters.gradients);
  parameters.ExpectGradientsOf(f);
}

INSTANTIATE_TEST_SUITE_P(Batches, SparseLayerGradient, testing::ValuesIn(kSparseCases),
                         [](const auto& test) { return test.param.name; });

struct ModelCase {
  const char* name;
  const char* config;
  TestBatchShape shape;
};
const ModelCase kModelCases[] = {
    {"LrOfNumbersAndCategories", "lr", {9, 3, 4, 1, false, 6}},
    {"LrOfLibsvm", "lr", {9, 0, 1, 6, true, 12}},
    {"LrOfNumbers", "lr", {9, 3, 0, 1, false, 1}},
    {"WideDeep", "deep", {9, 3, 4, 1, false, 6}},
    {"WideDeepOfLibsvm", "deep", {9, 0, 1, 6, true, 12}},
    {"WideDeepWithSeveralKeys", "deep", {9, 2, 3, 3, false, 6}},
    {"WideDeepOfNumbers", "deep", {9, 3, 0, 1, false, 1}},
    {"WideDeepOfMoreThanABlock", "deep", {kBlockRows + 5, 2, 2, 1, false, 60}},
};
class ModelGradient : public testing::TestWithParam<ModelCase> {};

ModelConfig GradientConfig(const std::string& kind) {
  ModelConfig config;
  if (kind == "lr") {
    config.mutable_lr();
  } else {
    config.mutable_wide_deep()->set_embedding_dim(3);
    config.mutable_wide_deep()->add_hidden(5);
    config.mutable_wide_deep()->add_hidden(4);
  }
  return config;
}

TEST_P(ModelGradient, IsThatOfTheLoss) {
  const ModelCase& c = GetParam();
  auto network = MakeNetwork<double>(GradientConfig(c.config), FeatureShapeOf(c.shape));
  ASSERT_TRUE(network.ok()) << network.status();
  const Batch batch = MakeTestBatch(c.shape, 11);
  LocalTables<double> tables(**network, 3);
  tables.Open(batch);
  // Tables that start at zero would hide a wrong factor.
  for (size_t t = 0; t < tables.size(); ++t) {
    const std::vector<double> noise = RandomVector(tables.table(t).values.size(), 20 + t);
    for (size_t j = 0; j < noise.size(); ++j) tables.table(t).values[j] += 0.3 * noise[j];
  }
  const LossSums sums = (*network)->ForwardBackward(batch, tables.weights(), tables.gradients());
  EXPECT_EQ(sums.examples, batch.rows);
  EXPECT_NEAR(sums.weight, batch.WeightSum(), 1e-9);

  LocalTables<double> scratch = tables;
  const auto loss = [&] {
    return (*network)->ForwardBackward(batch, tables.weights(), scratch.gradients()).loss;
  };
  size_t checked = 0;
  for (size_t t = 0; t < tables.size(); ++t) {
    LocalTable<double>& table = tables.table(t);
    for (const uint8_t touched : table.touched) EXPECT_EQ(touched, 1);
    // All of a small model; a sample of one that is slow to evaluate.
    const size_t stride = batch.rows > 100 ? 3 : 1;
    for (size_t j = 0; j < table.values.size(); j += stride, ++checked) {
      ExpectGradient(table.gradients[j], &table.values[j], loss,
                     fmt::format("{} element {}", table.spec.name(), j));
    }
  }
  EXPECT_GE(checked, tables.size());
}

INSTANTIATE_TEST_SUITE_P(Models, ModelGradient, testing::ValuesIn(kModelCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace capstan
