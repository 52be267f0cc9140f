// Small dense loops, for float and double. Every sum has one fixed order that does not depend on the
// instruction set: across columns there is none, down rows it is row order, along a row it is 16 virtual
// lanes.
#pragma once

#include <cstddef>

namespace capstan {

// Σ a[k]·b[k]: element k goes to lane k mod 16, in order; then lanes l and l+8, l+4, l+2, l+1 are added.
template <typename T>
T Dot(const T* a, const T* b, size_t n);

// sums[j] += Σ_i a[i, j], row by row. a: [rows, columns].
template <typename T>
void AddColumnSums(size_t rows, size_t columns, const T* a, T* sums);

// Backward of y = max(z, 0): dy becomes dz, which is 0 where y is not positive; then AddColumnSums of dz.
// y, dy: [rows, columns]. sums may be null.
template <typename T>
void ReluBackward(size_t rows, size_t columns, const T* y, T* dy, T* sums);

// out[j] += Σ_i scale[i]·a[i, j], row by row. Row i of a starts at a + i · stride.
template <typename T>
void AddScaledRows(size_t rows, size_t columns, const T* a, size_t stride, const T* scale, T* out);

// out[i] += Dot(a[i], w). Row i of a starts at a + i · stride.
template <typename T>
void AddRowDots(size_t rows, size_t columns, const T* a, size_t stride, const T* w, T* out);

}  // namespace capstan
