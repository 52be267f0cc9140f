// Lazy Adam (Kingma, Ba 2015): only rows with a gradient change, and t is the table's step, not the row's
// count.
//   m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*g^2; w -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
// Slots: m, one per weight, then v, one per weight.
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class Adam final : public AdamFamily {
 public:
  explicit Adam(const OptimizerConfig& config) : AdamFamily(config) {}

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const auto [b1, c1, b2, c2] = factors();
    const float s1 = scalars.first_scale, s2 = scalars.second_scale;
    const float rate = scalars.learning_rate, eps = epsilon();
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict m = rows[i].slots(layout);
      float* __restrict v = m + width;
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        m[j] = b1 * m[j] + c1 * g[j];
        v[j] = b2 * v[j] + c2 * (g[j] * g[j]);
        w[j] -= rate * (m[j] * s1 / (std::sqrt(v[j] * s2) + eps));
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckAdamSettings("adam", config));
  return std::make_unique<Adam>(config);
}

}  // namespace capstan
