// A model in one scalar type. float is what trains; double is the same code on the reference kernels, which
// the tests check against finite differences. MakeModel (model.h) wraps Network<float>.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "models/model.h"

namespace capstan {

// TableWeights and TableGradients of model.h in scalar type T; the same rules hold.
template <typename T>
struct Weights {
  const T* values = nullptr;
  std::span<const uint32_t> index;
};
template <typename T>
struct Gradients {
  T* values = nullptr;
  uint8_t* touched = nullptr;
};

// See Model for what the functions promise. Not thread-safe.
template <typename T>
class Network {
 public:
  virtual ~Network() = default;
  virtual const std::vector<TableSpec>& tables() const = 0;
  virtual void CollectKeys(const Batch& batch, std::vector<std::vector<uint64_t>>* keys) const = 0;
  virtual size_t KeysLike(size_t table) const { return table; }
  virtual LossSums ForwardBackward(const Batch& batch, std::span<const Weights<T>> weights,
                                   std::span<const Gradients<T>> gradients) = 0;
  virtual void Predict(const Batch& batch, std::span<const Weights<T>> weights, std::span<float> scores) = 0;
};

// T is float or double. Fails like MakeModel.
template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeNetwork(const ModelConfig& config, const FeatureShape& shape);

}  // namespace capstan
