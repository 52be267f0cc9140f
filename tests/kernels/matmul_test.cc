#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "kernels/compute_thread.h"
#include "kernels/matmul_floor.h"
#include "tests/kernels/random_floats.h"

namespace capstan {
namespace {

std::vector<double> Widened(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// The inputs of one layer and what the three products make of them, in T.
template <typename T>
struct LayerArrays {
  std::vector<T> x, w, b, dy, y, dx, dw;
};

LayerArrays<float> MakeArrays(const ProductShape& s, uint64_t seed) {
  return {RandomFloats(s.rows * s.x_stride, seed), RandomFloats(s.in * s.out, seed + 1),
          RandomFloats(s.out, seed + 2),           RandomFloats(s.rows * s.out, seed + 3),
          std::vector<float>(s.rows * s.out),      RandomFloats(s.rows * s.x_stride, seed + 4),
          RandomFloats(s.in * s.out, seed + 5)};
}
LayerArrays<double> Widened(const LayerArrays<float>& a) {
  return {Widened(a.x), Widened(a.w),  Widened(a.b), Widened(a.dy),
          Widened(a.y), Widened(a.dx), Widened(a.dw)};
}

template <typename T>
void RunLayer(MatrixProducts& products, const ProductShape& s, bool bias, bool relu, LayerArrays<T>& a) {
  products.Forward(s, a.x.data(), a.w.data(), bias ? a.b.data() : nullptr, relu, a.y.data());
  products.DataGradient(s, a.dy.data(), a.w.data(), a.dx.data());
  products.WeightGradient(s, a.x.data(), a.dy.data(), a.dw.data());
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& wanted, double terms) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), wanted[i], 3e-6 * std::sqrt(terms)) << "element " << i;
  }
}

constexpr ProductShape kProductShapes[] = {
    {1, 1, 1, 1},         {1, 5, 3, 5},        {7, 13, 8, 16},     {16, 16, 16, 16},
    {16, 33, 1, 40},      {48, 64, 1, 64},     {100, 27, 9, 31},   {256, 429, 256, 432},
    {512, 256, 128, 256}, {512, 429, 64, 432}, {31, 128, 64, 128}, {2, 3, 2, 3},
};

TEST(MatrixProducts, FloatFollowsDouble) {
  SetThreadsOfThisThread(1);
  MatrixProducts products;
  for (const ProductShape& s : kProductShapes) {
    for (const bool bias : {false, true}) {
      for (const bool relu : {false, true}) {
        if (s.rows > 100 && !(bias && relu)) continue;  // the reference is slow
        SCOPED_TRACE(testing::Message() << s.rows << " rows, " << s.in << " to " << s.out);
        LayerArrays<float> a = MakeArrays(s, s.rows);
        LayerArrays<double> reference = Widened(a);
        RunLayer(products, s, bias, relu, a);
        RunLayer(products, s, bias, relu, reference);
        ExpectNear(a.y, reference.y, static_cast<double>(s.in));
        ExpectNear(a.dx, reference.dx, static_cast<double>(s.out));
        ExpectNear(a.dw, reference.dw, static_cast<double>(s.rows));
      }
    }
  }
}

// A 2 x 3 example worked out by hand: the reference itself must be right.
TEST(MatrixProducts, DoubleIsRight) {
  MatrixProducts products;
  const ProductShape s{2, 2, 3, 2};
  LayerArrays<double> a{{1, 2, 3, 4},        {1, 0, -1, 2, 1, 0},    {0.5, 0, -10},
                        {1, 0, 2, 0, 1, 0},  std::vector<double>(6), std::vector<double>(4),
                        {100, 0, 0, 0, 0, 0}};
  RunLayer(products, s, true, true, a);
  EXPECT_EQ(a.y, (std::vector<double>{5.5, 2, 0, 11.5, 4, 0}));
  EXPECT_EQ(a.dx, (std::vector<double>{-1, 2, 0, 1}));
  EXPECT_EQ(a.dw, (std::vector<double>{101, 3, 2, 2, 4, 4}));
}

LayerArrays<float> RunTwice(const ProductShape& s) {
  SetFloatMode();
  SetThreadsOfThisThread(1);
  MatrixProducts products;
  LayerArrays<float> a = MakeArrays(s, 3);
  RunLayer(products, s, true, true, a);
  LayerArrays<float> b = MakeArrays(s, 3);
  RunLayer(products, s, true, true, b);
  EXPECT_EQ(a.y, b.y);
  EXPECT_EQ(a.dx, b.dx);
  EXPECT_EQ(a.dw, b.dw);
  return a;
}

TEST(MatrixProducts, GiveTheSameBitsAloneAndBesideOtherThreads) {
  for (const ProductShape& s :
       {ProductShape{256, 429, 64, 432}, ProductShape{100, 27, 9, 31}, ProductShape{48, 64, 1, 64}}) {
    const LayerArrays<float> alone = RunTwice(s);
    std::vector<LayerArrays<float>> results(4);
    std::vector<std::thread> threads;
    for (LayerArrays<float>& result : results) threads.emplace_back([&result, &s] { result = RunTwice(s); });
    for (std::thread& thread : threads) thread.join();
    for (const LayerArrays<float>& result : results) {
      EXPECT_EQ(result.y, alone.y);
      EXPECT_EQ(result.dx, alone.dx);
      EXPECT_EQ(result.dw, alone.dw);
    }
  }
}

TEST(MatrixProducts, OutliveMoreShapesThanTheyKeep) {
  SetThreadsOfThisThread(1);
  MatrixProducts products;
  const ProductShape first{3, 4, 5, 4};
  LayerArrays<float> before = MakeArrays(first, 1);
  RunLayer(products, first, true, true, before);
  for (size_t rows = 1; rows <= 120; ++rows) {
    const ProductShape s{rows, 4, 2, 4};
    LayerArrays<float> a = MakeArrays(s, rows);
    RunLayer(products, s, false, false, a);
  }
  LayerArrays<float> after = MakeArrays(first, 1);
  RunLayer(products, first, true, true, after);
  EXPECT_EQ(before.y, after.y);
  EXPECT_EQ(before.dw, after.dw);
}

TEST(MatmulFloor, CountsItsWork) {
  SetThreadsOfThisThread(1);
  const std::vector<size_t> widths = {20, 8, 1};
  MatmulFloor floor(widths, 16, 40, 32);
  EXPECT_EQ(floor.flop(), 2.0 * 40 * ((20 * 2 + 16) * 8 + (8 * 3) * 1));
  EXPECT_GT(floor.Run(), 0.0);
  EXPECT_LT(floor.Run(), 1.0);
}

}  // namespace
}  // namespace capstan
