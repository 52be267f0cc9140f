#include "ps/row_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace capstan {
namespace {

constexpr uint64_t kFirstSlots = 16;
constexpr uint64_t kFullSlots = uint64_t{1} << 16;  // a segment of so many slots is split, not doubled
constexpr size_t kFullBytes = kFullSlots * sizeof(RowIndex::Entry);
static_assert(2 * kFullBytes == kHugePage);

// A segment is full at 7 entries in 10 slots.
bool IsFull(uint64_t used, uint64_t slots) { return used * 10 >= slots * 7; }

// Half full at most, so that the next split or doubling is far away.
uint64_t SlotsFor(uint64_t entries) { return std::bit_ceil(std::max(kFirstSlots, 2 * entries)); }

}  // namespace

RowIndex::RowIndex() {
  segments_.push_back(NewSegment(kFirstSlots, 0));
  directory_.resize(1);
  Publish(0, 0);
}

bool RowIndex::Insert(Key key, std::byte* record) {
  const uint64_t hash = KeyHash(key);
  bool moved = false;
  for (;;) {
    Segment& segment = segments_[directory_[DirectoryIndex(hash)].segment];
    if (!IsFull(segment.used, segment.slots())) {
      Place(segment, hash, key, record);
      ++segment.used;
      ++size_;
      return moved;
    }
    MakeRoom(hash);
    moved = true;
  }
}

std::byte* RowIndex::Erase(Key key) {
  const uint64_t hash = KeyHash(key);
  Segment& segment = segments_[directory_[DirectoryIndex(hash)].segment];
  Entry* const entries = segment.entries;
  const uint64_t mask = segment.slots() - 1;
  uint64_t hole = SlotOf(hash, segment.shift);
  while (entries[hole].record != nullptr && entries[hole].key != key) hole = (hole + 1) & mask;
  std::byte* const record = entries[hole].record;
  if (record == nullptr) return nullptr;
  // Later entries of the run move up, so that no search meets a gap before its key: no tombstones.
  for (uint64_t slot = (hole + 1) & mask; entries[slot].record != nullptr; slot = (slot + 1) & mask) {
    const uint64_t home = SlotOf(KeyHash(entries[slot].key), segment.shift);
    const bool may_move = ((slot - home) & mask) >= ((slot - hole) & mask);
    if (!may_move) continue;
    entries[hole] = entries[slot];
    hole = slot;
  }
  entries[hole] = Entry{};
  --segment.used;
  --size_;
  return record;
}

uint64_t RowIndex::bytes() const {
  uint64_t bytes =
      directory_.size() * sizeof(View) + segments_.size() * sizeof(Segment) + pool_.size() * kHugePage;
  for (const Segment& segment : segments_) bytes += segment.own.size();
  return bytes;
}

void RowIndex::Place(const Segment& segment, uint64_t hash, Key key, std::byte* record) {
  const uint64_t mask = segment.slots() - 1;
  uint64_t slot = SlotOf(hash, segment.shift);
  while (segment.entries[slot].record != nullptr) slot = (slot + 1) & mask;
  segment.entries[slot] = {key, record};
}

RowIndex::Segment RowIndex::NewSegment(uint64_t slots, uint32_t depth) {
  Segment segment;
  segment.shift = 64 - static_cast<uint32_t>(std::countr_zero(slots));
  segment.depth = depth;
  if (slots != kFullSlots) {
    segment.own = MemoryBlock(slots * sizeof(Entry));
    segment.entries = reinterpret_cast<Entry*>(segment.own.data());
    return segment;
  }
  if (free_halves_.empty()) {
    pool_.emplace_back(kHugePage);
    free_halves_.push_back(pool_.back().data() + kFullBytes);
    free_halves_.push_back(pool_.back().data());
  }
  segment.entries = reinterpret_cast<Entry*>(free_halves_.back());
  free_halves_.pop_back();
  return segment;
}

void RowIndex::FreeEntries(Segment& segment) {
  if (segment.own.size() > 0) {
    segment.own = MemoryBlock();
    return;
  }
  std::memset(segment.entries, 0, kFullBytes);  // pool memory is handed out zeroed
  free_halves_.push_back(reinterpret_cast<std::byte*>(segment.entries));
}

void RowIndex::MakeRoom(uint64_t hash) {
  const uint32_t id = directory_[DirectoryIndex(hash)].segment;
  if (segments_[id].slots() >= kFullSlots && segments_[id].depth < MaxDepth()) {
    Split(id, hash);
  } else {
    Double(id, hash);
  }
}

void RowIndex::Double(uint32_t id, uint64_t hash) {
  Segment& old = segments_[id];
  Segment wide = NewSegment(old.slots() * 2, old.depth);
  for (uint64_t slot = 0; slot < old.slots(); ++slot) {
    const Entry& entry = old.entries[slot];
    if (entry.record != nullptr) Place(wide, KeyHash(entry.key), entry.key, entry.record);
  }
  wide.used = old.used;
  FreeEntries(old);
  old = std::move(wide);
  Publish(id, hash);
}

// Keys whose next hash bit is 1 go to a new segment. Where one side has none (a shard owns a narrow range of
// hashes, so its first bits say nothing), the entries stay in place.
void RowIndex::Split(uint32_t id, uint64_t hash) {
  const uint32_t depth = segments_[id].depth;
  const uint64_t bit = uint64_t{1} << (63 - depth);
  uint64_t count[2] = {0, 0};
  for (uint64_t slot = 0; slot < segments_[id].slots(); ++slot) {
    const Entry& entry = segments_[id].entries[slot];
    if (entry.record != nullptr) ++count[(KeyHash(entry.key) & bit) != 0];
  }
  if (depth == depth_) {
    std::vector<View> twice(directory_.size() * 2);
    for (size_t i = 0; i < twice.size(); ++i) twice[i] = directory_[i / 2];
    directory_ = std::move(twice);
    ++depth_;
  }
  Segment side[2];
  if (count[0] == 0 || count[1] == 0) {
    const int full = count[0] == 0 ? 1 : 0;
    side[1 - full] = NewSegment(kFirstSlots, depth + 1);
    side[full] = std::move(segments_[id]);
    side[full].depth = depth + 1;
  } else {
    for (int b : {0, 1}) side[b] = NewSegment(SlotsFor(count[b]), depth + 1);
    for (uint64_t slot = 0; slot < segments_[id].slots(); ++slot) {
      const Entry& entry = segments_[id].entries[slot];
      if (entry.record == nullptr) continue;
      const uint64_t entry_hash = KeyHash(entry.key);
      Place(side[(entry_hash & bit) != 0], entry_hash, entry.key, entry.record);
    }
    for (int b : {0, 1}) side[b].used = count[b];
    FreeEntries(segments_[id]);
  }
  segments_[id] = std::move(side[0]);
  segments_.push_back(std::move(side[1]));
  Publish(id, hash & ~bit);
  Publish(static_cast<uint32_t>(segments_.size() - 1), hash | bit);
}

// 16 bits are free (a directory of 1 MiB at most, which only keys made for it, or thousands of shards,
// reach); beyond, the directory stays below a quarter of a byte per row.
uint32_t RowIndex::MaxDepth() const {
  const uint32_t by_rows = static_cast<uint32_t>(std::bit_width(size_ / 64));
  return std::max(16u, by_rows == 0 ? 0 : by_rows - 1);
}

// Points the directory's views of a segment, one of whose hashes is given, at its entries.
void RowIndex::Publish(uint32_t id, uint64_t hash) {
  const Segment& segment = segments_[id];
  const uint32_t free_bits = depth_ - segment.depth;
  const size_t first = DirectoryIndex(hash) >> free_bits << free_bits;
  for (size_t i = first; i < first + (size_t{1} << free_bits); ++i) {
    directory_[i] = {segment.entries, segment.shift, id};
  }
}

}  // namespace capstan
