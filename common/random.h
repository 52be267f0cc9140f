// Randomness without state: every value is a function of what it is for, so it does not depend on the
// order of arrival, the number of shards, or a restart. Stateful streams exist for tests and job ids only.
#pragma once

#include <cstdint>

#include "common/hash.h"

namespace capstan {

// Chain of bijections: CounterHash(a, b, c, d) for a (seed, table, key, element) tuple.
constexpr uint64_t CounterHash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return Mix64(Mix64(Mix64(Mix64(a) ^ b) ^ c) ^ d);
}

// Uniform over the 2^23 odd multiples of 2^-23 in (-1, 1): each is exact in fp32, none is 0, and they are
// symmetric about 0. No libm call and no rounding, so the same on every machine.
constexpr float UniformFromBits(uint64_t h) {
  const int32_t odd = 2 * static_cast<int32_t>(h >> 41) + 1;  // 1 … 2^24 - 1
  return static_cast<float>(odd - (1 << 23)) * 0x1p-23f;
}

// A door for the few places that need fresh randomness (job id, incarnation, jitter).
class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t Next() = 0;
};

// Reproducible: for tests and the simulator. Neighbouring seeds give unrelated streams.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(Mix64(seed)) {}
  uint64_t Next() override { return Mix64(state_++); }
  uint64_t Below(uint64_t n) { return Next() % n; }  // n > 0; the bias of 2^-64·n does not matter here
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

// From the operating system. Thread-safe.
class SystemRandom final : public Random {
 public:
  uint64_t Next() override;
};

}  // namespace capstan
