// `capstan-bench checkpoint`: a table stored by the real writer's process, beside a bare SstFileWriter.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/status.h"
#include "tools/bench/bench.h"

namespace capstan {

struct CheckpointBenchOptions {
  uint64_t rows = 5'000'000;
  uint32_t width = 16;
  int rounds = 3;
  std::string writer;  // path of capstan-checkpoint-writer
};

// checkpoint.full.W         rows/s with training idle, fsync in both
// checkpoint.increment.W.P  after touching P % of the rows, against the full one's rate
// checkpoint.longest_slice  CPU of the shard's thread at a stretch, of 2 ms that are allowed
// checkpoint.memory         peak of table and writer while a million Zipf(1.05) updates come, against before
// checkpoint.busy.*         a client process trains on a server process while the writer works, against without
absl::Status RunCheckpointBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report);

}  // namespace capstan
