// The least time that a step of a multi-layer network can take: its matrix products alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace capstan {

// CPU time of the calling thread so far: on a busy machine the time that others took does not count.
double ThreadSeconds();

// The forward, data-gradient and weight-gradient products of dense layers widths[0] → widths[1] → … over
// `batch` rows, in blocks of `block_rows` as the models run them. The data gradient of the first layer covers
// its first `embedded` inputs only: numeric inputs need none. Belongs to one thread (compute_thread.h first).
class MatmulFloor {
 public:
  MatmulFloor(std::span<const size_t> widths, size_t embedded, size_t batch, size_t block_rows);
  ~MatmulFloor();

  // Runs the products of one step; returns its ThreadSeconds.
  double Run();
  // Additions and multiplications of one step.
  double flop() const;

 private:
  struct Arrays;
  std::unique_ptr<Arrays> arrays_;
};

}  // namespace capstan
