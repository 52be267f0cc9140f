#include "models/wide_deep.h"

#include <fmt/format.h>
#include <glog/logging.h>

#include <algorithm>
#include <optional>

#include "kernels/aligned_buffer.h"
#include "kernels/loss.h"
#include "models/batch_view.h"
#include "models/layer.h"
#include "models/table_list.h"

namespace capstan {
namespace {

// Small enough that the first steps see a nearly linear model, large enough that the hidden layers get a
// signal.
constexpr float kEmbeddingScale = 0.05f;

struct WideDeepSizes {
  FeatureShape shape;
  size_t embedding_dim = 0;
  std::vector<size_t> hidden;  // empty: no deep part
};

// What follows the linear part: embeddings and numeric inputs side by side, then the hidden layers.
template <typename T>
struct DeepPart {
  DeepPart(const WideDeepSizes& sizes, TableList* tables) : in(sizes.shape.numeric_width) {
    if (!sizes.shape.sparse_names.empty()) {
      embedding.emplace("embedding", sizes.shape.sparse_names.size(), sizes.embedding_dim, kEmbeddingScale,
                        tables);
      in += embedding->out();
    }
    layers.emplace("deep", in, sizes.hidden, tables);
    stride = RoundUp(in, kRowGroup);
    x.Resize(kBlockRows * stride);
    dx.Resize(kBlockRows * stride);
  }
  size_t embedded() const { return embedding ? embedding->out() : 0; }

  size_t in;
  size_t stride;  // of x and dx
  std::optional<EmbeddingLayer<T>> embedding;
  std::optional<MultiLayer<T>> layers;
  AlignedBuffer<T> x, dx;
};

template <typename T>
class WideDeepNetwork final : public Network<T> {
 public:
  explicit WideDeepNetwork(const WideDeepSizes& sizes)
      : features_(sizes.shape.sparse_names.size()), numeric_width_(sizes.shape.numeric_width) {
    TableList tables;
    linear_.emplace(features_, numeric_width_, &tables);
    if (!sizes.hidden.empty()) deep_.emplace(sizes, &tables);
    tables_ = tables.Take();
    numeric_.Resize(kBlockRows * numeric_width_);
    logits_.Resize(kBlockRows);
    gradient_.Resize(kBlockRows);
  }

  const std::vector<TableSpec>& tables() const override { return tables_; }

  void CollectKeys(const Batch& batch, std::vector<std::vector<uint64_t>>* keys) const override {
    if (features_ == 0) return;
    std::vector<uint64_t>& wide = (*keys)[linear_->sparse_table()];
    const size_t before = wide.size();
    AppendKeys(batch, &wide);
    if (deep_ && deep_->embedding) {
      std::vector<uint64_t>& embedding = (*keys)[deep_->embedding->table()];
      embedding.insert(embedding.end(), wide.begin() + static_cast<ptrdiff_t>(before), wide.end());
    }
  }

  size_t KeysLike(size_t table) const override {
    const bool is_embedding = deep_ && deep_->embedding && deep_->embedding->table() == table;
    return is_embedding ? linear_->sparse_table() : table;
  }

  LossSums ForwardBackward(const Batch& batch, std::span<const Weights<T>> weights,
                           std::span<const Gradients<T>> gradients) override {
    Open(batch);
    LossSums sums;
    sums.examples = batch.rows;
    ForEachBlock(batch.rows, [&](const Block& block) {
      Forward(batch, block, weights);
      BinaryCrossEntropy(block.rows, logits_.data(), batch.labels.data() + block.first,
                         batch.weights.data() + block.first, gradient_.data(), &sums.loss, &sums.weight);
      linear_->Backward(block, view_, numeric_.data(), numeric_width_, weights, gradient_.data(), gradients);
      if (deep_) BackwardDeep(block, weights, gradients);
    });
    return sums;
  }

  void Predict(const Batch& batch, std::span<const Weights<T>> weights, std::span<float> scores) override {
    CHECK_EQ(scores.size(), batch.rows);
    Open(batch);
    ForEachBlock(batch.rows, [&](const Block& block) {
      Forward(batch, block, weights);
      for (size_t i = 0; i < block.rows; ++i) {
        scores[block.first + i] = static_cast<float>(Sigmoid(static_cast<double>(logits_.data()[i])));
      }
    });
  }

 private:
  void Open(const Batch& batch) {
    CHECK_EQ(batch.sparse.size(), features_);
    CHECK_EQ(batch.numeric_width, numeric_width_);
    CHECK_EQ(batch.numeric.size(), size_t{batch.rows} * numeric_width_);
    view_.Reset(batch);
  }

  void Forward(const Batch& batch, const Block& block, std::span<const Weights<T>> weights) {
    std::copy_n(batch.numeric.data() + block.first * numeric_width_, block.rows * numeric_width_,
                numeric_.data());
    linear_->Forward(block, view_, numeric_.data(), numeric_width_, weights, logits_.data());
    if (deep_) ForwardDeep(block, weights);
  }

  void ForwardDeep(const Block& block, std::span<const Weights<T>> weights) {
    DeepPart<T>& deep = *deep_;
    T* x = deep.x.data();
    if (deep.embedding) deep.embedding->Forward(block, view_, weights, x, deep.stride);
    for (size_t i = 0; i < block.rows; ++i) {
      std::copy_n(numeric_.data() + i * numeric_width_, numeric_width_,
                  x + i * deep.stride + deep.embedded());
    }
    std::fill(x + block.rows * deep.stride, x + block.padded_rows() * deep.stride, T(0));
    deep.layers->Forward(block, x, deep.stride, weights, logits_.data());
  }

  void BackwardDeep(const Block& block, std::span<const Weights<T>> weights,
                    std::span<const Gradients<T>> gradients) {
    DeepPart<T>& deep = *deep_;
    deep.layers->Backward(block, deep.x.data(), deep.stride, gradient_.data(), weights, gradients,
                          deep.dx.data(), deep.embedded());
    if (deep.embedding) {
      deep.embedding->Backward(block, view_, weights, deep.dx.data(), deep.stride, gradients);
    }
  }

  size_t features_;
  size_t numeric_width_;
  std::vector<TableSpec> tables_;
  std::optional<LinearLayer<T>> linear_;
  std::optional<DeepPart<T>> deep_;
  SparseView view_;
  AlignedBuffer<T> numeric_;   // [block rows, numeric_width], in T
  AlignedBuffer<T> logits_;    // [block rows]
  AlignedBuffer<T> gradient_;  // d loss / d logit
};

absl::Status CheckFeatures(const FeatureShape& shape) {
  if (shape.numeric_width > 0 || !shape.sparse_names.empty()) return absl::OkStatus();
  return InvalidArgument("model: the data has no feature; name at least one column in data.feature");
}

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeLogisticRegression(const ModelConfig&,
                                                                   const FeatureShape& shape) {
  CAPSTAN_RETURN_IF_ERROR(CheckFeatures(shape));
  return std::make_unique<WideDeepNetwork<T>>(WideDeepSizes{shape, 0, {}});
}

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeWideDeep(const ModelConfig& config,
                                                         const FeatureShape& shape) {
  constexpr uint32_t kMaxDim = 4096;
  constexpr uint32_t kMaxHidden = 65536;
  constexpr int kMaxLayers = 64;
  CAPSTAN_RETURN_IF_ERROR(CheckFeatures(shape));
  const WideDeep& wide_deep = config.wide_deep();
  if (wide_deep.embedding_dim() < 1 || wide_deep.embedding_dim() > kMaxDim) {
    return InvalidArgument(
        fmt::format("model.wide_deep.embedding_dim is {}, want 1 to {}; 16 suits most tables",
                    wide_deep.embedding_dim(), kMaxDim));
  }
  if (wide_deep.hidden_size() > kMaxLayers) {
    return InvalidArgument(fmt::format("model.wide_deep.hidden names {} layers, want at most {}",
                                       wide_deep.hidden_size(), kMaxLayers));
  }
  WideDeepSizes sizes{shape, wide_deep.embedding_dim(), {256, 128, 64}};
  if (wide_deep.hidden_size() > 0) sizes.hidden.clear();
  for (const uint32_t width : wide_deep.hidden()) {
    if (width < 1 || width > kMaxHidden) {
      return InvalidArgument(
          fmt::format("model.wide_deep.hidden has a layer of {}, want 1 to {}", width, kMaxHidden));
    }
    sizes.hidden.push_back(width);
  }
  return std::make_unique<WideDeepNetwork<T>>(sizes);
}

template absl::StatusOr<std::unique_ptr<Network<float>>> MakeLogisticRegression(const ModelConfig&,
                                                                                const FeatureShape&);
template absl::StatusOr<std::unique_ptr<Network<double>>> MakeLogisticRegression(const ModelConfig&,
                                                                                 const FeatureShape&);
template absl::StatusOr<std::unique_ptr<Network<float>>> MakeWideDeep(const ModelConfig&,
                                                                      const FeatureShape&);
template absl::StatusOr<std::unique_ptr<Network<double>>> MakeWideDeep(const ModelConfig&,
                                                                       const FeatureShape&);

}  // namespace capstan
