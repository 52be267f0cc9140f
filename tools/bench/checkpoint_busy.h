// The part of `capstan-bench checkpoint` with training under way: what a checkpoint costs it.
#pragma once

#include <functional>

#include "common/status.h"
#include "tools/bench/bench.h"
#include "tools/bench/checkpoint_bench.h"

namespace capstan {

// A client process trains on a server process, as one rank of two: the other one computes all the time, so both cores
// are busy, and the writer wants one as well.
absl::Status RunBusyBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report);

}  // namespace capstan
