#include "kernels/vector_ops.h"

#include <algorithm>

namespace capstan {
namespace {

constexpr size_t kLanes = 16;
constexpr size_t kRowsAtOnce =
    4;  // saves loads and stores of the sums; the order of additions stays row order

}  // namespace

template <typename T>
T Dot(const T* a, const T* b, size_t n) {
  T lanes[kLanes] = {};
  size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lanes[l] += a[k + l] * b[k + l];
  }
  for (size_t l = 0; k + l < n; ++l) lanes[l] += a[k + l] * b[k + l];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

template <typename T>
void AddColumnSums(size_t rows, size_t columns, const T* a, T* __restrict sums) {
  size_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
    const T* r = a + i * columns;
    for (size_t j = 0; j < columns; ++j) {
      sums[j] = (((sums[j] + r[j]) + r[columns + j]) + r[2 * columns + j]) + r[3 * columns + j];
    }
  }
  for (; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) sums[j] += a[i * columns + j];
  }
}

template <typename T>
void ReluBackward(size_t rows, size_t columns, const T* __restrict y, T* __restrict dy, T* __restrict sums) {
  // A few rows are masked, then summed while they are in the first-level cache.
  for (size_t i = 0; i < rows; i += kRowsAtOnce) {
    const size_t count = std::min(kRowsAtOnce, rows - i);
    const T* yi = y + i * columns;
    T* di = dy + i * columns;
    for (size_t j = 0; j < count * columns; ++j) di[j] = yi[j] > T(0) ? di[j] : T(0);
    if (sums != nullptr) AddColumnSums(count, columns, di, sums);
  }
}

template <typename T>
void AddScaledRows(size_t rows, size_t columns, const T* a, size_t stride, const T* scale,
                   T* __restrict out) {
  size_t i = 0;
  for (; i + kRowsAtOnce <= rows; i += kRowsAtOnce) {
    const T* r = a + i * stride;
    const T s0 = scale[i], s1 = scale[i + 1], s2 = scale[i + 2], s3 = scale[i + 3];
    for (size_t j = 0; j < columns; ++j) {
      out[j] =
          (((out[j] + s0 * r[j]) + s1 * r[stride + j]) + s2 * r[2 * stride + j]) + s3 * r[3 * stride + j];
    }
  }
  for (; i < rows; ++i) {
    for (size_t j = 0; j < columns; ++j) out[j] += scale[i] * a[i * stride + j];
  }
}

template <typename T>
void AddRowDots(size_t rows, size_t columns, const T* a, size_t stride, const T* w, T* out) {
  for (size_t i = 0; i < rows; ++i) out[i] += Dot(a + i * stride, w, columns);
}

template float Dot(const float*, const float*, size_t);
template double Dot(const double*, const double*, size_t);
template void AddColumnSums(size_t, size_t, const float*, float*);
template void AddColumnSums(size_t, size_t, const double*, double*);
template void ReluBackward(size_t, size_t, const float*, float*, float*);
template void ReluBackward(size_t, size_t, const double*, double*, double*);
template void AddScaledRows(size_t, size_t, const float*, size_t, const float*, float*);
template void AddScaledRows(size_t, size_t, const double*, size_t, const double*, double*);
template void AddRowDots(size_t, size_t, const float*, size_t, const float*, float*);
template void AddRowDots(size_t, size_t, const double*, size_t, const double*, double*);

}  // namespace capstan
