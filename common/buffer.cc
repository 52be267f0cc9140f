#include "common/buffer.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include <glog/logging.h>
#include <sanitizer/asan_interface.h>

namespace capstan {

// Header of every block; allocated blocks keep their bytes right behind it, adopted ones elsewhere.
struct alignas(64) Buffer::Block {
  std::atomic<uint32_t> references{1};
  int size_class = -1;  // -1: adopted
  size_t size = 0;
  std::byte* data = nullptr;
  void (*release)(void*) = nullptr;
  void* argument = nullptr;
};

namespace {

constexpr int kMinClass = 8;   // 256 bytes
constexpr int kMaxClass = 22;  // 4 MiB; larger blocks are not kept
constexpr size_t kHeaderBytes = 64;
constexpr size_t kLargestBlock = size_t{1} << 46;  // what user space can address

// Free lists by power of two. Keeping blocks avoids the page faults that made large frames slow.
// AddressSanitizer is told what is free, so that the pool does not hide a use after free or past the end.
class BlockPool {
 public:
  void* Take(int size_class) {
    const size_t bytes = size_t{1} << size_class;
    live_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (size_class <= kMaxClass) {
      std::lock_guard lock(mutex_);
      auto& list = free_[size_class];
      if (!list.empty()) {
        void* block = list.back();
        list.pop_back();
        idle_bytes_ -= bytes;
        ASAN_UNPOISON_MEMORY_REGION(block, kHeaderBytes + bytes);
        return block;
      }
    }
    void* block = std::aligned_alloc(64, kHeaderBytes + bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }

  void Give(void* block, int size_class) {
    const size_t bytes = size_t{1} << size_class;
    live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    if (size_class <= kMaxClass) {
      std::lock_guard lock(mutex_);
      if (idle_bytes_ + bytes <= kBufferPoolIdleLimit) {
        free_[size_class].push_back(block);
        idle_bytes_ += bytes;
        ASAN_POISON_MEMORY_REGION(block, kHeaderBytes + bytes);
        return;
      }
    }
    std::free(block);
  }

  BufferPoolStats Stats() {
    std::lock_guard lock(mutex_);
    return {live_bytes_.load(std::memory_order_relaxed), idle_bytes_};
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_[kMaxClass + 1];
  size_t idle_bytes_ = 0;
  std::atomic<size_t> live_bytes_{0};
};

BlockPool& Pool() {
  static BlockPool* pool = new BlockPool;  // never destroyed: I/O threads may outlive main
  return *pool;
}

int ClassOf(size_t size) {
  if (size > kLargestBlock) throw std::bad_alloc();
  const int bits = size <= 1 ? 0 : std::bit_width(size - 1);
  return bits < kMinClass ? kMinClass : bits;
}

}  // namespace

Buffer::Buffer(const Buffer& other) : block_(other.block_) {
  if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
}

Buffer::~Buffer() {
  static_assert(sizeof(Block) == kHeaderBytes);
  if (block_ == nullptr || block_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (block_->size_class < 0) {
    block_->release(block_->argument);
    delete block_;
  } else {
    const int size_class = block_->size_class;
    block_->~Block();
    Pool().Give(block_, size_class);
  }
}

Buffer Buffer::Allocate(size_t size) {
  if (size == 0) return {};
  const int size_class = ClassOf(size);
  void* memory = Pool().Take(size_class);
  auto* block = new (memory) Block;
  block->size_class = size_class;
  block->size = size;
  block->data = static_cast<std::byte*>(memory) + kHeaderBytes;
  ASAN_POISON_MEMORY_REGION(block->data + size, (size_t{1} << size_class) - size);
  return Buffer(block);
}

Buffer Buffer::CopyOf(const void* data, size_t size) {
  Buffer buffer = Allocate(size);
  if (size > 0) std::memcpy(buffer.data(), data, size);
  return buffer;
}

Buffer Buffer::Adopt(void* data, size_t size, void (*release)(void* arg), void* arg) {
  CHECK(release != nullptr);
  auto* block = new Block;
  block->size = size;
  block->data = static_cast<std::byte*>(data);
  block->release = release;
  block->argument = arg;
  return Buffer(block);
}

std::byte* Buffer::data() const { return block_ == nullptr ? nullptr : block_->data; }
size_t Buffer::size() const { return block_ == nullptr ? 0 : block_->size; }
bool Buffer::unique() const {
  return block_ != nullptr && block_->references.load(std::memory_order_acquire) == 1;
}

BufferPoolStats GetBufferPoolStats() { return Pool().Stats(); }

}  // namespace capstan
