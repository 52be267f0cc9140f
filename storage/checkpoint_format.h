// A checkpoint on disk. One folder, complete or absent: it appears by one rename, its manifest is written last.
//
//   ROOT/capstan-root.pb            the root's own token (checkpoint_root.h)
//   ROOT/C000007.tmp/               one being made
//   ROOT/C000007/
//     manifest.pb                   CheckpointManifest (checkpoint.proto), then XXH3-64 of those bytes (u64 LE)
//     shard-0003/shard.pb           ShardRecord, framed the same
//     shard-0003/C000007-0000.sst   the newest layer of this shard, cut into files of at most 256 MiB
//     shard-0003/C000006-0000.sst   layers below it: hard links to those of the checkpoint before
//
// A layer is a run of RocksDB table files (SstFileWriter), keys strictly increasing through all of them; the newest
// layer that has a key decides. RocksDB's own databases (CURRENT, MANIFEST, WAL) are not used: a damaged MANIFEST can
// open cleanly with rows missing. Which files belong to a checkpoint, and what is in them, our manifest alone says.
//
//   key     14 bytes, big-endian: table u16, partition u32, key u64. Byte order is numeric order.
//   value   little-endian: f32 × (width + slots), last_step u32, updates u32
//   deletion: an ordinary entry with an empty value, in incremental layers only. (RocksDB's own deletions cannot be
//             seen by SstFileReader, so a layer above others could not say what it deletes.)
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "common/status.h"
#include "common/types.h"

namespace capstan {

inline constexpr uint32_t kCheckpointFormat = 2;  // 1 was the plain save of release 0.1 before checkpoints
inline constexpr char kManifestFile[] = "manifest.pb";
inline constexpr char kShardRecordFile[] = "shard.pb";
inline constexpr size_t kStoredKeyBytes = 14;
inline constexpr size_t kStoredCounterBytes = 8;  // last_step, updates
inline constexpr uint32_t kMaxRowFloats = 1u << 20;

constexpr size_t StoredValueBytes(uint32_t floats) { return size_t{floats} * sizeof(float) + kStoredCounterBytes; }

struct StoredKey {
  TableId table = 0;
  PartitionId partition = 0;
  Key key = 0;
  auto operator<=>(const StoredKey&) const = default;
};
static_assert(std::endian::native == std::endian::little, "keys are swapped here, values copied byte for byte");
inline std::array<char, kStoredKeyBytes> EncodeStoredKey(const StoredKey& key) {
  std::array<char, kStoredKeyBytes> bytes;
  const uint64_t head = __builtin_bswap64(uint64_t{key.table} << 48 | uint64_t{key.partition} << 16);
  const uint64_t tail = __builtin_bswap64(key.key);
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + kStoredKeyBytes - sizeof(tail), &tail, sizeof(tail));
  return bytes;
}
// kDataLoss if it has not 14 bytes.
absl::StatusOr<StoredKey> DecodeStoredKey(std::string_view bytes);

// A sum of row hashes, independent of order and of file layout. A row's hash is XXH3-128 (seed: table id) of key (u64
// LE) and value; low and high halves are added modulo 2^64 each.
struct ContentDigest {
  uint64_t low = 0;
  uint64_t high = 0;
  // value: as stored.
  void AddRow(TableId table, Key key, const void* value, size_t bytes);
  // The same; record: the key and behind it the value.
  void AddRecord(TableId table, const void* record, size_t bytes);
  void Add(const ContentDigest& other) { low += other.low; high += other.high; }
  bool operator==(const ContentDigest&) const = default;
};

std::string CheckpointFolderName(uint64_t id);             // "C000007"
// The id, or kInvalidArgument where `name` is no such name (with any ending, ".tmp" included).
absl::StatusOr<uint64_t> ParseCheckpointFolderName(std::string_view name);
std::string ShardFolderName(uint32_t shard);               // "shard-0003"

}  // namespace capstan
