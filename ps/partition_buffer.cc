#include "ps/partition_buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr size_t kSpreadRows = 64;  // below, comparing is quicker

bool ByKey(const SortedRow& a, const SortedRow& b) { return a.key < b.key; }

// As many buckets as rows, by the leading bits in which the keys differ: as keys are hashes as a rule, a bucket holds
// about one. Where they are not, comparing does the rest.
void SpreadSort(std::vector<SortedRow>* rows, std::vector<SortedRow>* spare, std::vector<uint32_t>* starts) {
  const auto [least, most] = std::minmax_element(rows->begin(), rows->end(), ByKey);
  const Key low = least->key;
  const int bucket_bits = std::bit_width(rows->size()) - 1;
  const int shift = std::max(0, static_cast<int>(std::bit_width(most->key - low)) - bucket_bits);
  starts->assign((size_t{1} << bucket_bits) + 1, 0);
  uint32_t* const start_of = starts->data();
  for (const SortedRow& row : *rows) ++start_of[((row.key - low) >> shift) + 1];
  std::partial_sum(starts->begin(), starts->end(), starts->begin());
  spare->resize(rows->size());
  for (const SortedRow& row : *rows) (*spare)[start_of[(row.key - low) >> shift]++] = row;
  rows->swap(*spare);
  // Each start has moved on to its bucket's end.
  for (size_t bucket = 0, begin = 0; bucket + 1 < starts->size(); begin = start_of[bucket++]) {
    if (start_of[bucket] - begin < 2) continue;
    std::sort(rows->begin() + static_cast<ptrdiff_t>(begin), rows->begin() + static_cast<ptrdiff_t>(start_of[bucket]),
              ByKey);
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
  if (rows >= kSpreadRows) {
    SpreadSort(&sorted_, &spare_, &starts_);
  } else {
    std::sort(sorted_.begin(), sorted_.end(), ByKey);
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
