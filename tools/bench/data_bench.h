// `capstan-bench data`: what rows cost before they reach a model, on one core and without a disk.
#pragma once

#include <cstdint>
#include <functional>

#include "common/status.h"
#include "tools/bench/bench.h"

namespace capstan {

struct DataBenchOptions {
  uint64_t rows = 100'000;  // of the generated click log; about 500 bytes of memory each
  double seconds = 2;       // of each comparison
};

// Making rows, scanning them (records, splits, statistics) and parsing them into batches, the last two beside a loop
// that only looks for the line ends of the same bytes.
absl::Status RunDataBench(const DataBenchOptions& options, const std::function<void(const Figure&)>& report);

}  // namespace capstan
