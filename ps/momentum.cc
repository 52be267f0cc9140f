// momentum: v = beta*v - lr*g; w += v   (Polyak 1964)
// nesterov: v = beta*v - lr*g; w += beta*v - lr*g   (Nesterov 1983, in the form of Sutskever et al. 2013 after their
//           change of variables: w is where the next gradient is taken)
// The rate is inside v: a rate that changes does not rescale what is there.
// Slots: v, one per weight.
#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

template <bool kLookAhead>
class Momentum final : public Optimizer {
 public:
  explicit Momentum(const OptimizerConfig& config)
      : learning_rate_(static_cast<float>(config.learning_rate())), momentum_(static_cast<float>(config.momentum())) {}
  uint32_t SlotFloats(uint32_t width) const override { return width; }
  void InitSlots(float*, uint32_t) const override {}
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const float rate = scalars.learning_rate, beta = momentum_;
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict v = rows[i].slots(layout);
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        const float step = rate * g[j];
        v[j] = beta * v[j] - step;
        w[j] += kLookAhead ? beta * v[j] - step : v[j];
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
  const float momentum_;
};

template <bool kLookAhead>
absl::StatusOr<std::unique_ptr<Optimizer>> MakeMomentumRule(std::string_view name, const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckSettings(name, {{"learning_rate", config.learning_rate(), kRateRange},
                                               {"momentum", config.momentum(), kDecayRange}}));
  return std::make_unique<Momentum<kLookAhead>>(config);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeMomentum(const OptimizerConfig& config) {
  return MakeMomentumRule<false>("momentum", config);
}
absl::StatusOr<std::unique_ptr<Optimizer>> MakeNesterov(const OptimizerConfig& config) {
  return MakeMomentumRule<true>("nesterov", config);
}

}  // namespace capstan
