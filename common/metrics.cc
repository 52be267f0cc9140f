#include "common/metrics.h"

namespace capstan {

Counter& MetricsRegistry::Get(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = counters_.find(name);
  if (found != counters_.end()) return found->second;
  return counters_.try_emplace(std::string(name)).first->second;
}

std::map<std::string, uint64_t> MetricsRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> values;
  for (const auto& [name, counter] : counters_) values[name] = counter.value();
  return values;
}

}  // namespace capstan
