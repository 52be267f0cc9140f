#include "ps/row_store.h"

#include <algorithm>
#include <cstring>

namespace capstan {
namespace {

// A random key costs two cache misses that depend on each other, the index entry and then the record. Both
// are asked for well before their use, so that many keys' misses overlap. The distances are powers of two
// (rings); twice as far gains nothing (`capstan-bench store`).
constexpr size_t kIndexAhead = 16;
constexpr size_t kRecordAhead = 8;

// The homes of the keys just ahead of the one being looked up, their entries already asked for.
class HomesAhead {
 public:
  HomesAhead(const RowIndex& index, std::span<const Key> keys) : index_(index), keys_(keys) { Restart(0); }
  // Finds keys[i]; i counts up by one from call to call.
  std::byte* Find(size_t i) {
    std::byte* const record = RowIndex::Find(homes_[i % kIndexAhead], keys_[i]);
    if (i + kIndexAhead < keys_.size()) Start(i + kIndexAhead);
    return record;
  }
  // The index has moved: the homes of keys[i] and the ones after it are made anew.
  void Restart(size_t i) {
    const size_t end = std::min(keys_.size(), i + kIndexAhead);
    for (; i < end; ++i) Start(i);
  }

 private:
  void Start(size_t i) {
    RowIndex::Home& home = homes_[i % kIndexAhead];
    home = index_.HomeOf(keys_[i]);
    RowIndex::Prefetch(home);
  }
  const RowIndex& index_;
  const std::span<const Key> keys_;
  RowIndex::Home homes_[kIndexAhead];
};

// kWidth is the width where it is known when compiling (the copy is then a few instructions), 0 where it is
// not.
template <size_t kWidth>
void Gather(const RowIndex& index, std::span<const Key> keys, size_t any_width, float* out,
            const std::function<void(size_t, float*)>& missing) {
  const size_t width = kWidth == 0 ? any_width : kWidth;
  const size_t n = keys.size();
  HomesAhead homes(index, keys);
  const std::byte* records[kRecordAhead];
  for (size_t i = 0; i < n + kRecordAhead; ++i) {
    if (i >= kRecordAhead && i - kRecordAhead < n) {
      const size_t done = i - kRecordAhead;
      const std::byte* const record = records[done % kRecordAhead];
      float* const out_row = out + done * width;
      if (record != nullptr) {
        std::memcpy(out_row, record, width * sizeof(float));
      } else {
        missing(done, out_row);
      }
    }
    if (i < n) {
      std::byte* const record = homes.Find(i);
      PrefetchRecord(record, width * sizeof(float));
      records[i % kRecordAhead] = record;
    }
  }
}

struct HashRange {  // both ends included
  uint64_t first;
  uint64_t last;
};

// Of the partitions [first, last), which are not none.
HashRange HashesOf(PartitionId first, PartitionId last, uint32_t partitions) {
  if (partitions == 1) return {0, ~uint64_t{0}};
  const int shift = 64 - __builtin_ctz(partitions);
  return {uint64_t{first} << shift,
          (uint64_t{last} << shift) - 1};  // last == partitions wraps to the largest hash
}

}  // namespace

RowStore::RowStore(const RowLayout& layout) : layout_(layout), slabs_(layout.bytes()) {}

void RowStore::Find(std::span<const Key> keys, RowRef* rows) const {
  HomesAhead homes(index_, keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::byte* const record = homes.Find(i);
    PrefetchRecord(record, layout_.bytes());
    rows[i] = RowRef(record);
  }
}

void RowStore::GatherWeights(std::span<const Key> keys, float* out,
                             const std::function<void(size_t i, float* out_row)>& missing) const {
  switch (layout_.width) {
    case 1:
      return Gather<1>(index_, keys, 1, out, missing);
    case 8:
      return Gather<8>(index_, keys, 8, out, missing);
    case 16:
      return Gather<16>(index_, keys, 16, out, missing);
    case 32:
      return Gather<32>(index_, keys, 32, out, missing);
    case 64:
      return Gather<64>(index_, keys, 64, out, missing);
    default:
      return Gather<0>(index_, keys, layout_.width, out, missing);
  }
}

void RowStore::FindOrCreate(std::span<const Key> keys, const Init& init, const Use& use) {
  const size_t n = keys.size();
  HomesAhead homes(index_, keys);
  RowRef rows[2 * kRecordAhead];  // one half is on its way into the cache while the other is used
  for (size_t i = 0; i < n; ++i) {
    if (i >= 2 * kRecordAhead && i % kRecordAhead == 0) {
      const size_t first = i - 2 * kRecordAhead;
      use(first, rows + first % (2 * kRecordAhead), kRecordAhead);
    }
    std::byte* record = homes.Find(i);
    if (record != nullptr) {
      PrefetchRecord(record, layout_.bytes());
    } else {
      record = slabs_.Take();
      init(keys[i], RowRef(record));
      if (index_.Insert(keys[i], record)) homes.Restart(i + 1);
    }
    rows[i % (2 * kRecordAhead)] = RowRef(record);
  }
  const size_t blocks = (n + kRecordAhead - 1) / kRecordAhead;
  for (size_t block = blocks < 2 ? 0 : blocks - 2; block < blocks; ++block) {
    const size_t first = block * kRecordAhead;
    use(first, rows + first % (2 * kRecordAhead), std::min(kRecordAhead, n - first));
  }
}

void RowStore::FindOrCreate(std::span<const Key> keys, RowRef* rows, const Init& init) {
  FindOrCreate(keys, init, [rows](size_t first, const RowRef* found, size_t n) {
    std::copy(found, found + n, rows + first);
  });
}

bool RowStore::Erase(Key key) {
  std::byte* const record = index_.Erase(key);
  if (record == nullptr) return false;
  slabs_.GiveBack(record);
  return true;
}

void RowStore::ForEach(const std::function<void(Key key, RowRef row)>& visit) const {
  index_.ForEachInHashRange(0, ~uint64_t{0}, [&](Key key, std::byte* record) { visit(key, RowRef(record)); });
}

size_t RowStore::CollectRowsOfHashes(uint64_t first, uint64_t last, std::vector<KeyedRow>* rows) const {
  return index_.CollectHashRange(
      first, last, [](Key key, std::byte* record) { return KeyedRow{key, RowRef(record)}; }, rows);
}

std::vector<Key> RowStore::SortedKeys(PartitionId first, PartitionId last, uint32_t partitions) const {
  std::vector<Key> keys;
  if (first >= last) return keys;
  const HashRange range = HashesOf(first, last, partitions);
  index_.ForEachInHashRange(range.first, range.last, [&](Key key, std::byte*) { keys.push_back(key); });
  std::sort(keys.begin(), keys.end(), [partitions](Key a, Key b) {
    const PartitionId pa = PartitionOf(a, partitions), pb = PartitionOf(b, partitions);
    return pa != pb ? pa < pb : a < b;
  });
  return keys;
}

std::vector<KeyedRow> RowStore::SortedRows(PartitionId first, PartitionId last, uint32_t partitions) const {
  std::vector<KeyedRow> rows;
  if (first >= last) return rows;
  const HashRange range = HashesOf(first, last, partitions);
  index_.ForEachInHashRange(range.first, range.last, [&](Key key, std::byte* record) {
    rows.push_back({key, RowRef(record)});
  });
  std::sort(rows.begin(), rows.end(), [partitions](const KeyedRow& a, const KeyedRow& b) {
    const PartitionId pa = PartitionOf(a.key, partitions), pb = PartitionOf(b.key, partitions);
    return pa != pb ? pa < pb : a.key < b.key;
  });
  return rows;
}

}  // namespace capstan
