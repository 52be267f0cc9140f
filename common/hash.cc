#include "common/hash.h"

// Compiled here, with the vector instructions of our baseline; the packaged library is built for SSE2.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace capstan {

uint64_t HashBytes(const void* data, size_t size, uint64_t seed) {
  return seed == 0 ? XXH3_64bits(data, size) : XXH3_64bits_withSeed(data, size, seed);
}

Hash128 HashBytes128(const void* data, size_t size, uint64_t seed) {
  const XXH128_hash_t hash = seed == 0 ? XXH3_128bits(data, size) : XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
}

std::string ToBytes(const Hash128& hash) {
  XXH128_canonical_t canonical;
  XXH128_hash_t value;
  value.low64 = hash.low;
  value.high64 = hash.high;
  XXH128_canonicalFromHash(&canonical, value);
  return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
}

struct StreamHash128::State {
  XXH3_state_t xxh3;
};

StreamHash128::StreamHash128(uint64_t seed) : state_(std::make_unique<State>()) {
  XXH3_128bits_reset_withSeed(&state_->xxh3, seed);
}
StreamHash128::~StreamHash128() = default;
void StreamHash128::Update(const void* data, size_t size) { XXH3_128bits_update(&state_->xxh3, data, size); }
Hash128 StreamHash128::Value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return {hash.low64, hash.high64};
}

}  // namespace capstan
