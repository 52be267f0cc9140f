// What checkpoints cost a shard's thread: knowing which rows changed, and handing a cut over.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/types.h"
#include "tools/bench/bench.h"
#include "tools/bench/limit_loop.h"

namespace capstan {

class Table;

struct SweepBench {
  std::function<std::string(std::string_view what)> name_of;
  Table* table = nullptr;  // full of rows; is tracked from now on
  std::span<const std::vector<Key>> requests;
  std::span<const float> gradients;
  std::function<void(const std::vector<Key>& keys)> limit;  // an update of the same rows, nothing else
  double seconds = 0;
  std::function<void(const Figure&)> report;
};
void RunSweepBench(const SweepBench& bench);

}  // namespace capstan
