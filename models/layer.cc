#include "models/layer.h"

#include <algorithm>
#include <cmath>

#include "kernels/vector_ops.h"
#include "models/table_list.h"

namespace capstan {

template <typename T>
DenseLayer<T>::DenseLayer(const std::string& name, size_t in, size_t out, bool bias, Activation activation,
                          TableList* tables)
    : in_(in), out_(out), has_bias_(bias), activation_(activation) {
  const float scale = std::sqrt(6.0f / static_cast<float>(in + out));
  weight_ = tables->AddDense(name + "/weight", in * out, scale);
  if (bias) bias_ = tables->AddDense(name + "/bias", out, 0.0f);
}

template <typename T>
void DenseLayer<T>::Forward(MatrixProducts& products, size_t rows, const T* x, size_t x_stride,
                            std::span<const Weights<T>> weights, T* y) const {
  products.Forward({rows, in_, out_, x_stride}, x, weights[weight_].values,
                   has_bias_ ? weights[bias_].values : nullptr, activation_ == Activation::kRelu, y);
}

template <typename T>
void DenseLayer<T>::Backward(MatrixProducts& products, size_t rows, const T* x, size_t x_stride, const T* y,
                             T* dy, std::span<const Weights<T>> weights,
                             std::span<const Gradients<T>> gradients, T* dx, size_t dx_columns) const {
  T* bias_gradient = has_bias_ ? gradients[bias_].values : nullptr;
  if (activation_ == Activation::kRelu) {
    ReluBackward(rows, out_, y, dy, bias_gradient);
  } else if (has_bias_) {
    AddColumnSums(rows, out_, dy, bias_gradient);
  }
  products.WeightGradient({rows, in_, out_, x_stride}, x, dy, gradients[weight_].values);
  // Input k owns row k of the weights, so the first columns of dx need the first rows only.
  if (dx_columns > 0)
    products.DataGradient({rows, dx_columns, out_, x_stride}, dy, weights[weight_].values, dx);
}

template <typename T>
MultiLayer<T>::MultiLayer(const std::string& name, size_t in, const std::vector<size_t>& hidden,
                          TableList* tables) {
  for (size_t l = 0; l <= hidden.size(); ++l) {
    const bool last = l == hidden.size();
    const size_t out = last ? 1 : hidden[l];
    layers_.emplace_back(name + "/" + std::to_string(l), in, out, !last,
                         last ? Activation::kNone : Activation::kRelu, tables);
    outputs_.emplace_back(kBlockRows * out);
    gradients_.emplace_back(kBlockRows * out);
    in = out;
  }
}

template <typename T>
void MultiLayer<T>::Forward(const Block& block, const T* x, size_t x_stride,
                            std::span<const Weights<T>> weights, T* out) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].Forward(products_, block.padded_rows(), x, x_stride, weights, outputs_[l].data());
    x = outputs_[l].data();
    x_stride = layers_[l].out();
  }
  for (size_t i = 0; i < block.rows; ++i) out[i] += x[i];
}

template <typename T>
void MultiLayer<T>::Backward(const Block& block, const T* x, size_t x_stride, const T* dout,
                             std::span<const Weights<T>> weights, std::span<const Gradients<T>> gradients,
                             T* dx, size_t dx_columns) {
  // Rows that only fill up the block have gradient 0 and so add nothing anywhere.
  T* last = gradients_.back().data();
  std::copy_n(dout, block.rows, last);
  std::fill(last + block.rows, last + block.padded_rows(), T(0));
  for (size_t l = layers_.size(); l-- > 0;) {
    const bool first = l == 0;
    layers_[l].Backward(products_, block.padded_rows(), first ? x : outputs_[l - 1].data(),
                        first ? x_stride : layers_[l].in(), outputs_[l].data(), gradients_[l].data(), weights,
                        gradients, first ? dx : gradients_[l - 1].data(),
                        first ? dx_columns : layers_[l].in());
  }
}

template <typename T>
EmbeddingLayer<T>::EmbeddingLayer(const std::string& table, size_t features, size_t width, float scale,
                                  TableList* tables)
    : features_(features),
      width_(width),
      table_(tables->AddSparse(table, static_cast<uint32_t>(width), scale)) {}

template <typename T>
void EmbeddingLayer<T>::Forward(const Block& block, const SparseView& view,
                                std::span<const Weights<T>> weights, T* out, size_t stride) const {
  const Weights<T>& rows = weights[table_];
  PoolRows(view.WithIndex(rows.index), block.first, block.rows, width_, rows.values, out, stride);
}

template <typename T>
void EmbeddingLayer<T>::Backward(const Block& block, const SparseView& view,
                                 std::span<const Weights<T>> weights, const T* dout, size_t stride,
                                 std::span<const Gradients<T>> gradients) const {
  const Gradients<T>& sums = gradients[table_];
  ScatterPooledRows(view.WithIndex(weights[table_].index), block.first, block.rows, width_, dout, stride,
                    sums.values, sums.touched);
}

template <typename T>
LinearLayer<T>::LinearLayer(size_t features, size_t numeric_width, TableList* tables)
    : has_sparse_(features > 0), numeric_width_(numeric_width) {
  if (has_sparse_) sparse_ = tables->AddSparse("wide", 1, 0.0f);
  if (numeric_width_ > 0) numeric_ = tables->AddDense("numeric", numeric_width_, 0.0f);
  bias_ = tables->AddDense("bias", 1, 0.0f);
}

template <typename T>
void LinearLayer<T>::Forward(const Block& block, const SparseView& view, const T* numeric, size_t stride,
                             std::span<const Weights<T>> weights, T* out) const {
  std::fill_n(out, block.rows, weights[bias_].values[0]);
  if (has_sparse_) {
    const Weights<T>& wide = weights[sparse_];
    AddScalarSums(view.WithIndex(wide.index), block.first, block.rows, wide.values, out);
  }
  if (numeric_width_ > 0)
    AddRowDots(block.rows, numeric_width_, numeric, stride, weights[numeric_].values, out);
}

template <typename T>
void LinearLayer<T>::Backward(const Block& block, const SparseView& view, const T* numeric, size_t stride,
                              std::span<const Weights<T>> weights, const T* dout,
                              std::span<const Gradients<T>> gradients) const {
  AddColumnSums(block.rows, 1, dout, gradients[bias_].values);
  if (has_sparse_) {
    const Gradients<T>& wide = gradients[sparse_];
    ScatterScalars(view.WithIndex(weights[sparse_].index), block.first, block.rows, dout, wide.values,
                   wide.touched);
  }
  if (numeric_width_ > 0) {
    AddScaledRows(block.rows, numeric_width_, numeric, stride, dout, gradients[numeric_].values);
  }
}

template class DenseLayer<float>;
template class DenseLayer<double>;
template class MultiLayer<float>;
template class MultiLayer<double>;
template class EmbeddingLayer<float>;
template class EmbeddingLayer<double>;
template class LinearLayer<float>;
template class LinearLayer<double>;

}  // namespace capstan
