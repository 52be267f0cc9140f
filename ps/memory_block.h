// Zeroed memory for rows and index. Blocks of 2 MiB and more are aligned to huge pages and the kernel is
// asked for them: with rows read in random order, the page walks are what such a block saves.
#pragma once

#include <cstddef>
#include <utility>

namespace capstan {

inline constexpr size_t kHugePage = size_t{2} << 20;

class MemoryBlock {  // owns its bytes; may be moved
 public:
  MemoryBlock() = default;
  // 64-byte aligned at least. Throws std::bad_alloc, as operator new does.
  explicit MemoryBlock(size_t bytes);
  ~MemoryBlock() { Release(); }
  MemoryBlock(MemoryBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    if (this != &other) {
      Release();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void Release();
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace capstan
