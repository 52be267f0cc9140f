// The rows and deletions of one partition as they come from a shard, and their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "storage/checkpoint_format.h"

namespace capstan {

// Where a row lies: its key and its place among the rows.
struct SortedRow {
  Key key = 0;
  uint32_t place = 0;
};

// One thread. Its memory stays for the next partition.
class PartitionBuffer {
 public:
  // Begins a partition whose rows have `floats` floats.
  void Start(uint32_t floats);
  size_t record_bytes() const { return record_bytes_; }
  // Room for `bytes` bytes of records (key u64, value as stored), for the caller to fill.
  std::byte* AddRows(size_t bytes);
  Key* AddDeletes(size_t keys);
  uint64_t rows() const { return used_ / record_bytes_; }

  // Sorts rows and deletions by key; deletions of keys that have a row are dropped. kInternal: a key is there twice.
  absl::Status Sort();
  // After Sort.
  std::span<const SortedRow> sorted() const { return sorted_; }
  std::span<const Key> deletes() const { return deletes_; }
  std::span<const std::byte> Record(const SortedRow& row) const {
    return {rows_.data() + size_t{row.place} * record_bytes_, record_bytes_};
  }

 private:
  size_t record_bytes_ = 1;
  std::vector<std::byte> rows_;  // never shrinks: the first used_ bytes count
  size_t used_ = 0;
  std::vector<Key> deletes_;
  std::vector<SortedRow> sorted_;
  std::vector<SortedRow> spare_;
  std::vector<uint32_t> starts_;
};

}  // namespace capstan
