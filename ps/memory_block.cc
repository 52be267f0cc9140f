#include "ps/memory_block.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace capstan {
namespace {

constexpr size_t kCacheLine = 64;

size_t RoundUpTo(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// `bytes` is a multiple of kHugePage. mmap aligns to 4 KiB only, so one huge page more is asked for and the
// ends are given back.
std::byte* MapHugePages(size_t bytes) {
  const size_t asked = bytes + kHugePage;
  void* mapped = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  std::byte* const begin = static_cast<std::byte*>(mapped);
  const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + bytes, kHugePage - head);
  madvise(begin + head, bytes,
          MADV_HUGEPAGE);  // advice only: a kernel without huge pages is slower, not wrong
  return begin + head;
}

}  // namespace

MemoryBlock::MemoryBlock(size_t bytes) {
  if (bytes >= kHugePage) {
    size_ = RoundUpTo(bytes, kHugePage);
    data_ = MapHugePages(size_);
    return;
  }
  const size_t size = RoundUpTo(bytes, kCacheLine);
  void* const data = std::aligned_alloc(kCacheLine, size);
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, size);
  data_ = static_cast<std::byte*>(data);
  size_ = size;
}

void MemoryBlock::Release() {
  if (data_ == nullptr) return;
  if (size_ >= kHugePage) {
    munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

}  // namespace capstan
