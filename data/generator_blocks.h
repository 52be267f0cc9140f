// Many rows of a click log on several threads, handed out in row order: the bytes do not depend on the
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "data/generator.h"

namespace capstan {

inline constexpr uint64_t kClickBlockRows = 4096;

struct ClickBlock {
  uint64_t first_row = 0;
  uint64_t clicks = 0;
  std::vector<double> probabilities;  // one per row
  std::string tsv;                    // the rows as AppendTsv writes them
};

// Makes rows [start, start + rows) in blocks of kClickBlockRows (the last may be shorter) and calls `sink`
// with each, in row order, never two at a time, but from different threads. Holds one block per thread in
// memory. The first error of `sink` ends the work and is returned. threads ≥ 1; the caller's thread waits.
absl::Status MakeClickBlocks(const ClickLog& log, uint64_t start, uint64_t rows, unsigned threads,
                             const std::function<absl::Status(const ClickBlock&)>& sink);

// The click probability of each of these rows. threads ≥ 1.
std::vector<double> ClickProbabilities(const ClickLog& log, std::span<const uint64_t> rows, unsigned threads);

}  // namespace capstan
