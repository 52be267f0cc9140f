// Shared by the optimizers' files; others use optimizer.h.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "ps/optimizer.h"

namespace capstan {

// One row each of the table in optimizers.cc; each defined in the file of its name (nesterov: momentum.cc).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdagrad(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeFtrl(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeLamb(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeMomentum(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeNesterov(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakePartialRowwiseAdam(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeRmsprop(const OptimizerConfig& config);
absl::StatusOr<std::unique_ptr<Optimizer>> MakeRowwiseAdagrad(const OptimizerConfig& config);

// The settings that an optimizer reads are checked, as the fp32 value it will compute with. A NaN is out of
// every range.
struct SettingRange {  // least <= value < bound
  double least;
  double bound;
};
inline constexpr SettingRange kRateRange = {0, 1e30};         // learning rates, accumulators, penalties
inline constexpr SettingRange kEpsilonRange = {1e-30, 1e30};  // 0 would divide 0 by 0 where a gradient is 0
inline constexpr SettingRange kDecayRange = {0, 1};           // beta1, beta2, momentum, decay
absl::Status CheckSetting(std::string_view optimizer, std::string_view setting, double value,
                          const SettingRange& range);
struct Setting {
  std::string_view name;
  double value;
  SettingRange range;
};
absl::Status CheckSettings(std::string_view optimizer, std::initializer_list<Setting> settings);
// learning_rate, beta1, beta2 and epsilon.
absl::Status CheckAdamSettings(std::string_view optimizer, const OptimizerConfig& config);

inline StepScalars PrepareRate(float learning_rate, const UpdateContext& context) {
  StepScalars scalars;
  scalars.learning_rate = learning_rate * context.lr_factor;
  scalars.step = static_cast<uint32_t>(context.step);
  return scalars;
}

// base^exponent by squaring and not by libm, whose last bit differs between versions.
double WholePower(double base, uint64_t exponent);

// What adam.cc and those after it share: settings, and the bias corrections of a step besides the rate.
class AdamFamily : public Optimizer {
 public:
  uint32_t SlotFloats(uint32_t width) const override { return 2 * width; }
  void InitSlots(float*, uint32_t) const override {}
  StepScalars Prepare(const UpdateContext& context) const override;

 protected:
  explicit AdamFamily(const OptimizerConfig& config);
  struct Factors {
    float keep1, add1, keep2, add2;  // of the moments
  };
  Factors factors() const;
  float epsilon() const { return epsilon_; }
  float weight_decay() const { return weight_decay_; }

 private:
  const float learning_rate_;
  const double beta1_;
  const double beta2_;
  const float epsilon_;
  const float weight_decay_;
};

// The sum of squares of a row, in fp64 so that no gradient overflows it: element j goes to lane j mod 16, in order;
// then lanes l and l + 8, l + 4, l + 2, l + 1 are added. One order for every instruction set.
inline double SumOfSquares(const float* values, size_t n) {
  constexpr size_t kLanes = 16;
  double lanes[kLanes] = {};
  size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = values[j + l];
      lanes[l] += x * x;
    }
  }
  for (size_t l = 0; j + l < n; ++l) {
    const double x = values[j + l];
    lanes[l] += x * x;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

inline void CountUpdate(RowCounters* counters, const StepScalars& scalars) {
  counters->last_step = scalars.step;
  if (counters->updates != RowCounters::kMaxUpdates) ++counters->updates;
}

}  // namespace capstan
