#include "ps/row_copies.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr size_t kFirstCopyBlock = size_t{64} << 10;  // most tables are small
constexpr size_t kCopyBlock = kHugePage;
constexpr size_t kLine = 64;

}  // namespace

void RowCopies::Add(Chain* chain, Key key, const std::byte* record, CopyBudget* budget) {
  std::byte* place = free_;
  if (place != nullptr) {
    std::memcpy(&free_, place, sizeof(free_));
    --free_places_;
  } else {
    if (left_ == 0 && !AddBlock(budget)) return;
    place = next_;
    next_ += place_bytes();
    --left_;
  }
  std::memcpy(place, chain, sizeof(*chain));
  std::memcpy(place + sizeof(*chain), &key, sizeof(key));
  std::memcpy(place + kHeadBytes, record, record_bytes_);
  *chain = place;
}

Key RowCopies::KeyOf(Chain chain) {
  Key key;
  std::memcpy(&key, chain + sizeof(Chain), sizeof(key));
  return key;
}

void RowCopies::Pop(Chain* chain) {
  std::byte* const place = *chain;
  std::memcpy(chain, place, sizeof(*chain));
  std::memcpy(place, &free_, sizeof(free_));
  free_ = place;
  ++free_places_;
  __builtin_prefetch(*chain);
}

std::vector<MemoryBlock> RowCopies::TakeBlocks() {
  next_ = nullptr;
  left_ = 0;
  free_ = nullptr;
  free_places_ = 0;
  return std::exchange(blocks_, {});
}

bool RowCopies::AddBlock(CopyBudget* budget) {
  const size_t wanted = std::max(blocks_.empty() ? kFirstCopyBlock : kCopyBlock, place_bytes() + kLine);
  const uint64_t room = budget->limit - std::min(budget->used, budget->limit);
  const size_t bytes = std::min<uint64_t>(wanted, room) / kLine * kLine;  // a block rounds up, we down
  if (bytes < place_bytes()) {
    budget->failure = ResourceExhausted(
        fmt::format("copies of rows that changed during the checkpoint fill the {} bytes allowed: raise "
                    "checkpoint.copy_bytes, or make checkpoints while fewer rows change",
                    budget->limit));
    return false;
  }
  try {
    blocks_.emplace_back(bytes);
  } catch (const std::bad_alloc&) {
    budget->failure = ResourceExhausted(
        fmt::format("no memory for copies of rows that changed during the checkpoint, {} bytes are held: lower "
                    "checkpoint.copy_bytes so that training keeps its memory, or give the server more",
                    budget->used));
    return false;
  }
  budget->used += blocks_.back().size();
  budget->peak = std::max(budget->peak, budget->used);
  next_ = blocks_.back().data();
  left_ = blocks_.back().size() / place_bytes();
  return true;
}

}  // namespace capstan
