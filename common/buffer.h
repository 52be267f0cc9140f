// Reference-counted bytes that frames are built in and read from. Built once, then shared: a buffer that was
// handed to a transport must not be written any more (an I/O thread may be reading it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace capstan {

class Buffer {
 public:
  Buffer() = default;           // empty: size 0, data nullptr
  Buffer(const Buffer& other);  // shares the bytes
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Buffer();

  // Uninitialised bytes, 64-byte aligned, from a process-wide pool that keeps up to kBufferPoolIdleLimit for
  // reuse. Throws std::bad_alloc; callers bound the size first.
  static Buffer Allocate(size_t size);
  static Buffer CopyOf(const void* data, size_t size);
  // Takes over memory of somebody else (a received ZeroMQ message); release(arg) runs once, on the thread
  // that drops the last reference.
  static Buffer Adopt(void* data, size_t size, void (*release)(void* arg), void* arg);

  std::byte* data() const;
  size_t size() const;
  bool empty() const { return size() == 0; }
  std::span<std::byte> bytes() const { return {data(), size()}; }
  bool unique() const;  // no other Buffer shares these bytes

 private:
  struct Block;
  explicit Buffer(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

// Bytes now held by live allocated buffers, and bytes kept for reuse. For metrics and tests.
struct BufferPoolStats {
  size_t live_bytes = 0;
  size_t idle_bytes = 0;
};
BufferPoolStats GetBufferPoolStats();
inline constexpr size_t kBufferPoolIdleLimit = size_t{256} << 20;

}  // namespace capstan
