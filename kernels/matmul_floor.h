// The least time that a step of a multi-layer network can take: its matrix products alone.
#pragma once

#include <cstddef>
#include <span>

namespace capstan {

struct MatmulFloor {
  double seconds = 0;  // best of the repeats, for all products of one step
  double flop = 0;     // additions and multiplications of one step
};

// Times the forward, data-gradient and weight-gradient products of dense layers widths[0] → widths[1] → …
// over `batch` rows, in blocks of `block_rows` as the models run them, on the calling thread
// (compute_thread.h first). The data gradient of the first layer covers its first `embedded` inputs only:
// numeric inputs need none.
MatmulFloor MeasureMatmulFloor(std::span<const size_t> widths, size_t embedded, size_t batch,
                               size_t block_rows, int repeats);

}  // namespace capstan
