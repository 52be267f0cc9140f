// w -= lr * g
#include "proto/job.pb.h"
#include "ps/optimizers.h"

namespace capstan {
namespace {

class Sgd final : public Optimizer {
 public:
  explicit Sgd(float learning_rate) : learning_rate_(learning_rate) {}
  uint32_t SlotFloats(uint32_t) const override { return 0; }
  void InitSlots(float*, uint32_t) const override {}
  StepScalars Prepare(const UpdateContext& context) const override {
    return PrepareRate(learning_rate_, context);
  }

  void Update(const RowLayout& layout, const RowRef* rows, const float* gradients, size_t n,
              const StepScalars& scalars) const override {
    const uint32_t width = layout.width;
    for (size_t i = 0; i < n; ++i) {
      float* __restrict w = rows[i].weights();
      const float* __restrict g = gradients + i * width;
      for (uint32_t j = 0; j < width; ++j) w[j] -= scalars.learning_rate * g[j];
      CountUpdate(rows[i].counters(layout), scalars);
    }
  }

 private:
  const float learning_rate_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerConfig& config) {
  CAPSTAN_RETURN_IF_ERROR(CheckSetting("sgd", "learning_rate", config.learning_rate(), kRateRange));
  return std::make_unique<Sgd>(static_cast<float>(config.learning_rate()));
}

}  // namespace capstan
