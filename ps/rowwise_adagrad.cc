// m += mean(g^2) over the row; w -= lr * g / (sqrt(m) + eps)   (Duchi, Hazan, Singer 2011, with one accumulator a row
// as in Mudigere et al. 2022; eps outside the root)
// Slots: m, one per row, from initial_accumulator.
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class RowwiseAdagrad final : public Optimizer {
 public:
  explicit RowwiseAdagrad(const OptimizerConfig& config)
      : learning_rate_(static_cast<float>(config.learning_rate())),
        epsilon_(static_cast<float>(config.epsilon())),
        initial_accumulator_(static_cast<float>(config.initial_accumulator())) {}
  uint32_t SlotFloats(uint32_t) const override { return 1; }
  void InitSlots(float* slots, uint32_t) const override { *slots = initial_accumulator_; }
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* const m = rows[i].slots(layout);
      const float* __restrict g = gradients + i * width;
      *m += static_cast<float>(SumOfSquares(g, width) / width);
      const float rate = scalars.learning_rate, root = std::sqrt(*m) + epsilon_;
      for (uint32_t j = 0; j < width; ++j) w[j] -= rate * g[j] / root;
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
  const float epsilon_;
  const float initial_accumulator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeRowwiseAdagrad(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(
      CheckSettings("rowwise_adagrad", {{"learning_rate", config.learning_rate(), kRateRange},
                                        {"epsilon", config.epsilon(), kEpsilonRange},
                                        {"initial_accumulator", config.initial_accumulator(), kRateRange}}));
  return std::make_unique<RowwiseAdagrad>(config);
}

}  // namespace capstan
