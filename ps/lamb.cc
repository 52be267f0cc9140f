// LAMB (You et al. 2020) with a row as the layer: r is the direction of adamw.cc,
//   r = (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + wd*w; w -= lr * (|w| / |r|) * r
// Where either norm is 0 the ratio is 1: a row that starts at 0 has to leave it.
// Slots: m, one per weight, then v, one per weight.
#include <cmath>

#include <absl/container/inlined_vector.h>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

float TrustRatio(double weight_squares, double direction_squares) {
  if (weight_squares == 0 || direction_squares == 0) return 1;
  return static_cast<float>(std::sqrt(weight_squares / direction_squares));
}

class Lamb final : public AdamFamily {
 public:
  explicit Lamb(const OptimizerConfig& config) : AdamFamily(config) {}

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    const auto [b1, c1, b2, c2] = factors();
    const float s1 = scalars.first_scale, s2 = scalars.second_scale;
    const float rate = scalars.learning_rate, eps = epsilon(), decay = weight_decay();
    absl::InlinedVector<float, 256> direction(width);  // no allocation for the usual widths
    float* __restrict r = direction.data();
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      float* __restrict m = rows[i].slots(layout);
      float* __restrict v = m + width;
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) {
        m[j] = b1 * m[j] + c1 * g[j];
        v[j] = b2 * v[j] + c2 * (g[j] * g[j]);
        r[j] = m[j] * s1 / (std::sqrt(v[j] * s2) + eps) + decay * w[j];
      }
      const float step = rate * TrustRatio(SumOfSquares(w, width), SumOfSquares(r, width));
      for (uint32_t j = 0; j < width; ++j) w[j] -= step * r[j];
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeLamb(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckAdamSettings("lamb", config));
  CAPSTAN_RETURN_IF_ERROR(CheckSetting("lamb", "weight_decay", config.weight_decay(), kRateRange));
  return std::make_unique<Lamb>(config);
}

}  // namespace capstan
