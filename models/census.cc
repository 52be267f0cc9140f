#include "models/census.h"

#include <glog/logging.h>

#include <algorithm>

#include "models/table_list.h"

namespace capstan {
namespace {

template <typename T>
class CensusNetwork final : public Network<T> {
 public:
  CensusNetwork() {
    TableList tables;
    TableSpec& counters = tables.at(tables.AddSparse("census", 1, 0.0f));
    // w −= 1 · (−1), summed and not averaged: exact in fp32 up to 2^24. Its own optimizer stays whatever the
    // job says.
    counters.set_reduction(TableSpec::SUM);
    counters.mutable_optimizer()->set_name("sgd");
    counters.mutable_optimizer()->set_learning_rate(1.0);
    tables_ = tables.Take();
  }

  const std::vector<TableSpec>& tables() const override { return tables_; }

  void CollectKeys(const Batch& batch, std::vector<std::vector<uint64_t>>* keys) const override {
    keys->front().insert(keys->front().end(), batch.row_ids.begin(), batch.row_ids.end());
  }

  // The loss is 0. The weight of a row does not matter: it is seen or it is not.
  LossSums ForwardBackward(const Batch& batch, std::span<const Weights<T>> weights,
                           std::span<const Gradients<T>> gradients) override {
    const std::span<const uint32_t> index = weights[0].index;
    CHECK_EQ(index.size(), batch.rows);
    for (const uint32_t row : index) {
      T& sum = gradients[0].values[row];
      sum = gradients[0].touched[row] != 0 ? sum - T(1) : T(-1);
      gradients[0].touched[row] = 1;
    }
    return {0.0, batch.WeightSum(), batch.rows};
  }

  void Predict(const Batch& batch, std::span<const Weights<T>> weights, std::span<float> scores) override {
    CHECK_EQ(weights[0].index.size(), batch.rows);
    std::transform(weights[0].index.begin(), weights[0].index.end(), scores.begin(),
                   [&](uint32_t row) { return static_cast<float>(weights[0].values[row]); });
  }

 private:
  std::vector<TableSpec> tables_;
};

}  // namespace

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeCensus(const ModelConfig&, const FeatureShape&) {
  return std::make_unique<CensusNetwork<T>>();
}

template absl::StatusOr<std::unique_ptr<Network<float>>> MakeCensus(const ModelConfig&, const FeatureShape&);
template absl::StatusOr<std::unique_ptr<Network<double>>> MakeCensus(const ModelConfig&, const FeatureShape&);

}  // namespace capstan
