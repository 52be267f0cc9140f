// v = d*v + (1-d)*g^2; w -= lr * g / (sqrt(v) + eps)   (Tieleman, Hinton 2012; eps outside the root)
// Slots: v, one per weight.
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class Rmsprop final : public Optimizer {
 public:
  explicit Rmsprop(const OptimizerConfig& config)
      : learning_rate_(static_cast<float>(config.learning_rate())),
        decay_(config.decay()),
        epsilon_(static_cast<float>(config.epsilon())) {}
  uint32_t SlotFloats(uint32_t width) const override { return width; }
  void InitSlots(float*, uint32_t) const override {}
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const float d = static_cast<float>(decay_), c = static_cast<float>(1 - decay_);
    const float rate = scalars.learning_rate, epsilon = epsilon_;
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict v = rows[i].slots(layout);
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        v[j] = d * v[j] + c * (g[j] * g[j]);
        w[j] -= rate * g[j] / (std::sqrt(v[j]) + epsilon);
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
  const double decay_;
  const float epsilon_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeRmsprop(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckSettings("rmsprop", {{"learning_rate", config.learning_rate(), kRateRange},
                                                    {"decay", config.decay(), kDecayRange},
                                                    {"epsilon", config.epsilon(), kEpsilonRange}}));
  return std::make_unique<Rmsprop>(config);
}

}  // namespace capstan
