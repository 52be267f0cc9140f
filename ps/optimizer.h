// Update rules of rows. A new one is a file, a row in the table of optimizers.cc, a CMake line and a row in its test.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "ps/row_layout.h"

namespace capstan {

class OptimizerConfig;

struct UpdateContext {
  float lr_factor = 1.0f;   // multiplies the configured learning rate
  uint64_t step = 1;        // 1-based optimizer step of the table
};

// Stateless apart from its settings; thread-safe. Element-wise fp32 with one order of operations and no fused
// multiply-add, so that AVX2 and AVX-512 give the same bits.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual uint32_t SlotFloats(uint32_t width) const = 0;
  // Fills the slots of a new row.
  virtual void InitSlots(float* slots, uint32_t width) const = 0;
  // One update of each of n rows. gradients: [n, width], row i belongs to rows[i]; already summed (and divided, if
  // the table asks for means). Raises the rows' update counts and sets last_step.
  virtual void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
                      const UpdateContext& context) const = 0;
};

// kInvalidArgument, naming the known ones or the range, for an unknown name or a setting out of range.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config);
std::vector<std::string_view> OptimizerNames();

}  // namespace capstan
