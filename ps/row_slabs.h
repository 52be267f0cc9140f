// Records of one size, cut from slabs that never move. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps/memory_block.h"

namespace capstan {

class RowSlabs {
 public:
  // record_bytes: at least 8, a multiple of 8.
  explicit RowSlabs(size_t record_bytes) : record_bytes_(record_bytes) {}

  // A zeroed record: one given back before, else the next of the newest slab. Throws std::bad_alloc.
  std::byte* Take();
  void GiveBack(std::byte* record);
  uint64_t bytes() const { return bytes_; }

 private:
  void AddSlab();

  size_t record_bytes_;
  std::vector<MemoryBlock> slabs_;
  std::byte* next_ = nullptr;  // unused part of the newest slab
  size_t left_ = 0;            // records in it
  std::byte* free_ = nullptr;  // records given back; the first 8 bytes of each point to the next one
  uint64_t bytes_ = 0;
};

}  // namespace capstan
