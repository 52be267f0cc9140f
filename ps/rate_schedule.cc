#include "ps/rate_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

constexpr uint64_t kMostSteps = uint64_t{1} << 48;  // exact in fp64, with room
constexpr double kMostPower = 16;

// The Taylor series, for |x| <= pi / 4, where ten terms are more than fp64 can hold.
double SeriesFrom(double first, double square, int divisor) {
  double term = first, sum = first;
  for (int i = 0; i < 10; ++i, divisor += 2) {
    term *= -square / (divisor * (divisor + 1.0));
    sum += term;
  }
  return sum;
}

// cos(pi * x), 0 <= x <= 1.
double CosPi(double x) {
  constexpr double kPi = 3.14159265358979323846;
  if (x > 0.5) return -CosPi(1 - x);
  if (x <= 0.25) {
    const double angle = kPi * x;
    return SeriesFrom(1, angle * angle, 1);
  }
  const double angle = kPi * (0.5 - x);  // cos(a) = sin(pi / 2 - a)
  return SeriesFrom(angle, angle * angle, 2);
}

double HalfCosine(double from, double to, double x) { return to + (from - to) * (1 + CosPi(x)) / 2; }

absl::Status CheckShare(const char* setting, double value) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return InvalidArgument(fmt::format("schedule: {} is {}, want 0 <= {} <= 1", setting, value, setting));
}

absl::Status CheckBoundaries(const std::vector<uint64_t>& boundaries) {
  for (size_t i = 0; i < boundaries.size(); ++i) {
    if (boundaries[i] >= 1 && boundaries[i] <= kMostSteps && (i == 0 || boundaries[i] > boundaries[i - 1])) continue;
    return InvalidArgument(fmt::format("schedule: boundary {} is {}; they must increase, from 1", i, boundaries[i]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RateSchedule> RateSchedule::Make(const ScheduleConfig& config) {
  static constexpr std::pair<const char*, Kind> kKinds[] = {
      {"constant", Kind::kConstant},      {"linear", Kind::kLinear}, {"cosine", Kind::kCosine},
      {"polynomial", Kind::kPolynomial},  {"inverse_sqrt", Kind::kInverseSqrt},
      {"step", Kind::kStep},              {"one_cycle", Kind::kOneCycle}};
  RateSchedule made;
  std::string known;
  bool found = false;
  for (const auto& [name, kind] : kKinds) {
    known.append(known.empty() ? "" : ", ").append(name);
    if (config.kind() != name) continue;
    made.kind_ = kind;
    found = true;
  }
  if (!found) return InvalidArgument(fmt::format("unknown schedule '{}'; known: {}", config.kind(), known));
  CAPSTAN_RETURN_IF_ERROR(CheckShare("warmup_start", config.warmup_start()));
  CAPSTAN_RETURN_IF_ERROR(CheckShare("end_factor", config.end_factor()));
  CAPSTAN_RETURN_IF_ERROR(CheckShare("step_factor", config.step_factor()));
  CAPSTAN_RETURN_IF_ERROR(CheckShare("start_factor", config.start_factor()));
  CAPSTAN_RETURN_IF_ERROR(CheckShare("peak_at", config.peak_at()));
  const double halves = 2 * config.power();
  if (!(config.power() >= 0.5 && config.power() <= kMostPower) || halves != std::floor(halves)) {
    return InvalidArgument(
        fmt::format("schedule: power is {}, want a multiple of 0.5 from 0.5 to {}", config.power(), kMostPower));
  }
  made.boundaries_.assign(config.boundary().begin(), config.boundary().end());
  CAPSTAN_RETURN_IF_ERROR(CheckBoundaries(made.boundaries_));
  made.warmup_steps_ = config.warmup_steps();
  made.steps_ = config.steps();
  if (made.kind_ == Kind::kInverseSqrt && made.steps_ == 0) made.steps_ = made.warmup_steps_;
  const bool needs_steps =
      made.kind_ != Kind::kConstant && (made.kind_ != Kind::kStep || made.boundaries_.empty());
  if (made.steps_ > kMostSteps || made.warmup_steps_ > kMostSteps || (needs_steps && made.steps_ == 0)) {
    return InvalidArgument(fmt::format("schedule: {} needs steps (after the warm-up) from 1 to {}, here {} after {}",
                                       config.kind(), kMostSteps, made.steps_, made.warmup_steps_));
  }
  made.warmup_start_ = config.warmup_start();
  made.end_factor_ = config.end_factor();
  made.half_powers_ = static_cast<uint32_t>(halves);
  made.restart_growth_ = config.restart_growth();
  made.step_factor_ = config.step_factor();
  made.start_factor_ = config.start_factor();
  made.peak_at_ = config.peak_at();
  return made;
}

float RateSchedule::Factor(uint64_t step) const {
  const uint64_t t = std::max<uint64_t>(step, 1);
  const uint64_t begin = std::max<uint64_t>(warmup_steps_, 1);
  double factor = Base(t > begin ? t - begin : 0);
  if (t < warmup_steps_) {
    factor *= warmup_start_ + (1 - warmup_start_) * (static_cast<double>(t) / static_cast<double>(warmup_steps_));
  }
  return static_cast<float>(factor);
}

double RateSchedule::Base(uint64_t place) const {
  const double x = steps_ == 0 ? 0 : static_cast<double>(std::min(place, steps_)) / static_cast<double>(steps_);
  switch (kind_) {
    case Kind::kConstant:
      return 1;
    case Kind::kLinear:
      return 1 + (end_factor_ - 1) * x;
    case Kind::kCosine:
      return HalfCosine(1, end_factor_, CyclePlace(place));
    case Kind::kPolynomial: {
      const double whole = WholePower(1 - x, half_powers_ / 2);
      return end_factor_ + (1 - end_factor_) * (half_powers_ % 2 == 0 ? whole : whole * std::sqrt(1 - x));
    }
    case Kind::kInverseSqrt:
      return 1 / std::sqrt(1 + static_cast<double>(place) / static_cast<double>(steps_));
    case Kind::kStep: {
      if (boundaries_.empty()) return WholePower(step_factor_, place / steps_);
      const auto passed = std::upper_bound(boundaries_.begin(), boundaries_.end(), place) - boundaries_.begin();
      return WholePower(step_factor_, static_cast<uint64_t>(passed));
    }
    case Kind::kOneCycle:
      return OneCycle(x);
  }
  return 1;
}

double RateSchedule::CyclePlace(uint64_t place) const {
  uint64_t length = steps_;
  if (restart_growth_ == 1) place %= length;
  while (restart_growth_ > 1 && place >= length) {
    place -= length;
    length = length > UINT64_MAX / restart_growth_ ? UINT64_MAX : length * restart_growth_;
  }
  return static_cast<double>(std::min(place, length)) / static_cast<double>(length);
}

double RateSchedule::OneCycle(double x) const {
  if (x < peak_at_) return HalfCosine(start_factor_, 1, x / peak_at_);
  return peak_at_ >= 1 ? 1 : HalfCosine(1, end_factor_, (x - peak_at_) / (1 - peak_at_));
}

}  // namespace capstan
