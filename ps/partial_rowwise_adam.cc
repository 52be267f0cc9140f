// Lazy Adam (adam.cc) with one second moment a row:
//   m = b1*m + (1-b1)*g; v = b2*v + (1-b2)*mean(g^2); w -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
// (the form of FBGEMM). Slots: m, one per weight, then v, one per row.
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class PartialRowwiseAdam final : public AdamFamily {
 public:
  explicit PartialRowwiseAdam(const OptimizerConfig& config) : AdamFamily(config) {}
  uint32_t SlotFloats(uint32_t width) const override { return width + 1; }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const auto [b1, c1, b2, c2] = factors();
    const float s1 = scalars.first_scale, s2 = scalars.second_scale;
    const float rate = scalars.learning_rate, eps = epsilon();
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict m = rows[i].slots(layout);
      float* const v = m + width;
      const float* __restrict g = gradients + i * width;
      *v = b2 * *v + c2 * static_cast<float>(SumOfSquares(g, width) / width);
      const float root = std::sqrt(*v * s2) + eps;
      for (uint32_t j = 0; j < width; ++j) {
        m[j] = b1 * m[j] + c1 * g[j];
        w[j] -= rate * (m[j] * s1 / root);
      }
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakePartialRowwiseAdam(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckAdamSettings("partial_rowwise_adam", config));
  return std::make_unique<PartialRowwiseAdam>(config);
}

}  // namespace capstan
