// One row is one record everywhere: weights, optimizer slots, counters. They can never come apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace capstan {

struct RowCounters {
  static constexpr uint32_t kMaxUpdates = (uint32_t{1} << 29) - 1;
  uint32_t last_step = 0;     // low 32 bits of the step that touched the row last
  uint32_t updates : 29 = 0;  // how often it was updated; stays at kMaxUpdates
  uint32_t list : 2 = 0;      // change_tracker.h owns these two; a checkpoint does not store them
  uint32_t seen : 1 = 0;
  uint32_t marks() const { return uint32_t{list} | uint32_t{seen} << 2; }
};
static_assert(sizeof(RowCounters) == 8);

// floats: [weights: width][slots: slot_floats], then RowCounters.
struct RowLayout {
  uint32_t width = 0;
  uint32_t slot_floats = 0;
  size_t floats() const { return size_t{width} + slot_floats; }
  // Distance between two records, a multiple of 8. Measured with `capstan-bench store`, 16 floats and
  // Adagrad: padding to 16 bytes gains nothing, padding to 64 is slower for all the memory it takes.
  size_t bytes() const { return (floats() * sizeof(float) + sizeof(RowCounters) + 7) & ~size_t{7}; }
};

// Asks for a record's lines before it is used: a random row costs a cache miss. The hardware follows a long one by
// itself.
inline void PrefetchRecord(const std::byte* record, size_t bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kLinesAhead = 16;
  if (record == nullptr) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(record);
  const uintptr_t end = begin + std::min(bytes, kLinesAhead * kLine);
  for (uintptr_t line = begin & ~(kLine - 1); line < end; line += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line));
  }
}

// A place in a slab; valid until the row is erased or the store is destroyed (growth does not move rows).
class RowRef {
 public:
  RowRef() = default;
  explicit RowRef(std::byte* record) : record_(record) {}
  bool found() const { return record_ != nullptr; }
  std::byte* record() const { return record_; }
  float* weights() const { return reinterpret_cast<float*>(record_); }
  float* slots(const RowLayout& layout) const { return weights() + layout.width; }
  RowCounters* counters(const RowLayout& layout) const {
    return reinterpret_cast<RowCounters*>(record_ + layout.floats() * sizeof(float));
  }

 private:
  std::byte* record_ = nullptr;
};

}  // namespace capstan
