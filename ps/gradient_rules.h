// What is done to gradients and weights around an update rule, whatever the rule: clipping, L2, L1. Like the rules
// themselves it acts on the rows that a step touches, and on no other ("lazy").
//   g = clamp(g, -clip_value, clip_value); g *= min(1, clip_norm / |g|) over the row; g += l2 * w;
//   the update; w = sign(w) * max(|w| - rate * l1, 0)
// L1 is applied behind the step (FOBOS: Duchi, Singer 2009) and not as a subgradient in it: only so do weights become
// exactly 0. Its rate is the scheduled one, not what an adaptive rule makes of it.
#pragma once

#include <span>
#include <vector>

#include "common/status.h"
#include "ps/optimizer.h"

namespace capstan {

class OptimizerConfig;

class GradientRules {
 public:
  GradientRules() = default;  // nothing
  // own_penalty: the update rule has l1 and l2 in its formula.
  static absl::StatusOr<GradientRules> Make(const OptimizerConfig& config, bool own_penalty);

  bool idle() const { return clip_value_ == 0 && clip_norm_ == 0 && l1_ == 0 && l2_ == 0; }
  // The gradients [n, width] of the rows, as the update shall see them; valid until the next call.
  const float* Before(const RowRef* rows, const float* gradients, size_t n, uint32_t width);
  void After(const RowRef* rows, size_t n, uint32_t width, float learning_rate) const;

 private:
  float clip_value_ = 0;
  float clip_norm_ = 0;
  float l1_ = 0;
  float l2_ = 0;
  std::vector<float> changed_;
};

}  // namespace capstan
