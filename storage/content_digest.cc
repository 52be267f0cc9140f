#include <xxhash.h>

#include "storage/checkpoint_format.h"

namespace capstan {

void ContentDigest::AddRecord(TableId table, const void* record, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(record, bytes, table);
  low += hash.low64;
  high += hash.high64;
}

}  // namespace capstan
