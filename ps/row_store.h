// The rows of one table on one shard: an index of segments (row_index.h) over slabs of records (row_slabs.h).
// Single-threaded (one shard = one thread). Any 64-bit value is an ordinary key. Growth splits one small
// segment at a time, so no call takes long, and old and new index never live side by side; rows never move.
// Memory: the records plus 23 to 46 bytes per row of index. Where memory runs out, std::bad_alloc is thrown.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/types.h"
#include "ps/row_index.h"
#include "ps/row_layout.h"
#include "ps/row_slabs.h"

namespace capstan {

struct KeyedRow {
  Key key;
  RowRef row;
};

class RowStore {
 public:
  explicit RowStore(const RowLayout& layout);

  const RowLayout& layout() const { return layout_; }
  uint64_t rows() const { return index_.size(); }
  uint64_t bytes() const { return index_.bytes() + slabs_.bytes(); }  // slabs and index

  // rows[i] = the row of keys[i], or a RowRef that is not found. Batched, with prefetch of index and records.
  void Find(std::span<const Key> keys, RowRef* rows) const;

  // Copies the weights of every found key to out [n, width]; calls missing(i, out_row) for the others, in
  // order. One pass over keys with prefetch: the hot path of a pull.
  void GatherWeights(std::span<const Key> keys, float* out,
                     const std::function<void(size_t i, float* out_row)>& missing) const;

  using Init = std::function<void(Key key, RowRef row)>;
  using Use = std::function<void(size_t first, const RowRef* rows, size_t n)>;

  // Makes absent rows; init(key, row) fills a new record, whose bytes start as zero. Hands all rows over in
  // order, a few at a time and already on their way into the cache: use(first, rows, n), rows[j] belongs to
  // keys[first + j]. A key may occur more than once. Neither function may change the store.
  // One pass over keys with prefetch: the hot path of a push.
  void FindOrCreate(std::span<const Key> keys, const Init& init, const Use& use);

  // The same with the rows written to rows [n].
  void FindOrCreate(std::span<const Key> keys, RowRef* rows, const Init& init);

  // Forgets a row; its record is reused. False: it was not there.
  bool Erase(Key key);

  // Visits all rows in an order that means nothing. No change to the store during the visit.
  void ForEach(const std::function<void(Key key, RowRef row)>& visit) const;

  // The rows whose KeyHash is in [first, last] (both included) to the front of *rows, which grows as needed; returns
  // how many. In an order that means nothing. Cost: the index segments that the range touches, about 0.2 ms each
  // however short the range.
  size_t CollectRowsOfHashes(uint64_t first, uint64_t last, std::vector<KeyedRow>* rows) const;
  // The end of the range, from `hash`, that takes one segment.
  uint64_t LastHashOfSegment(uint64_t hash) const { return index_.LastHashOfSegment(hash); }

  // The keys of partitions [first, last) of `partitions`, sorted by (partition, key). Memory: 8 bytes per
  // key.
  std::vector<Key> SortedKeys(PartitionId first, PartitionId last, uint32_t partitions) const;
  // The same with the rows. Memory: 16 bytes per row. Cost: the index segments that the partitions touch, and
  // the sort.
  std::vector<KeyedRow> SortedRows(PartitionId first, PartitionId last, uint32_t partitions) const;

 private:
  RowLayout layout_;
  RowIndex index_;
  RowSlabs slabs_;
};

}  // namespace capstan
