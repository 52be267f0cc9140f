// One row is one record everywhere: weights, optimizer slots, counters. They can never come apart.
#pragma once

#include <cstddef>
#include <cstdint>

namespace capstan {

struct RowCounters {
  uint32_t last_step = 0;  // low 32 bits of the step that touched the row last
  uint32_t updates = 0;    // how often it was updated
};

// floats: [weights: width][slots: slot_floats], then RowCounters.
struct RowLayout {
  uint32_t width = 0;
  uint32_t slot_floats = 0;
  size_t floats() const { return size_t{width} + slot_floats; }
  // Distance between two records, a multiple of 8. Measured with `capstan-bench store`, 16 floats and
  // Adagrad: padding to 16 bytes gains nothing, padding to 64 is slower for all the memory it takes.
  size_t bytes() const { return (floats() * sizeof(float) + sizeof(RowCounters) + 7) & ~size_t{7}; }
};

// A place in a slab; valid until the row is erased or the store is destroyed (growth does not move rows).
class RowRef {
 public:
  RowRef() = default;
  explicit RowRef(std::byte* record) : record_(record) {}
  bool found() const { return record_ != nullptr; }
  float* weights() const { return reinterpret_cast<float*>(record_); }
  float* slots(const RowLayout& layout) const { return weights() + layout.width; }
  RowCounters* counters(const RowLayout& layout) const {
    return reinterpret_cast<RowCounters*>(record_ + layout.floats() * sizeof(float));
  }

 private:
  std::byte* record_ = nullptr;
};

}  // namespace capstan
