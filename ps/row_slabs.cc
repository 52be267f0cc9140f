#include "ps/row_slabs.h"

#include <algorithm>
#include <cstring>

namespace capstan {
namespace {

// The first slab of a table is small, as most tables are; later ones grow with it, so that a table of 100 GB
// has some thousand slabs (the kernel limits mappings to 65530) and at most a sixteenth of its bytes is
// unused.
constexpr size_t kFirstSlab = size_t{4} << 10;
constexpr size_t kLargestSlab = size_t{64} << 20;

size_t SlabBytes(uint64_t so_far, size_t record_bytes) {
  size_t bytes = kFirstSlab;
  if (so_far > 0) bytes = so_far < kHugePage ? so_far : std::max<size_t>(so_far / 16, kHugePage);
  if (bytes > kHugePage) bytes = bytes / kHugePage * kHugePage;
  return std::max(std::min(bytes, kLargestSlab), record_bytes);
}

}  // namespace

std::byte* RowSlabs::Take() {
  if (free_ != nullptr) {
    std::byte* const record = free_;
    std::memcpy(&free_, record, sizeof(free_));
    std::memset(record, 0, record_bytes_);
    return record;
  }
  if (left_ == 0) AddSlab();
  std::byte* const record = next_;
  next_ += record_bytes_;
  --left_;
  return record;
}

void RowSlabs::GiveBack(std::byte* record) {
  std::memcpy(record, &free_, sizeof(free_));
  free_ = record;
}

void RowSlabs::AddSlab() {
  slabs_.emplace_back(SlabBytes(bytes_, record_bytes_));
  next_ = slabs_.back().data();
  left_ = slabs_.back().size() / record_bytes_;
  bytes_ += slabs_.back().size();
}

}  // namespace capstan
