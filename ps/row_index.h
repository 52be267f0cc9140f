// Key → record, by extendible hashing (Fagin, Nievergelt, Pippenger, Strong 1979) over open-addressing
// segments: the top bits of KeyHash choose a segment in the directory, other bits the slot in it. A full
// segment is split by its next hash bit, so growth handles 64 Ki entries (1 MiB) at a time and old and new
// index never live side by side. One thread.
//
// Any 64-bit value is an ordinary key: an entry is empty when it has no record. Keys made to share their top
// hash bits do not blow up the directory: its depth is bounded by the number of rows, and beyond that a
// segment doubles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/partition_map.h"
#include "common/types.h"
#include "ps/memory_block.h"

namespace capstan {

class RowIndex {
 public:
  struct Entry {
    Key key;
    std::byte* record;  // nullptr: empty
  };
  // Where the search for a key starts. Stale once Insert says that entries moved.
  struct Home {
    Entry* entries;
    uint64_t slot;
    uint64_t mask;  // slots - 1
  };

  RowIndex();

  Home HomeOf(Key key) const {
    const uint64_t hash = KeyHash(key);
    const View& view = directory_[DirectoryIndex(hash)];
    return {view.entries, SlotOf(hash, view.shift), ~uint64_t{0} >> view.shift};
  }
  static void Prefetch(const Home& home) { __builtin_prefetch(home.entries + home.slot); }
  // nullptr where the key is absent.
  static std::byte* Find(Home home, Key key) {
    for (;;) {
      const Entry& entry = home.entries[home.slot];
      if (entry.record == nullptr || entry.key == key) return entry.record;
      home.slot = (home.slot + 1) & home.mask;
    }
  }

  // key is absent, record is not null. True: entries moved, every Home is stale. Throws std::bad_alloc.
  bool Insert(Key key, std::byte* record);
  // The record that the key had, or nullptr.
  std::byte* Erase(Key key);

  uint64_t size() const { return size_; }
  uint64_t bytes() const;

  // Calls visit(key, record) for every key whose hash is in [first, last] (both included), in no order that
  // means anything. Cost: the segments that the range touches.
  template <class Visit>
  void ForEachInHashRange(uint64_t first, uint64_t last, const Visit& visit) const {
    const Entry* before = nullptr;
    for (size_t d = DirectoryIndex(first); d <= DirectoryIndex(last); ++d) {
      const View& view = directory_[d];
      if (view.entries == before) continue;  // a segment fills a run of the directory
      before = view.entries;
      const Entry* const end = view.entries + (~uint64_t{0} >> view.shift) + 1;
      for (const Entry* entry = view.entries; entry != end; ++entry) {
        if (entry->record == nullptr) continue;
        const uint64_t hash = KeyHash(entry->key);
        if (hash >= first && hash <= last) visit(entry->key, entry->record);
      }
    }
  }

  // The same keys as make(key, record) to the front of *out, which grows as needed; returns how many. Without a branch
  // per entry: half of the slots are empty, in no order that a branch could be predicted from.
  template <class T, class Make>
  size_t CollectHashRange(uint64_t first, uint64_t last, const Make& make, std::vector<T>* out) const {
    const Entry* before = nullptr;
    size_t n = 0;
    for (size_t d = DirectoryIndex(first); d <= DirectoryIndex(last); ++d) {
      const View& view = directory_[d];
      if (view.entries == before) continue;
      before = view.entries;
      const size_t room = n + segments_[view.segment].used + 1;
      if (out->size() < room) out->resize(std::max(room, 2 * out->size()));
      T* const place = out->data();
      const Entry* const end = view.entries + (~uint64_t{0} >> view.shift) + 1;
      for (const Entry* entry = view.entries; entry != end; ++entry) {
        place[n] = make(entry->key, entry->record);
        n += static_cast<size_t>(entry->record != nullptr) & static_cast<size_t>(KeyHash(entry->key) - first <= last - first);
      }
    }
    return n;
  }

  // The largest hash of the segment that `hash` belongs to.
  uint64_t LastHashOfSegment(uint64_t hash) const {
    const uint32_t depth = segments_[directory_[DirectoryIndex(hash)].segment].depth;
    return depth == 0 ? ~uint64_t{0} : hash | (~uint64_t{0} >> depth);
  }

 private:
  struct View {  // what a lookup needs of a segment, by value: one memory access less
    Entry* entries;
    uint32_t shift;  // 64 - log2(slots)
    uint32_t segment;
  };
  struct Segment {
    Entry* entries = nullptr;
    MemoryBlock own;  // empty: the entries are a half of a pool block
    uint64_t used = 0;
    uint32_t shift = 0;
    uint32_t depth = 0;  // hash bits that all its keys share
    uint64_t slots() const { return uint64_t{1} << (64 - shift); }
  };

  size_t DirectoryIndex(uint64_t hash) const {
    return (hash >> 1) >> (63 - depth_);
  }  // depth 0: shift by 64 in all
  // Other bits than the directory's decide: all lower bits of the hash reach the top ones of the product.
  static uint64_t SlotOf(uint64_t hash, uint32_t shift) { return (hash * 0x9E3779B97F4A7C15ull) >> shift; }
  static void Place(const Segment& segment, uint64_t hash, Key key, std::byte* record);

  Segment NewSegment(uint64_t slots, uint32_t depth);
  void FreeEntries(Segment& segment);
  void MakeRoom(uint64_t hash);
  void Double(uint32_t id, uint64_t hash);
  void Split(uint32_t id, uint64_t hash);
  uint32_t MaxDepth() const;
  void Publish(uint32_t id, uint64_t hash);

  std::vector<View> directory_;
  uint32_t depth_ = 0;  // of the directory: 2^depth_ views
  std::vector<Segment> segments_;
  uint64_t size_ = 0;
  std::vector<MemoryBlock> pool_;  // huge pages, each of two full-sized segments
  std::vector<std::byte*> free_halves_;
};

}  // namespace capstan
