// Reproducible numbers in (-1, 1) for the tests of kernels/.
#pragma once

#include <cstdint>
#include <vector>

#include "common/random.h"

namespace capstan {

inline std::vector<float> RandomFloats(size_t n, uint64_t seed) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = UniformFromBits(Mix64(Mix64(seed) ^ i));
  return v;
}

}  // namespace capstan
