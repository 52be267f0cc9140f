// The interface at which the training loop (worker/) and the models meet: arrays in, arrays out. A model knows no
// server, no file and no flag; its parameters live in tables that somebody else stores.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace capstan {

class ModelConfig;
class TableSpec;

// The pulled part of one table. Dense: all elements, flat. Sparse: the unique rows of the step.
struct TableWeights {
  const float* values = nullptr;        // [unique rows, width], or [elements]
  std::span<const uint32_t> index;      // sparse: for each occurrence, in the order of CollectKeys, its row
};

// Sums of gradients over examples (never means), same shape as the weights. `touched[i]` false: the row has no
// contribution yet and its floats are uninitialised; the first contribution is copied, later ones are added.
struct TableGradients {
  float* values = nullptr;
  uint8_t* touched = nullptr;           // per row; dense: unused, values start at zero
};

struct LossSums {
  double loss = 0;      // weighted sum, nats
  double weight = 0;    // sum of weights
  uint64_t examples = 0;
};

// Not thread-safe; one instance per rank. Deterministic: same inputs, same bits, at the pinned instruction set
// (kernels/cpu_isa.h), if the calling thread has its float mode and thread count set (kernels/compute_thread.h).
class Model {
 public:
  virtual ~Model() = default;

  // Tables in wire-id order (ids 0, 1, …). Everything but the optimizer is filled in.
  virtual const std::vector<TableSpec>& tables() const = 0;

  // Appends, for each sparse table t, the key of every lookup of the batch in (record, feature, position) order to
  // keys[t]. keys has tables().size() entries; those of dense tables stay empty.
  virtual void CollectKeys(const Batch& batch, std::vector<std::vector<uint64_t>>* keys) const = 0;

  // The first table whose key list always equals that of `table`, or `table` itself: a caller that looks for the
  // unique keys of a step needs to do so once for all tables that answer the same.
  virtual size_t KeysLike(size_t table) const { return table; }

  // Adds the gradients of the batch (sums over examples of weight × d loss) to `gradients` and returns its loss.
  virtual LossSums ForwardBackward(const Batch& batch, std::span<const TableWeights> weights,
                                   std::span<TableGradients> gradients) = 0;

  // scores[i]: the predicted probability of row i, with the bits of the forward pass of ForwardBackward on the same
  // batch. (Another batch around the same row may give other bits.) The census scores a row by its counter.
  virtual void Predict(const Batch& batch, std::span<const TableWeights> weights, std::span<float> scores) = 0;
};

// kInvalidArgument, naming the key, if the config makes no sense with these features.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config, const FeatureShape& shape);

}  // namespace capstan
