#include "tools/bench/limit_loop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/random.h"

namespace capstan {
namespace {

constexpr size_t kEntryDistance = 16;
constexpr size_t kRowDistance = 8;
constexpr size_t kLineBytes = 64;

inline void PrefetchFloats(const float* floats, size_t count) {
  const char* const begin = reinterpret_cast<const char*>(floats);
  for (size_t at = 0; at < count * sizeof(float); at += kLineBytes) __builtin_prefetch(begin + at);
}

}  // namespace

std::vector<Key> BenchRequest(uint64_t seed, uint64_t rows, size_t count) {
  SeededRandom random(Mix64(seed));  // neighbouring seeds are the same stream, shifted by one
  std::vector<Key> keys;
  while (keys.size() < count) {
    while (keys.size() < count) keys.push_back(BenchKey(random.Below(rows)));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  }
  return keys;
}

LimitLoop::LimitLoop(uint64_t rows, uint32_t width)
    : width_(width),
      mask_(std::bit_ceil(rows * 10 / 7) - 1),
      index_memory_((mask_ + 1) * sizeof(Entry)),
      row_memory_(rows * 2 * width * sizeof(float)),
      index_(reinterpret_cast<Entry*>(index_memory_.data())),
      rows_(reinterpret_cast<float*>(row_memory_.data())) {
  for (uint64_t i = 0; i < rows; ++i) {
    uint64_t slot = SlotOf(BenchKey(i));
    while (index_[slot].row_plus_one != 0) slot = (slot + 1) & mask_;
    index_[slot] = {BenchKey(i), i + 1};
  }
  std::fill(rows_, rows_ + rows * 2 * width, 0.01f);
}

float* LimitLoop::RowOf(Key key) const {
  uint64_t slot = SlotOf(key);
  while (index_[slot].key != key || index_[slot].row_plus_one == 0) slot = (slot + 1) & mask_;
  return rows_ + (index_[slot].row_plus_one - 1) * 2 * width_;
}

void LimitLoop::Gather(std::span<const Key> keys, float* out) const {
  const float* rows[kRowDistance];
  const size_t n = keys.size();
  for (size_t i = 0; i < std::min(n, kEntryDistance); ++i) __builtin_prefetch(index_ + SlotOf(keys[i]));
  for (size_t i = 0; i < n + kRowDistance; ++i) {  // the last round trips only finish
    if (i >= kRowDistance) {
      std::memcpy(out + (i - kRowDistance) * width_, rows[i % kRowDistance], width_ * sizeof(float));
    }
    if (i >= n) continue;
    if (i + kEntryDistance < n) __builtin_prefetch(index_ + SlotOf(keys[i + kEntryDistance]));
    rows[i % kRowDistance] = RowOf(keys[i]);
    PrefetchFloats(rows[i % kRowDistance], width_);
  }
}

void LimitLoop::ApplyAdagrad(std::span<const Key> keys, const float* gradients, float learning_rate,
                             float epsilon) {
  float* rows[kRowDistance];
  const size_t n = keys.size();
  const uint32_t width = width_;
  for (size_t i = 0; i < std::min(n, kEntryDistance); ++i) __builtin_prefetch(index_ + SlotOf(keys[i]));
  for (size_t i = 0; i < n + kRowDistance; ++i) {  // the last round trips only finish
    if (i >= kRowDistance) {
      float* __restrict w = rows[i % kRowDistance];
      float* __restrict m = w + width;
      const float* __restrict g = gradients + (i - kRowDistance) * width;
      for (uint32_t j = 0; j < width; ++j) {
        m[j] += g[j] * g[j];
        w[j] -= learning_rate * g[j] / (std::sqrt(m[j]) + epsilon);
      }
    }
    if (i >= n) continue;
    if (i + kEntryDistance < n) __builtin_prefetch(index_ + SlotOf(keys[i + kEntryDistance]));
    rows[i % kRowDistance] = RowOf(keys[i]);
    PrefetchFloats(rows[i % kRowDistance], 2 * width);
  }
}

}  // namespace capstan
