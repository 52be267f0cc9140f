#include "ps/key_list.h"

#include <algorithm>
#include <iterator>

#include "common/partition_map.h"

namespace capstan {
namespace {

constexpr size_t kFirstKeyBlock = size_t{4} << 10;  // most tables are small
constexpr size_t kKeyBlock = size_t{256} << 10;

}  // namespace

void KeyList::AddBlock() {
  blocks_.emplace_back(blocks_.empty() ? kFirstKeyBlock : kKeyBlock);
  next_ = reinterpret_cast<Key*>(blocks_.back().data());
  end_ = next_ + blocks_.back().size() / sizeof(Key);
}

std::vector<Key> KeyList::TakeSome(size_t n) {
  std::vector<Key> keys;
  if (empty()) return keys;
  const Key* const begin = reinterpret_cast<const Key*>(blocks_.back().data());
  n = std::min(n, static_cast<size_t>(next_ - begin));
  keys.assign(next_ - n, next_);
  next_ -= n;
  if (next_ == begin) FreeSome();
  return keys;
}

void KeyList::FreeSome() {
  if (empty()) return;
  blocks_.pop_back();
  if (empty()) {
    next_ = end_ = nullptr;
    return;
  }
  end_ = reinterpret_cast<Key*>(blocks_.back().data()) + blocks_.back().size() / sizeof(Key);
  next_ = end_;
}

PartitionedKeys::PartitionedKeys(uint32_t partitions)
    : partitions_(partitions), heads_(partitions * sizeof(Run*)) {}

void PartitionedKeys::Add(Key key) {
  Run*& head = heads()[PartitionOf(key, partitions_)];
  if (head == nullptr || head->used == std::size(head->keys)) {
    if (left_ == 0) {
      blocks_.emplace_back(blocks_.empty() ? kFirstKeyBlock : kKeyBlock);
      next_ = reinterpret_cast<Run*>(blocks_.back().data());
      left_ = blocks_.back().size() / sizeof(Run);
    }
    next_->next = head;
    head = next_++;
    --left_;
  }
  head->keys[head->used++] = key;
}

std::vector<Key> PartitionedKeys::Of(PartitionId partition) const {
  std::vector<Key> keys;
  for (const Run* run = heads()[partition]; run != nullptr; run = run->next) {
    keys.insert(keys.end(), run->keys, run->keys + run->used);
  }
  return keys;
}

}  // namespace capstan
