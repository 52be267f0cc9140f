// The gradients that all ranks pushed for one table and step, added per key in one fixed order: rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/types.h"

namespace capstan {

// A part of a rank's push, read in place.
struct GradientChunk {
  std::span<const Key> keys;         // strictly increasing
  const float* gradients = nullptr;  // [keys.size(), width]
};

// One rank's push of one table: keys increase strictly from chunk to chunk too. No chunk, or empty ones: the
// rank adds nothing.
using RankGradients = std::vector<GradientChunk>;

struct MergeCounts {
  uint64_t keys = 0;            // handed to the sink
  uint64_t nonfinite_rows = 0;  // left out: a rank's row, or a sum, with a NaN or an infinity in it
};

// keys strictly increasing, over all calls; gradients [keys.size(), width]; valid during the call.
using MergeSink = std::function<void(std::span<const Key> keys, const float* gradients)>;

// Streams every key that occurs, in increasing order, at most block_keys (>= 1) at a time.
//   The first finite contribution to a key is copied, later ones are added in the order of `ranks` (so -0
//   stays -0); then every element is divided by the divisor once, in fp32. A divisor of 1 changes no bit.
//   divisor: the sum of weights (fp64 in rank order), or 1 for tables that take sums. Rounded to fp32.
// A rank's row with a non-finite element is left out and counted, nothing else of that rank; a sum that is
// not finite after the division is left out and counted too.
// Cost: one pass; per key a comparison per rank that still has keys. With one rank, a divisor of 1 and only
// finite rows, the sink reads the push where it lies.
MergeCounts SumInRankOrder(std::span<const RankGradients> ranks, uint32_t width, double divisor,
                           size_t block_keys, const MergeSink& sink);

}  // namespace capstan
