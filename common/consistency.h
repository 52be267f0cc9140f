// The one formula of consistency: sync is s = 0, bounded staleness (SSP, Ho et al. 2013) s = k, async s = ∞.
#pragma once

#include <string>
#include <string_view>

#include "common/status.h"
#include "common/types.h"

namespace capstan {

inline constexpr uint64_t kUnbounded = ~uint64_t{0};

enum class ConsistencyMode { kSync, kSsp, kAsync };

struct Consistency {
  ConsistencyMode mode = ConsistencyMode::kSync;
  uint64_t staleness = 0;  // steps; kUnbounded for async

  bool sync() const { return mode == ConsistencyMode::kSync; }
  std::string ToString() const;  // "sync", "ssp:2", "async"
};

// A pull for step c is answered when min done(r) ≥ c − s, over the ranks that count in this mode.
constexpr bool MayAnswerPull(Step wanted, Step slowest_done, uint64_t staleness) {
  return wanted <= staleness || slowest_done >= wanted - staleness;
}

// Reads "sync", "async" or "ssp:k" with 1 ≤ k ≤ 1 000 000; anything else names what is accepted.
absl::StatusOr<Consistency> ParseConsistency(std::string_view text);

}  // namespace capstan
