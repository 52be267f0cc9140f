// FTRL-proximal per coordinate (McMahan et al. 2013, Algorithm 1), e = (beta + sqrt(n)) / lr:
//   n' = n + g^2; z' = z + g - (e' - e)*w; w' = 0 if |z'| <= l1 else (sign(z')*l1 - z') / (e' + l2)
// w is a function of z and e, so a rate that changes, an initial weight or an imported one would be thrown away by
// the next touch. Here z is therefore read back from w wherever w is not 0 (the last formula solved for z, with the
// rate of this step):
//   z = -w*(e + l2) - sign(w)*l1
// At a constant rate that is the stored z; where the rate changed, it is what adding (e' - e)*w for that would give.
// Only where w is 0 does the stored z say more.
// Slots: z, one per weight, then n, one per weight, from initial_accumulator.
#include <algorithm>
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class Ftrl final : public Optimizer {
 public:
  explicit Ftrl(const OptimizerConfig& config)
      : learning_rate_(static_cast<float>(config.learning_rate())),
        beta_(static_cast<float>(config.beta())),
        l1_(static_cast<float>(config.l1())),
        l2_(static_cast<float>(config.l2())),
        initial_accumulator_(static_cast<float>(config.initial_accumulator())) {}
  uint32_t SlotFloats(uint32_t width) const override { return 2 * width; }
  void InitSlots(float* slots, uint32_t width) const override {
    std::fill(slots + width, slots + 2 * width, initial_accumulator_);
  }
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }
  bool HasOwnPenalty() const override { return true; }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const float inverse = 1 / scalars.learning_rate, beta = beta_, l1 = l1_, l2 = l2_;
    const bool moves = inverse < 1e25f;  // at a rate of 0 the squares are added, nothing else
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict z = rows[i].slots(layout);
      float* __restrict squares = z + width;
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        const float before = (beta + std::sqrt(squares[j])) * inverse;
        squares[j] += g[j] * g[j];
        const float after = (beta + std::sqrt(squares[j])) * inverse;
        const float read_back = -w[j] * (before + l2) - std::copysign(l1, w[j]);
        const float old = w[j] != 0 ? read_back : z[j];
        const float sum = old + g[j] - (after - before) * w[j];
        const float weight = std::abs(sum) <= l1 ? 0.0f : (std::copysign(l1, sum) - sum) / (after + l2);
        // Without a gradient w' is w, up to a rounding that would only drift.
        const bool changes = moves && g[j] != 0;
        z[j] = changes ? sum : z[j];
        w[j] = changes ? weight : w[j];
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
  const float beta_;
  const float l1_;
  const float l2_;
  const float initial_accumulator_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeFtrl(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckSettings("ftrl", {{"learning_rate", config.learning_rate(), kRateRange},
                                                 {"beta", config.beta(), kEpsilonRange},
                                                 {"l1", config.l1(), kRateRange},
                                                 {"l2", config.l2(), kRateRange},
                                                 {"initial_accumulator", config.initial_accumulator(), kRateRange}}));
  return std::make_unique<Ftrl>(config);
}

}  // namespace capstan
