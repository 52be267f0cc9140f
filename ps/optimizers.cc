#include "ps/optimizers.h"

#include <fmt/format.h>

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
};

}  // namespace

absl::Status CheckSetting(std::string_view optimizer, std::string_view setting, double value,
                          const SettingRange& range) {
  const double rounded = static_cast<float>(value);
  // 0.99999999 is below 1, but 1 as a float: a decay of 1 divides by zero.
  if (value >= range.least && value < range.bound && rounded < range.bound) return absl::OkStatus();
  return InvalidArgument(fmt::format("optimizer {}: {} is {}, want {} <= {} < {}", optimizer, setting, value,
                                     range.least, setting, range.bound));
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
