#include "common/hash.h"

// Compiled here, with the vector instructions of our baseline; the packaged library is built for SSE2.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace capstan {

uint64_t HashBytes(const void* data, size_t size, uint64_t seed) {
  return seed == 0 ? XXH3_64bits(data, size) : XXH3_64bits_withSeed(data, size, seed);
}

}  // namespace capstan
