// `capstan-bench train`: Wide & Deep on the generated click log, in one process and as 1 × 1 processes, beside the floor
// of its matrix products measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/status.h"
#include "tools/bench/bench.h"

namespace capstan {

struct TrainBenchOptions {
  uint64_t rows = 400'000;
  uint32_t global_batch = 2048;
  std::string programs;            // folder of capstan-scheduler, capstan-ps, capstan-worker
};

// Trains 26 categorical × 16 and 13 numeric inputs, 256-128-64, one pass, Adam. Files go to a temporary folder that is
// removed. Prints the runs' own progress to stderr.
absl::Status RunTrainBench(const TrainBenchOptions& options, const std::function<void(const Figure&)>& report);

}  // namespace capstan
