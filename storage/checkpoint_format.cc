#include "storage/checkpoint_format.h"

#include <charconv>

#include <fmt/core.h>

#include "common/hash.h"

namespace capstan {
namespace {

uint16_t Swapped(uint16_t value) { return __builtin_bswap16(value); }
uint32_t Swapped(uint32_t value) { return __builtin_bswap32(value); }
uint64_t Swapped(uint64_t value) { return __builtin_bswap64(value); }

template <typename T>
T GetBigEndian(const char* from) {
  T value = 0;
  std::memcpy(&value, from, sizeof(T));
  return Swapped(value);
}

constexpr size_t kHashedAtOnceBytes = 2048;

}  // namespace

absl::StatusOr<StoredKey> DecodeStoredKey(std::string_view bytes) {
  if (bytes.size() != kStoredKeyBytes)
    return DataLoss(fmt::format("a key of {} bytes, not {}", bytes.size(), kStoredKeyBytes));
  StoredKey key;
  key.table = GetBigEndian<TableId>(bytes.data());
  key.partition = GetBigEndian<PartitionId>(bytes.data() + 2);
  key.key = GetBigEndian<Key>(bytes.data() + 6);
  return key;
}

void ContentDigest::AddRow(TableId table, Key key, const void* value, size_t bytes) {
  Hash128 hash;
  if (bytes <= kHashedAtOnceBytes) {
    std::array<char, sizeof(Key) + kHashedAtOnceBytes> row;
    std::memcpy(row.data(), &key, sizeof(key));
    std::memcpy(row.data() + sizeof(key), value, bytes);
    hash = HashBytes128(row.data(), sizeof(key) + bytes, table);
  } else {
    StreamHash128 stream(table);
    stream.Update(&key, sizeof(key));
    stream.Update(value, bytes);
    hash = stream.Value();
  }
  low += hash.low;
  high += hash.high;
}

void ContentDigest::AddRecord(TableId table, const void* record, size_t bytes) {
  const Hash128 hash = HashBytes128(record, bytes, table);
  low += hash.low;
  high += hash.high;
}

std::string CheckpointFolderName(uint64_t id) { return fmt::format("C{:06}", id); }

absl::StatusOr<uint64_t> ParseCheckpointFolderName(std::string_view name) {
  uint64_t id = 0;
  const char* const end = name.data() + name.size();
  const bool starts = name.size() >= 7 && name[0] == 'C';
  const auto parsed =
      starts ? std::from_chars(name.data() + 1, end, id) : std::from_chars_result{name.data(), {}};
  // Written back it must be the same: no "C0000001", no number that overflows.
  if (!starts || parsed.ptr != end || parsed.ec != std::errc() || CheckpointFolderName(id) != name)
    return InvalidArgument(fmt::format("'{}' is no name of a checkpoint's folder (C000007)", name));
  return id;
}

std::string ShardFolderName(uint32_t shard) { return fmt::format("shard-{:04}", shard); }

}  // namespace capstan
