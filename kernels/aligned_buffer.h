// Scratch memory on cache-line boundaries, kept between steps.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace capstan {

// Owns `size()` floats. Not thread-safe. The values are undefined after a Resize that grew.
template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) { Resize(size); }

  // Never shrinks the memory, so the sizes of a training loop allocate once.
  void Resize(size_t size) {
    if (size > capacity_) {
      memory_.reset();
      memory_.reset(static_cast<T*>(::operator new(size * sizeof(T), kAlignment)));
      capacity_ = size;
    }
    size_ = size;
  }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace capstan
