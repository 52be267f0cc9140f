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

// Reads one rank's chunks as one list. Copies are cheap: a place in the list is kept by copying it.
class RankCursor {
 public:
  RankCursor(const RankGradients& chunks, uint32_t width) : chunks_(&chunks), width_(width) { OpenChunk(0); }
  bool done() const { return key_ == end_; }
  Key key() const { return *key_; }
  const float* row() const { return row_; }
  void Advance() {
    row_ += width_;
    if (++key_ == end_) OpenChunk(chunk_ + 1);
  }

 private:
  // The first chunk from `chunk` on that has keys; without one, done.
  void OpenChunk(size_t chunk) {
    while (chunk < chunks_->size() && (*chunks_)[chunk].keys.empty()) ++chunk;
    chunk_ = chunk;
    key_ = end_ = nullptr;
    if (chunk == chunks_->size()) return;
    const GradientChunk& open = (*chunks_)[chunk];
    key_ = open.keys.data();
    end_ = key_ + open.keys.size();
    row_ = open.gradients;
  }
  const RankGradients* chunks_;
  size_t width_;
  size_t chunk_ = 0;
  const Key* key_ = nullptr;
  const Key* end_ = nullptr;
  const float* row_ = nullptr;
};

// Merges all ranks' lists, a block of keys at a time.
class Merger {
 public:
  Merger(std::span<const RankGradients> ranks, uint32_t width, double divisor, size_t block_keys)
      : width_(width), divisor_(static_cast<float>(divisor)), room_(block_keys), sums_(block_keys * width) {
    for (const RankGradients& rank : ranks) {
      const RankCursor cursor(rank, width);
      if (!cursor.done()) cursors_.push_back(cursor);
    }
    keys_.reserve(block_keys);
  }

  MergeCounts Run(const MergeSink& sink) {
    MergeCounts counts;
    while (!cursors_.empty()) {
      const std::vector<RankCursor> begin = cursors_;
      SumBlock();
      // A sum with a non-finite addend is not finite, so one look at the finished block finds all bad rows.
      // They are rare: only then is the block made again, row by row.
      if (!AllFinite(sums_.data(), keys_.size() * width_)) {
        const size_t keys = keys_.size();
        cursors_ = begin;
        SumBlockChecked(keys, &counts);
      }
      if (keys_.empty()) continue;
      counts.keys += keys_.size();
      sink(keys_, sums_.data());
    }
    return counts;
  }

 private:
  void SumBlock() {
    keys_.clear();
    float* sum = sums_.data();
    for (; !cursors_.empty() && keys_.size() < room_; sum += width_) {
      const Smallest smallest = FindSmallest();
      RankCursor& first = cursors_[smallest.cursor];
      std::memcpy(sum, first.row(), width_ * sizeof(float));
      first.Advance();
      bool ended = first.done();
      for (size_t r = smallest.cursor + 1, left = smallest.ranks - 1; left > 0; ++r) {
        RankCursor& cursor = cursors_[r];
        if (cursor.key() != smallest.key) continue;
        Add(sum, cursor.row());
        cursor.Advance();
        ended |= cursor.done();
        --left;
      }
      if (ended) RemoveDone();
      keys_.push_back(smallest.key);
    }
    Divide(sums_.data(), keys_.size() * width_);
  }

  // The next `keys` keys again, without the rows that are not finite.
  void SumBlockChecked(size_t keys, MergeCounts* counts) {
    keys_.clear();
    for (; keys > 0; --keys) {
      const Key key = FindSmallest().key;
      float* const sum = sums_.data() + keys_.size() * width_;
      bool empty = true;
      for (RankCursor& cursor : cursors_) {
        if (cursor.key() != key) continue;
        if (!AllFinite(cursor.row(), width_)) {
          ++counts->nonfinite_rows;
        } else if (empty) {
          std::memcpy(sum, cursor.row(), width_ * sizeof(float));
          empty = false;
        } else {
          Add(sum, cursor.row());
        }
        cursor.Advance();
      }
      RemoveDone();
      if (empty) continue;
      Divide(sum, width_);
      if (AllFinite(sum, width_)) {
        keys_.push_back(key);
      } else {
        ++counts->nonfinite_rows;
      }
    }
  }

  struct Smallest {
    Key key;
    size_t cursor;  // the first that has it
    size_t ranks;   // how many have it
  };
  // Which rank comes next is as good as random, so without branches that depend on it.
  Smallest FindSmallest() const {
    Smallest smallest = {cursors_[0].key(), 0, 1};
    for (size_t r = 1; r < cursors_.size(); ++r) {
      const Key key = cursors_[r].key();
      const bool less = key < smallest.key;
      smallest.ranks = less ? 1 : smallest.ranks + (key == smallest.key);
      smallest.cursor = less ? r : smallest.cursor;
      smallest.key = less ? key : smallest.key;
    }
    return smallest;
  }

  void Add(float* __restrict sum, const float* __restrict row) const {
    for (size_t i = 0; i < width_; ++i) sum[i] += row[i];
  }
  void Divide(float* sum, size_t n) const {
    if (divisor_ == 1.0f) return;
    for (size_t i = 0; i < n; ++i) sum[i] /= divisor_;
  }
  void RemoveDone() {
    std::erase_if(cursors_, [](const RankCursor& cursor) { return cursor.done(); });
  }

  const size_t width_;
  const float divisor_;
  const size_t room_;
  std::vector<RankCursor> cursors_;  // of the ranks that still have keys, in rank order
  std::vector<Key> keys_;
  std::vector<float> sums_;
};

// Hands on one rank's rows where they lie. False, and nothing done, if any of them is not finite.
bool PassInPlace(const RankGradients& chunks, uint32_t width, size_t block_keys, const MergeSink& sink,
                 MergeCounts* counts) {
  for (const GradientChunk& chunk : chunks) {
    if (!AllFinite(chunk.gradients, chunk.keys.size() * width)) return false;
  }
  for (const GradientChunk& chunk : chunks) {
    for (size_t first = 0; first < chunk.keys.size(); first += block_keys) {
      const size_t n = std::min(block_keys, chunk.keys.size() - first);
      counts->keys += n;
      sink(chunk.keys.subspan(first, n), chunk.gradients + first * width);
    }
  }
  return true;
}

}  // namespace

MergeCounts SumInRankOrder(std::span<const RankGradients> ranks, uint32_t width, double divisor,
                           size_t block_keys, const MergeSink& sink) {
  MergeCounts counts;
  const bool as_they_are = ranks.size() == 1 && static_cast<float>(divisor) == 1.0f;
  if (as_they_are && PassInPlace(ranks[0], width, block_keys, sink, &counts)) return counts;
  return Merger(ranks, width, divisor, block_keys).Run(sink);
}

}  // namespace capstan
