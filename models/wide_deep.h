// Logistic regression and Wide & Deep (Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems"):
// the first is the second without its deep part.
#pragma once

#include "models/network.h"

namespace capstan {

// logit = bias + numeric · weights + Σ value · weight of each key.
template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeLogisticRegression(const ModelConfig& config,
                                                                   const FeatureShape& shape);

// The same plus a multi-layer network on [one vector per categorical feature, numeric inputs].
template <typename T>
absl::StatusOr<std::unique_ptr<Network<T>>> MakeWideDeep(const ModelConfig& config,
                                                         const FeatureShape& shape);

}  // namespace capstan
