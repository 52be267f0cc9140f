// The rows of one table on one shard: extendible hashing over slabs of records. Single-threaded (one shard = one
// thread). Any 64-bit value is an ordinary key. Growth splits one small segment at a time, so no call takes long,
// and old and new index never live side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/types.h"
#include "ps/row_layout.h"

namespace capstan {

class RowStore {
 public:
  explicit RowStore(const RowLayout& layout);
  ~RowStore();
  RowStore(RowStore&&) noexcept;
  RowStore& operator=(RowStore&&) noexcept;

  const RowLayout& layout() const;
  uint64_t rows() const;
  uint64_t bytes() const;  // slabs and index

  // rows[i] = the row of keys[i], or a RowRef that is not found. Batched, with prefetch of index and records.
  void Find(std::span<const Key> keys, RowRef* rows) const;

  // Copies the weights of every found key to out [n, width]; calls missing(i, out_row) for the others, in order.
  // One pass over keys with prefetch: the hot path of a pull.
  void GatherWeights(std::span<const Key> keys, float* out,
                     const std::function<void(size_t i, float* out_row)>& missing) const;

  // Like Find, but makes absent rows; init(key, row) fills a new record, whose bytes start as zero. A key may occur
  // more than once.
  void FindOrCreate(std::span<const Key> keys, RowRef* rows,
                    const std::function<void(Key key, RowRef row)>& init);

  // Forgets a row; its record is reused. False: it was not there.
  bool Erase(Key key);

  // Visits all rows in an order that means nothing. No change to the store during the visit.
  void ForEach(const std::function<void(Key key, RowRef row)>& visit) const;

  // The keys of partitions [first, last) of `partitions`, sorted by (partition, key). Memory: 8 bytes per key.
  std::vector<Key> SortedKeys(uint32_t first, uint32_t last, uint32_t partitions) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
