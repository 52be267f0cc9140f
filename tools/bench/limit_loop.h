// What one core can do at most for pulls and pushes in this shape: one flat open-addressing index of 16-byte
// entries whose size is known beforehand, beside one array of rows without counters; no table, no growth, no
// absent keys, no choice of optimizer. `store` and `pushpull` are measured against it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/hash.h"
#include "common/types.h"
#include "ps/memory_block.h"

namespace capstan {

// The i-th key of a benchmark's table: distinct, and in no relation to its neighbours' (with multiples of a
// constant, sorted requests would walk the rows in regular strides, which caches like).
constexpr Key BenchKey(uint64_t i) { return Mix64(i ^ 0x2545F4914F6CDD1Dull); }

// `count` different keys of BenchKey(0 … rows-1), increasing, as a request has them. count <= rows.
std::vector<Key> BenchRequest(uint64_t seed, uint64_t rows, size_t count);

class LimitLoop {
 public:
  // Rows BenchKey(0 … rows-1) of width weights and width Adagrad accumulators.
  LimitLoop(uint64_t rows, uint32_t width);
  // keys are among those rows. out, gradients: [keys.size(), width].
  void Gather(std::span<const Key> keys, float* out) const;
  void ApplyAdagrad(std::span<const Key> keys, const float* gradients, float learning_rate, float epsilon);

 private:
  struct Entry {
    Key key;
    uint64_t row_plus_one;  // 0: empty
  };
  uint64_t SlotOf(Key key) const {
    const uint64_t product = key * 0x9E3779B97F4A7C15ull;
    return (product ^ (product >> 32)) & mask_;
  }
  float* RowOf(Key key) const;

  uint32_t width_;
  uint64_t mask_;
  MemoryBlock index_memory_;
  MemoryBlock row_memory_;
  Entry* index_;
  float* rows_;
};

}  // namespace capstan
