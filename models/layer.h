// The layers that models are made of. A layer owns shapes and scratch, never parameters: those come with each
// call as the tables hold them, and gradients are added to arrays of the same shape. T is float or double.
// Not thread-safe. Every layer has a finite-difference check in tests/models/.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/aligned_buffer.h"
#include "kernels/matmul.h"
#include "models/batch_view.h"
#include "models/network.h"

namespace capstan {

class TableList;

enum class Activation { kNone, kRelu };

// y = act(x·w + b). Parameters: weight [in, out] row-major, bias [out] unless without.
template <typename T>
class DenseLayer {
 public:
  // Adds the tables "<name>/weight" (uniform in ±√(6/(in+out)), Glorot and Bengio 2010) and "<name>/bias"
  // (zero).
  DenseLayer(const std::string& name, size_t in, size_t out, bool bias, Activation activation,
             TableList* tables);

  size_t in() const { return in_; }
  size_t out() const { return out_; }

  // x: [rows, in], row i at x + i · x_stride. y: [rows, out].
  void Forward(MatrixProducts& products, size_t rows, const T* x, size_t x_stride,
               std::span<const Weights<T>> weights, T* y) const;

  // dy: the gradient of the loss by y; overwritten with that by x·w + b. Adds to the parameters' gradients
  // and writes the first dx_columns columns of dx (layout of x); 0 columns: dx may be null.
  void Backward(MatrixProducts& products, size_t rows, const T* x, size_t x_stride, const T* y, T* dy,
                std::span<const Weights<T>> weights, std::span<const Gradients<T>> gradients, T* dx,
                size_t dx_columns) const;

 private:
  size_t in_;
  size_t out_;
  bool has_bias_;
  Activation activation_;
  size_t weight_ = 0;  // table ids
  size_t bias_ = 0;
};

// Dense layers one after another, ReLU between them, the last one linear with one output and no bias (the
// wide part has it).
template <typename T>
class MultiLayer {
 public:
  // Tables "<name>/0/weight", "<name>/0/bias", "<name>/1/weight", …
  MultiLayer(const std::string& name, size_t in, const std::vector<size_t>& hidden, TableList* tables);

  // x: [block.padded_rows, in], row i at x + i · x_stride. Adds one output per row of the block to `out`.
  void Forward(const Block& block, const T* x, size_t x_stride, std::span<const Weights<T>> weights, T* out);

  // After Forward of the same block. dout: [block.rows]. Writes the first dx_columns columns of dx (layout of
  // x).
  void Backward(const Block& block, const T* x, size_t x_stride, const T* dout,
                std::span<const Weights<T>> weights, std::span<const Gradients<T>> gradients, T* dx,
                size_t dx_columns);

 private:
  MatrixProducts products_;
  std::vector<DenseLayer<T>> layers_;
  std::vector<AlignedBuffer<T>> outputs_;    // per layer: [kBlockRows, out]
  std::vector<AlignedBuffer<T>> gradients_;  // the same, for dy
};

// One vector per feature: the sum of value · row over the feature's keys, zero if it has none.
template <typename T>
class EmbeddingLayer {
 public:
  // Adds a sparse table, rows uniform in ±scale. All features share it: their keys differ by their salts.
  EmbeddingLayer(const std::string& table, size_t features, size_t width, float scale, TableList* tables);

  size_t out() const { return features_ * width_; }
  size_t table() const { return table_; }

  // Row i of the block: [features · width] at out + i · stride.
  void Forward(const Block& block, const SparseView& view, std::span<const Weights<T>> weights, T* out,
               size_t stride) const;
  void Backward(const Block& block, const SparseView& view, std::span<const Weights<T>> weights,
                const T* dout, size_t stride, std::span<const Gradients<T>> gradients) const;

 private:
  size_t features_;
  size_t width_;
  size_t table_;
};

// The linear part: bias + Σ weight · numeric input + Σ value · weight of each key. Also called the wide part.
template <typename T>
class LinearLayer {
 public:
  // Tables: "wide" (sparse, width 1) if there are features, "numeric" if there are numeric inputs, "bias".
  // All zero.
  LinearLayer(size_t features, size_t numeric_width, TableList* tables);

  bool has_sparse() const { return has_sparse_; }
  size_t sparse_table() const { return sparse_; }

  // out[i], i < block.rows, is written. numeric: row i at numeric + i · stride.
  void Forward(const Block& block, const SparseView& view, const T* numeric, size_t stride,
               std::span<const Weights<T>> weights, T* out) const;
  void Backward(const Block& block, const SparseView& view, const T* numeric, size_t stride,
                std::span<const Weights<T>> weights, const T* dout,
                std::span<const Gradients<T>> gradients) const;

 private:
  bool has_sparse_;
  size_t numeric_width_;
  size_t sparse_ = 0;  // table ids
  size_t numeric_ = 0;
  size_t bias_ = 0;
};

}  // namespace capstan
