// Update rules of rows. A new one is a file, a row in the table of optimizers.cc, a CMake line and a row in
// its test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "ps/row_layout.h"

namespace capstan {

class OptimizerConfig;

struct UpdateContext {
  float lr_factor = 1.0f;  // multiplies the configured learning rate
  uint64_t step = 1;       // 1-based optimizer step of the table
};

// What a rule needs of a step, worked out once and not per row.
struct StepScalars {
  float learning_rate = 0;
  float first_scale = 1;   // adam: 1 / (1 - beta1^step)
  float second_scale = 1;  // adam: 1 / (1 - beta2^step)
  uint32_t step = 0;       // low 32 bits, for RowCounters::last_step
};

// Stateless apart from its settings; thread-safe. Element-wise fp32 with one order of operations and no fused
// multiply-add, so that AVX2 and AVX-512 give the same bits.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual uint32_t SlotFloats(uint32_t width) const = 0;
  // Fills the slots of a new row, which are zero.
  virtual void InitSlots(float* slots, uint32_t width) const = 0;
  virtual StepScalars Prepare(const UpdateContext& context) const = 0;
  // l1 and l2 are part of its formula: nobody else applies them.
  virtual bool HasOwnPenalty() const { return false; }
  // One update of each of n rows. gradients: [n, width], row i belongs to rows[i]; already summed (and
  // divided, if the table asks for means). Raises the rows' update counts and sets last_step. A few rows a
  // call (those the store has just brought into the cache).
  virtual void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
                      const StepScalars& scalars) const = 0;
};

// kInvalidArgument, naming the known ones or the range, for an unknown name or a setting out of range.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerConfig& config);
std::vector<std::string_view> OptimizerNames();

}  // namespace capstan
