#include "ps/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "proto/job.pb.h"

namespace capstan {
namespace {

struct OptimizerRow {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<Optimizer>> (*make)(const OptimizerConfig& config);
};
constexpr OptimizerRow kOptimizers[] = {
    {"sgd", MakeSgd},
    {"adagrad", MakeAdagrad},
    {"adam", MakeAdam},
    {"momentum", MakeMomentum},
    {"nesterov", MakeNesterov},
    {"rowwise_adagrad", MakeRowwiseAdagrad},
    {"rmsprop", MakeRmsprop},
    {"adamw", MakeAdamW},
    {"partial_rowwise_adam", MakePartialRowwiseAdam},
    {"ftrl", MakeFtrl},
    {"lamb", MakeLamb},
};

}  // namespace

double WholePower(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent != 0 && base != 0; exponent >>= 1, base *= base) {
    if (exponent & 1) power *= base;
  }
  return exponent != 0 ? 0 : power;
}

absl::Status CheckSetting(std::string_view optimizer, std::string_view setting, double value,
                          const SettingRange& range) {
  const double rounded = static_cast<float>(value);
  // 0.99999999 is below 1, but 1 as a float: a decay of 1 divides by zero.
  if (value >= range.least && value < range.bound && rounded < range.bound) return absl::OkStatus();
  return InvalidArgument(fmt::format("optimizer {}: {} is {}, want {} <= {} < {}", optimizer, setting, value,
                                     range.least, setting, range.bound));
}

absl::Status CheckSettings(std::string_view optimizer, std::initializer_list<Setting> settings) {
  for (const Setting& setting : settings) {
    CAPSTAN_RETURN_IF_ERROR(CheckSetting(optimizer, setting.name, setting.value, setting.range));
  }
  return absl::OkStatus();
}

absl::Status CheckAdamSettings(std::string_view optimizer, const OptimizerConfig& config) {
  return CheckSettings(optimizer, {{"learning_rate", config.learning_rate(), kRateRange},
                                   {"beta1", config.beta1(), kDecayRange},
                                   {"beta2", config.beta2(), kDecayRange},
                                   {"epsilon", config.epsilon(), kEpsilonRange}});
}

AdamFamily::AdamFamily(const OptimizerConfig& config)
    : learning_rate_(static_cast<float>(config.learning_rate())),
      beta1_(config.beta1()),
      beta2_(config.beta2()),
      epsilon_(static_cast<float>(config.epsilon())),
      weight_decay_(static_cast<float>(config.weight_decay())) {}

AdamFamily::Factors AdamFamily::factors() const {
  return {static_cast<float>(beta1_), static_cast<float>(1 - beta1_), static_cast<float>(beta2_),
          static_cast<float>(1 - beta2_)};
}

StepScalars AdamFamily::Prepare(const UpdateContext& context) const {
  StepScalars scalars = PrepareRate(learning_rate_, context);
  const uint64_t t = std::max<uint64_t>(context.step, 1);  // steps come with pushes: 0 must not make a NaN
  scalars.first_scale = static_cast<float>(1 / (1 - WholePower(beta1_, t)));
  scalars.second_scale = static_cast<float>(1 / (1 - WholePower(beta2_, t)));
  return scalars;
}

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config) {
  for (const OptimizerRow& row : kOptimizers) {
    if (config.name() == row.name) return row.make(config);
  }
  std::string known;
  for (const std::string_view name : OptimizerNames()) known.append(known.empty() ? "" : ", ").append(name);
  return InvalidArgument(fmt::format("unknown optimizer '{}'; known: {}", config.name(), known));
}

std::vector<std::string_view> OptimizerNames() {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : kOptimizers) names.push_back(row.name);
  return names;
}

}  // namespace capstan
