// How long one training step of Wide & Deep computes, beside the least it can take.
#pragma once

#include <cstdint>

#include "common/status.h"

namespace capstan {

class ModelConfig;
struct FeatureShape;

struct StepTimes {
  double seconds = 0;        // ForwardBackward of one batch, weights already there
  double floor_seconds = 0;  // its matrix products alone (kernels/matmul_floor.h)
  double flop = 0;           // of those products
  uint64_t unique_rows = 0;  // of the sparse tables, in the batch
};

// The best of `repeats` runs of each, taken in turns, in CPU time of the calling thread (compute_thread.h
// first; one OpenMP thread, or the time of the others is left out). The batch is made up, with one key per
// feature, of a skew like that of click logs. Fails like MakeModel, and with kInvalidArgument for a model
// that is not wide_deep.
absl::StatusOr<StepTimes> MeasureStep(const ModelConfig& config, const FeatureShape& shape,
                                      uint32_t batch_rows, int repeats);

}  // namespace capstan
