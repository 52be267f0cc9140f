#include "ps/gradient_merge.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace capstan {
namespace {

// An exponent of all ones is a NaN or an infinity. Without a branch in the loop, so that it becomes vector
// code.
bool AllFinite(const float* values, size_t n) {
  uint32_t bad = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    bad |= static_cast<uint32_t>((bits & 0x7F800000u) == 0x7F800000u);
  }
  return bad == 0;
}

// Reads one rank's chunks as one list.
class RankCursor {
 public:
  RankCursor(const RankGradients& chunks, uint32_t width) : chunks_(&chunks), width_(width) { SkipEmpty(); }
  bool done() const { return chunk_ == chunks_->size(); }
  Key key() const { return key_; }
  const float* row() const { return (*chunks_)[chunk_].gradients + at_ * width_; }
  void Advance() {
    if (++at_ < (*chunks_)[chunk_].keys.size()) {
      key_ = (*chunks_)[chunk_].keys[at_];
      return;
    }
    ++chunk_;
    at_ = 0;
    SkipEmpty();
  }

 private:
  void SkipEmpty() {
    while (chunk_ < chunks_->size() && (*chunks_)[chunk_].keys.empty()) ++chunk_;
    if (!done()) key_ = (*chunks_)[chunk_].keys[0];
  }
  const RankGradients* chunks_;
  size_t width_;
  size_t chunk_ = 0;
  size_t at_ = 0;
  Key key_ = 0;
};

// Collects summed rows, divides and checks them, and passes them on in blocks.
class SumBlock {
 public:
  SumBlock(uint32_t width, double divisor, size_t block_keys, const MergeSink& sink, MergeCounts* counts)
      : width_(width),
        divisor_(static_cast<float>(divisor)),
        room_(block_keys),
        sink_(sink),
        counts_(counts) {}
  // Where the sum of the next key goes.
  float* next_row() {
    if (sums_.empty()) sums_.resize(room_ * width_);  // not before: one clean rank needs none
    return sums_.data() + keys_.size() * width_;
  }
  // next_row() now holds the sum of `key`.
  void Finish(Key key) {
    float* const row = next_row();
    if (divisor_ != 1.0f) {
      for (size_t i = 0; i < width_; ++i) row[i] /= divisor_;
    }
    if (!AllFinite(row, width_)) {
      ++counts_->nonfinite_rows;
      return;
    }
    keys_.push_back(key);
    if (keys_.size() == room_) Flush();
  }
  void Flush() {
    if (keys_.empty()) return;
    counts_->keys += keys_.size();
    sink_(keys_, sums_.data());
    keys_.clear();
  }

 private:
  const size_t width_;
  const float divisor_;
  const size_t room_;
  const MergeSink& sink_;
  MergeCounts* const counts_;
  std::vector<Key> keys_;
  std::vector<float> sums_;
};

MergeCounts PassOneRank(const RankGradients& chunks, uint32_t width, double divisor, size_t block_keys,
                        const MergeSink& sink) {
  MergeCounts counts;
  SumBlock block(width, divisor, block_keys, sink, &counts);
  const bool in_place = static_cast<float>(divisor) == 1.0f;
  for (const GradientChunk& chunk : chunks) {
    for (size_t first = 0; first < chunk.keys.size(); first += block_keys) {
      const size_t n = std::min(block_keys, chunk.keys.size() - first);
      const float* const rows = chunk.gradients + first * width;
      if (in_place && AllFinite(rows, n * width)) {
        block.Flush();
        counts.keys += n;
        sink(chunk.keys.subspan(first, n), rows);
        continue;
      }
      for (size_t i = 0; i < n; ++i) {
        const float* const row = rows + i * width;
        if (!AllFinite(row, width)) {
          ++counts.nonfinite_rows;
          continue;
        }
        std::memcpy(block.next_row(), row, width * sizeof(float));
        block.Finish(chunk.keys[first + i]);
      }
    }
  }
  block.Flush();
  return counts;
}

}  // namespace

MergeCounts SumInRankOrder(std::span<const RankGradients> ranks, uint32_t width, double divisor,
                           size_t block_keys, const MergeSink& sink) {
  if (ranks.size() == 1) return PassOneRank(ranks[0], width, divisor, block_keys, sink);
  MergeCounts counts;
  SumBlock block(width, divisor, block_keys, sink, &counts);
  std::vector<RankCursor> cursors;  // of the ranks that still have keys, in rank order
  for (const RankGradients& rank : ranks) {
    RankCursor cursor(rank, width);
    if (!cursor.done()) cursors.push_back(cursor);
  }
  while (!cursors.empty()) {
    Key key = cursors[0].key();
    for (const RankCursor& cursor : cursors) key = std::min(key, cursor.key());
    float* const sum = block.next_row();
    bool empty = true, ended = false;
    for (RankCursor& cursor : cursors) {
      if (cursor.key() != key) continue;
      const float* const row = cursor.row();
      if (!AllFinite(row, width)) {
        ++counts.nonfinite_rows;
      } else if (empty) {
        std::memcpy(sum, row, width * sizeof(float));
        empty = false;
      } else {
        for (uint32_t i = 0; i < width; ++i) sum[i] += row[i];
      }
      cursor.Advance();
      ended |= cursor.done();
    }
    if (!empty) block.Finish(key);
    if (ended) std::erase_if(cursors, [](const RankCursor& cursor) { return cursor.done(); });
  }
  block.Flush();
  return counts;
}

}  // namespace capstan
