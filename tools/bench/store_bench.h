// `capstan-bench store`: the row store and the tables above it, without any network.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/status.h"
#include "tools/bench/bench.h"

namespace capstan {

struct StoreBenchOptions {
  uint64_t rows = 4'000'000;
  std::vector<uint32_t> widths = {16, 64};
  size_t keys_per_request = 65'000;  // at most rows
  double seconds = 2;                // of each comparison
};

// Figures are handed over as they are measured. Takes about 2 × rows × (2 × 4 × width + 50) bytes of memory.
// kInvalidArgument for options out of range.
absl::Status RunStoreBench(const StoreBenchOptions& options,
                           const std::function<void(const Figure&)>& report);

}  // namespace capstan
