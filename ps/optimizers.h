// Shared by the optimizers' files; others use optimizer.h.
#pragma once

#include <memory>
#include <string_view>

#include "ps/optimizer.h"

namespace capstan {

// One row each of the table in optimizers.cc; defined in sgd.cc, adagrad.cc, adam.cc.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdagrad(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerConfig& config);

// The settings that an optimizer reads are checked, as the fp32 value it will compute with. A NaN is out of
// every range.
struct SettingRange {  // least <= value < bound
  double least;
  double bound;
};
inline constexpr SettingRange kRateRange = {0, 1e30};         // learning rates, accumulators
inline constexpr SettingRange kEpsilonRange = {1e-30, 1e30};  // 0 would divide 0 by 0 where a gradient is 0
inline constexpr SettingRange kDecayRange = {0, 1};           // beta1, beta2
absl::Status CheckSetting(std::string_view optimizer, std::string_view setting, double value,
                          const SettingRange& range);

inline StepScalars PrepareRate(float learning_rate, const UpdateContext& context) {
  StepScalars scalars;
  scalars.learning_rate = learning_rate * context.lr_factor;
  scalars.step = static_cast<uint32_t>(context.step);
  return scalars;
}

inline void CountUpdate(RowCounters* counters, const StepScalars& scalars) {
  counters->last_step = scalars.step;
  if (counters->updates != RowCounters::kMaxUpdates) ++counters->updates;
}

}  // namespace capstan
