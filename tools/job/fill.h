// Completing a job: every default written out, so that the effective job says all that was used.
#pragma once

#include "common/status.h"

namespace capstan {

class JobConfig;

inline constexpr uint32_t kDefaultGlobalBatch = 1024;

// Sets every key that has a default and was not given, the names and salts of features and the hidden layers
// of Wide&Deep included. Keys that do not apply (`normalize` of a categorical feature) stay absent.
void FillDefaults(JobConfig* job);

// Completes the batch: global = micro × accumulation × ranks. Accumulation is 1 unless it is given or
// follows; where nothing says how many rows, a step takes about kDefaultGlobalBatch. kInvalidArgument, with
// all numbers and what would fit, on a contradiction or where nothing divides. ranks ≥ 1.
absl::Status InferBatch(JobConfig* job);

}  // namespace capstan
