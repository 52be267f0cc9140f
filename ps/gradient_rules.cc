#include "ps/gradient_rules.h"

#include <algorithm>
#include <cmath>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {

absl::StatusOr<GradientRules> GradientRules::Make(const OptimizerConfig& config, bool own_penalty) {
  CAPSTAN_RETURN_IF_ERROR(CheckSettings(config.name(), {{"clip_value", config.clip_value(), kRateRange},
                                                        {"clip_norm", config.clip_norm(), kRateRange},
                                                        {"l1", config.l1(), kRateRange},
                                                        {"l2", config.l2(), kRateRange}}));
  GradientRules rules;
  rules.clip_value_ = static_cast<float>(config.clip_value());
  rules.clip_norm_ = static_cast<float>(config.clip_norm());
  if (!own_penalty) {
    rules.l1_ = static_cast<float>(config.l1());
    rules.l2_ = static_cast<float>(config.l2());
  }
  return rules;
}

const float* GradientRules::Before(const RowRef* rows, const float* gradients, size_t n, uint32_t width) {
  if (clip_value_ == 0 && clip_norm_ == 0 && l2_ == 0) return gradients;
  changed_.assign(gradients, gradients + n * width);
  for (size_t i = 0; i < n; ++i) {
    float* __restrict g = changed_.data() + i * width;
    const float* __restrict w = rows[i].weights();
    if (clip_value_ > 0) {
      for (uint32_t j = 0; j < width; ++j) g[j] = std::min(std::max(g[j], -clip_value_), clip_value_);
    }
    if (clip_norm_ > 0) {
      const double norm = std::sqrt(SumOfSquares(g, width));
      if (norm > clip_norm_) {
        const float scale = static_cast<float>(clip_norm_ / norm);
        for (uint32_t j = 0; j < width; ++j) g[j] *= scale;
      }
    }
    if (l2_ > 0) {
      for (uint32_t j = 0; j < width; ++j) g[j] += l2_ * w[j];
    }
  }
  return changed_.data();
}

void GradientRules::After(const RowRef* rows, size_t n, uint32_t width, float learning_rate) const {
  if (l1_ == 0) return;
  const float threshold = learning_rate * l1_;
  for (size_t i = 0; i < n; ++i) {
    float* __restrict w = rows[i].weights();
    for (uint32_t j = 0; j < width; ++j) w[j] = std::copysign(std::max(std::abs(w[j]) - threshold, 0.0f), w[j]);
  }
}

}  // namespace capstan
