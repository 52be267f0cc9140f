// Learning-rate schedules: a factor on the rate as a pure function of the optimizer step. Nothing is kept between
// steps, so a resume goes on where it was. Sync: all shards count the same steps. Async and ssp: the step comes with
// the push (the clock of its rank), so that every shard uses the same one.
#pragma once

#include <cstdint>
#include <vector>

#include "common/status.h"

namespace capstan {

class ScheduleConfig;

// With W warm-up steps and p = step - max(W, 1), not below 0, the factor of step 1, 2, … is warmup(step) * base(p);
//   warmup = warmup_start + (1 - warmup_start) * step / W up to step W, then 1;
//   base by kind, with N = steps, x = min(p / N, 1), E = end_factor:
//     constant      1
//     linear        1 + (E - 1) * x
//     cosine        E + (1 - E) * (1 + cos(pi * x)) / 2   (Loshchilov, Hutter 2017); with restarts x is the place in
//                   the cycle, and each cycle is restart_growth times as long as the one before
//     polynomial    E + (1 - E) * (1 - x)^power
//     inverse_sqrt  1 / sqrt(1 + p / N); N = W gives sqrt(W / step) (Vaswani et al. 2017)
//     step          step_factor^floor(p / N), or to the power of the number of boundaries <= p
//     one_cycle     by half a cosine from start_factor to 1 over peak_at * N steps, then to E (Smith 2018)
// No libm call but the square root is in it: the last bits of others differ between versions.
class RateSchedule {
 public:
  RateSchedule() = default;  // constant
  // kInvalidArgument names the setting that is unknown or out of range.
  static absl::StatusOr<RateSchedule> Make(const ScheduleConfig& config);

  // The factor of a step, 1-based; from 0 to 1. Step 0 is taken for 1.
  float Factor(uint64_t step) const;

 private:
  enum class Kind { kConstant, kLinear, kCosine, kPolynomial, kInverseSqrt, kStep, kOneCycle };
  double Base(uint64_t place) const;
  double CyclePlace(uint64_t place) const;
  double OneCycle(double x) const;

  Kind kind_ = Kind::kConstant;
  uint64_t warmup_steps_ = 0;
  double warmup_start_ = 0;
  uint64_t steps_ = 0;
  double end_factor_ = 0;
  uint32_t half_powers_ = 0;  // power, in halves
  uint32_t restart_growth_ = 0;
  double step_factor_ = 0;
  std::vector<uint64_t> boundaries_;
  double start_factor_ = 0;
  double peak_at_ = 0;
};

}  // namespace capstan
