// What a row starts from: a pure function of (seed, table name, key, element), so it does not depend on who
// asks first, on the number of shards, or on a restart. No libm call.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/random.h"
#include "common/types.h"

namespace capstan {

// Dense tables pass key = 0 and count flat elements, so that values do not depend on the block size.
class InitialValue {
 public:
  InitialValue(uint64_t seed, std::string_view table_name, float scale)
      : state_(Mix64(Mix64(seed) ^ HashBytes(table_name))), scale_(scale) {}

  // Uniform in (-scale, scale); 0 where scale is 0.
  float At(Key key, uint64_t element) const {
    if (scale_ == 0.0f) return 0.0f;
    return UniformFromBits(Mix64(Mix64(state_ ^ key) ^ element)) * scale_;
  }

 private:
  uint64_t state_;
  float scale_;
};

}  // namespace capstan
