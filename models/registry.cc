// All models there are. A new one is a file, a row here, a CMake line and a row in tests/models/.
#include <glog/logging.h>

#include "models/census.h"
#include "models/model.h"
#include "models/network.h"
#include "models/wide_deep.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

template <typename T>
struct ModelEntry {
  ModelConfig::KindCase kind;
  absl::StatusOr<std::unique_ptr<Network<T>>> (*make)(const ModelConfig&, const FeatureShape&);
};

template <typename T>
constexpr ModelEntry<T> kModels[] = {
    {ModelConfig::kLr, MakeLogisticRegression<T>},
    {ModelConfig::kWideDeep, MakeWideDeep<T>},
    {ModelConfig::kCensus, MakeCensus<T>},
};

// The one step between model.h's structs and the network's.
class NetworkModel final : public Model {
 public:
  explicit NetworkModel(std::unique_ptr<Network<float>> network) : network_(std::move(network)) {}

  const std::vector<TableSpec>& tables() const override { return network_->tables(); }
  void CollectKeys(const Batch& batch, std::vector<std::vector<uint64_t>>* keys) const override {
    CHECK_EQ(keys->size(), tables().size());
    network_->CollectKeys(batch, keys);
  }
  size_t KeysLike(size_t table) const override { return network_->KeysLike(table); }

  LossSums ForwardBackward(const Batch& batch, std::span<const TableWeights> weights,
                           std::span<TableGradients> gradients) override {
    Convert(weights);
    CHECK_EQ(gradients.size(), tables().size());
    gradients_.clear();
    for (const TableGradients& g : gradients) gradients_.push_back({g.values, g.touched});
    return network_->ForwardBackward(batch, weights_, gradients_);
  }

  void Predict(const Batch& batch, std::span<const TableWeights> weights, std::span<float> scores) override {
    Convert(weights);
    network_->Predict(batch, weights_, scores);
  }

 private:
  void Convert(std::span<const TableWeights> weights) {
    CHECK_EQ(weights.size(), tables().size());
    weights_.clear();
    for (const TableWeights& w : weights) weights_.push_back({w.values, w.index});
  }

  std::unique_ptr<Network<float>> network_;
  std::vector<Weights<float>> weights_;
  std::vector<Gradients<float>> gradients_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeNetwork(const ModelConfig& config,
                                                        const FeatureShape& shape) {
  for (const ModelEntry<T>& entry : kModels<T>) {
    if (entry.kind == config.kind_case()) return entry.make(config, shape);
  }
  return InvalidArgument("model names no kind; write one of lr {}, wide_deep {} or census {} into it");
}

template absl::StatusOr<std::unique_ptr<Network<float>>> MakeNetwork(const ModelConfig&, const FeatureShape&);
template absl::StatusOr<std::unique_ptr<Network<double>>> MakeNetwork(const ModelConfig&,
                                                                      const FeatureShape&);

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config, const FeatureShape& shape) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Network<float>> network, MakeNetwork<float>(config, shape));
  return std::make_unique<NetworkModel>(std::move(network));
}

}  // namespace capstan
