// m += g^2; w -= lr * g / (sqrt(m) + eps)   (Duchi, Hazan, Singer 2011; eps outside the root)
// Slots: m, one per weight, from initial_accumulator.
#include <algorithm>
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(const OptimizerConfig& config)
      : learning_rate_(static_cast<float>(config.learning_rate())),
        epsilon_(static_cast<float>(config.epsilon())),
        initial_accumulator_(static_cast<float>(config.initial_accumulator())) {}
  uint32_t SlotFloats(uint32_t width) const override { return width; }
  void InitSlots(float* slots, uint32_t width) const override {
    std::fill(slots, slots + width, initial_accumulator_);
  }
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const float rate = scalars.learning_rate;
    const float epsilon = epsilon_;
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict m = rows[i].slots(layout);
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        m[j] += g[j] * g[j];
        w[j] -= rate * g[j] / (std::sqrt(m[j]) + epsilon);
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
  const float epsilon_;
  const float initial_accumulator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdagrad(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckSetting("adagrad", "learning_rate", config.learning_rate(), kRateRange));
  CAPSTAN_RETURN_IF_ERROR(CheckSetting("adagrad", "epsilon", config.epsilon(), kEpsilonRange));
  CAPSTAN_RETURN_IF_ERROR(
      CheckSetting("adagrad", "initial_accumulator", config.initial_accumulator(), kRateRange));
  return std::make_unique<Adagrad>(config);
}

}  // namespace capstan
