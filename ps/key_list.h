// Keys in the order they came in, and the same keys by partition. Training adds to a KeyList, which therefore costs a
// store and nothing else; a sweep sorts it later, a few keys at a time. Memory: 8 bytes per key either way, and a list
// gives its own back as it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/types.h"
#include "ps/memory_block.h"

namespace capstan {

class KeyList {
 public:
  KeyList() = default;
  KeyList(KeyList&& other) noexcept { *this = std::move(other); }
  KeyList& operator=(KeyList&& other) noexcept {
    blocks_ = std::exchange(other.blocks_, {});
    next_ = std::exchange(other.next_, nullptr);
    end_ = std::exchange(other.end_, nullptr);
    return *this;
  }
  void Add(Key key) {
    if (next_ == end_) AddBlock();
    *next_++ = key;
  }
  bool empty() const { return blocks_.empty(); }
  // Takes up to n keys off the end.
  std::vector<Key> TakeSome(size_t n);
  void FreeSome();  // a block

 private:
  void AddBlock();
  std::vector<MemoryBlock> blocks_;
  Key* next_ = nullptr;  // in the newest block
  Key* end_ = nullptr;
};

class PartitionedKeys {
 public:
  explicit PartitionedKeys(uint32_t partitions);
  void Add(Key key);
  bool Has(PartitionId partition) const { return heads()[partition] != nullptr; }
  std::vector<Key> Of(PartitionId partition) const;
  // All its memory: giving back much at once takes long. Nothing else may be called then.
  std::vector<MemoryBlock> TakeBlocks() { return std::exchange(blocks_, {}); }

 private:
  struct Run {
    Run* next;
    size_t used;
    Key keys[30];  // a run is 256 bytes
  };
  Run** heads() const { return reinterpret_cast<Run**>(heads_.data()); }

  uint32_t partitions_;
  MemoryBlock heads_;
  std::vector<MemoryBlock> blocks_;
  Run* next_ = nullptr;  // unused part of the newest block
  size_t left_ = 0;      // runs in it
};

}  // namespace capstan
