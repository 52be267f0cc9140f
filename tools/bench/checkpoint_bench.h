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
  int rounds = 5;
  double seconds = 6;  // training while checkpoints are written, and as long without
  std::string writer;  // path of capstan-checkpoint-writer
};

// checkpoint.full.W             rows/s with training idle, fsync in both, both at the writer's priority
// checkpoint.full_cpu.W         rows per CPU second of the writer's process, what the bare loop's thread takes beside it
// checkpoint.increment.W.P%     after touching P % of the rows, against the full one's rate; …_time.W.P%: the same as
//                               time, beside P % of the full one's
// checkpoint.longest_slice      CPU of the shard's thread at a stretch, of 2 ms that are allowed
// checkpoint.memory             peak of table and writer while a million Zipf(1.05) lookups come, against before
// checkpoint.busy.*             a client process trains on a server process while the writer works, against without
// Files go to the system's temporary folder. kInvalidArgument for options out of range.
absl::Status RunCheckpointBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report);

}  // namespace capstan
