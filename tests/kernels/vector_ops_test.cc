#include "kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/random_floats.h"

namespace capstan {
namespace {

// The order of additions that the header promises, element by element.
float DotByLanes(const std::vector<float>& a, const std::vector<float>& b) {
  volatile float lanes[16] = {};  // volatile: the compiler may not reorder or vectorise
  for (size_t k = 0; k < a.size(); ++k) lanes[k % 16] = lanes[k % 16] + a[k] * b[k];
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  }
  return lanes[0];
}

TEST(VectorOps, DotAddsInSixteenLanes) {
  for (const size_t n : {0, 1, 15, 16, 17, 31, 32, 64, 257}) {
    const std::vector<float> a = RandomFloats(n, n), b = RandomFloats(n, n + 1);
    EXPECT_EQ(Dot(a.data(), b.data(), n), DotByLanes(a, b)) << n;
  }
}

struct MatrixCase {
  size_t rows, columns;
};
constexpr MatrixCase kMatrices[] = {{1, 1}, {3, 5}, {4, 16}, {5, 17}, {64, 1}, {130, 33}, {7, 256}};

TEST(VectorOps, ColumnSumsAddInRowOrder) {
  for (const auto& [rows, columns] : kMatrices) {
    const std::vector<float> a = RandomFloats(rows * columns, 1);
    std::vector<float> sums = RandomFloats(columns, 2), wanted = sums;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) wanted[j] += a[i * columns + j];
    }
    AddColumnSums(rows, columns, a.data(), sums.data());
    EXPECT_EQ(sums, wanted) << rows << " x " << columns;
  }
}

TEST(VectorOps, ReluBackwardMasksAndSums) {
  for (const auto& [rows, columns] : kMatrices) {
    std::vector<float> y = RandomFloats(rows * columns, 3);
    y[0] = 0.0f;  // not positive: no gradient
    for (float& v : y) v = std::max(v, 0.0f);
    const std::vector<float> dy = RandomFloats(rows * columns, 4);
    std::vector<float> wanted = dy, wanted_sums(columns, 0.5f);
    for (size_t i = 0; i < rows * columns; ++i) {
      if (y[i] <= 0.0f) wanted[i] = 0.0f;
      wanted_sums[i % columns] += wanted[i];
    }
    std::vector<float> dz = dy, sums(columns, 0.5f);
    ReluBackward(rows, columns, y.data(), dz.data(), sums.data());
    EXPECT_EQ(dz, wanted);
    EXPECT_EQ(sums, wanted_sums);
    dz = dy;
    ReluBackward<float>(rows, columns, y.data(), dz.data(), nullptr);
    EXPECT_EQ(dz, wanted);
  }
}

TEST(VectorOps, ScaledRowsAddInRowOrder) {
  for (const auto& [rows, columns] : kMatrices) {
    const size_t stride = columns + 2;
    const std::vector<float> a = RandomFloats(rows * stride, 5), scale = RandomFloats(rows, 6);
    std::vector<float> out = RandomFloats(columns, 7), wanted = out;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) wanted[j] += scale[i] * a[i * stride + j];
    }
    AddScaledRows(rows, columns, a.data(), stride, scale.data(), out.data());
    EXPECT_EQ(out, wanted) << rows << " x " << columns;
  }
}

TEST(VectorOps, RowDotsAreAdded) {
  const std::vector<float> a = RandomFloats(6 * 20, 8), w = RandomFloats(18, 9);
  std::vector<float> out = RandomFloats(6, 10), wanted = out;
  for (size_t i = 0; i < 6; ++i) wanted[i] += Dot(a.data() + i * 20, w.data(), 18);
  AddRowDots(6, 18, a.data(), 20, w.data(), out.data());
  EXPECT_EQ(out, wanted);
}

}  // namespace
}  // namespace capstan
