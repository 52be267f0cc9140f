// The three matrix products of a dense layer. Parameters are flat [in, out], row-major, as the tables store
// them.
#pragma once

#include <cstddef>
#include <memory>

namespace capstan {

// x: [rows, in], row i at x + i · x_stride.  w: [in, out].  y: [rows, out].
struct ProductShape {
  size_t rows = 0;
  size_t in = 0;
  size_t out = 0;
  size_t x_stride = 0;  // floats, ≥ in
};

// float: oneDNN, with compiled products kept per shape and scratch memory reused, so a steady loop does not
// allocate here. A layer with out = 1 is memory-bound and uses our own loops. double: plain loops, the
// reference.
//
// Not thread-safe: one instance per rank, used by one thread at a time. The bits depend on the shape, the
// pinned instruction set (cpu_isa.h) and, for WeightGradient, the thread count (compute_thread.h); on nothing
// else. All sizes must be ≥ 1; the arrays must not overlap.
class MatrixProducts {
 public:
  MatrixProducts();
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // y = x·w + b, then max(·, 0) if `relu`. b: [out], or null.
  void Forward(const ProductShape& shape, const float* x, const float* w, const float* b, bool relu,
               float* y);
  void Forward(const ProductShape& shape, const double* x, const double* w, const double* b, bool relu,
               double* y);

  // dx = dy·wᵀ. dx has x's layout; what lies between `in` and x_stride is not written.
  void DataGradient(const ProductShape& shape, const float* dy, const float* w, float* dx);
  void DataGradient(const ProductShape& shape, const double* dy, const double* w, double* dx);

  // dw += xᵀ·dy.
  void WeightGradient(const ProductShape& shape, const float* x, const float* dy, float* dw);
  void WeightGradient(const ProductShape& shape, const double* x, const double* dy, double* dw);

 private:
  class Cache;
  std::unique_ptr<Cache> cache_;
};

}  // namespace capstan
