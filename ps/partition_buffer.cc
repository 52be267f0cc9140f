#include "ps/partition_buffer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr size_t kRadixRows = 512;  // below, comparing is quicker

// Byte by byte from the lowest; a byte that is the same everywhere costs one count.
void RadixSort(std::vector<SortedRow>* rows, std::vector<SortedRow>* spare) {
  spare->resize(rows->size());
  for (int shift = 0; shift < 64; shift += 8) {
    std::array<size_t, 256> starts = {};
    for (const SortedRow& row : *rows) ++starts[(row.key >> shift) & 0xFF];
    if (starts[(rows->front().key >> shift) & 0xFF] == rows->size()) continue;
    size_t start = 0;
    for (size_t& count : starts) start += std::exchange(count, start);
    for (const SortedRow& row : *rows) (*spare)[starts[(row.key >> shift) & 0xFF]++] = row;
    rows->swap(*spare);
  }
}

}  // namespace

void PartitionBuffer::Start(uint32_t floats) {
  record_bytes_ = sizeof(Key) + StoredValueBytes(floats);
  used_ = 0;
  deletes_.clear();
  sorted_.clear();
}

std::byte* PartitionBuffer::AddRows(size_t bytes) {
  const size_t at = used_;
  used_ += bytes;
  if (used_ > rows_.size()) rows_.resize(std::max(used_, 2 * at));
  return rows_.data() + at;
}

Key* PartitionBuffer::AddDeletes(size_t keys) {
  const size_t at = deletes_.size();
  deletes_.resize(at + keys);
  return deletes_.data() + at;
}

absl::Status PartitionBuffer::Sort() {
  const size_t rows = used_ / record_bytes_;
  if (rows > std::numeric_limits<uint32_t>::max()) return Internal("more than 2^32 rows in one partition");
  sorted_.resize(rows);
  for (size_t i = 0; i < rows; ++i) {
    std::memcpy(&sorted_[i].key, rows_.data() + i * record_bytes_, sizeof(Key));
    sorted_[i].place = static_cast<uint32_t>(i);
  }
  if (rows >= kRadixRows) {
    RadixSort(&sorted_, &spare_);
  } else {
    std::sort(sorted_.begin(), sorted_.end(), [](const SortedRow& a, const SortedRow& b) { return a.key < b.key; });
  }
  for (size_t i = 1; i < rows; ++i) {
    if (sorted_[i].key == sorted_[i - 1].key) return Internal(fmt::format("key {} is there twice", sorted_[i].key));
  }
  std::sort(deletes_.begin(), deletes_.end());
  deletes_.erase(std::unique(deletes_.begin(), deletes_.end()), deletes_.end());
  auto row = sorted_.begin();
  const auto has_row = [&](Key key) {
    while (row != sorted_.end() && row->key < key) ++row;
    return row != sorted_.end() && row->key == key;
  };
  deletes_.erase(std::remove_if(deletes_.begin(), deletes_.end(), has_row), deletes_.end());
  return absl::OkStatus();
}

}  // namespace capstan
