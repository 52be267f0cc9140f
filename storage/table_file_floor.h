// The least that a checkpoint of these rows can cost: RocksDB's SstFileWriter over rows that are sorted and laid out
// already, with the same options, and nothing else. For benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/status.h"

namespace capstan {

// rows: `count` records, each kStoredKeyBytes of key (as stored) and then value_bytes. sync: the file reaches the disk.
absl::Status WriteTableFile(const std::string& path, std::span<const std::byte> rows, size_t count, size_t value_bytes,
                            bool sync);

}  // namespace capstan
