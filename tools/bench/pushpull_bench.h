// `capstan-bench pushpull`: one server process, one client, the real frames, cores and transport between them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "tools/bench/bench.h"

namespace capstan {

struct PushPullBenchOptions {
  uint64_t rows = 4'000'000;
  std::vector<uint32_t> widths = {16, 64};
  size_t keys_per_request = 65'000;         // at most rows
  double seconds = 3;                       // of each comparison
  std::string transport = "tcp";            // tcp or ipc
};

// Pull and push + Adagrad through the server, each beside the in-process loop of the same run over the same keys. Times
// are wall-clock: two processes share the work. kInvalidArgument for options out of range.
absl::Status RunPushPullBench(const PushPullBenchOptions& options, const std::function<void(const Figure&)>& report);

// The server's half: binds `endpoint`, prints the real one on stdout, serves one shard until stdin closes.
absl::Status ServeBenchShard(const std::string& endpoint);

}  // namespace capstan
