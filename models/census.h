// Not a model but a count: one counter per row of the data, raised by one each time the row is trained on.
// After E epochs every counter must be E, which shows that the data path lost and doubled nothing.
#pragma once

#include "models/network.h"

namespace capstan {

template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeCensus(const ModelConfig& config, const FeatureShape& shape);

}  // namespace capstan
