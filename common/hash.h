// The fixed hashes. Their values are part of the protocol (proto/FORMAT.md): changing one changes which
// shard owns a row, what a row starts from, and which key a category has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace capstan {

// splitmix64's step (Steele, Lea, Flood 2014): a bijection on 64 bits.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// XXH3, 64 bits, seed 0 unless given.
uint64_t HashBytes(const void* data, size_t size, uint64_t seed = 0);
inline uint64_t HashBytes(std::string_view text, uint64_t seed = 0) {
  return HashBytes(text.data(), text.size(), seed);
}
// HashBytes("literal", seed) would read the seed as a size: write std::string_view("literal").
template <size_t N>
uint64_t HashBytes(const char (&)[N], uint64_t) = delete;

// XXH3, 128 bits.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};
Hash128 HashBytes128(const void* data, size_t size, uint64_t seed = 0);
// Canonical form: 16 bytes, big-endian.
std::string ToBytes(const Hash128& hash);

// The same hash of bytes that come in pieces.
class StreamHash128 {
 public:
  explicit StreamHash128(uint64_t seed = 0);
  ~StreamHash128();
  void Update(const void* data, size_t size);
  Hash128 Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace capstan
