// The hash of a model: of its rows alone, whatever the shards, processes and files that hold them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "common/types.h"

namespace capstan {

// SHA-256 over the records of one (table, partition), rows by key; a record is key (u64 LE), weights and
// slots (f32 LE), no counters.
struct PartitionSum {
  TableId table = 0;
  PartitionId partition = 0;
  uint64_t rows = 0;
  Sha256Digest sha256 = {};
  bool operator==(const PartitionSum&) const = default;
};

// model_sha256 in lower-case hex: the SHA-256 of, for all non-empty partitions in (table name, partition)
// order: length of the name (u32), name, partition (u32), SHA-256 (32 bytes). Independent of shards,
// processes and order of arrival. Every table id in `sums` must have a name.
std::string ModelSha256(std::span<const std::string> table_names /* by wire id */,
                        std::vector<PartitionSum> sums);

}  // namespace capstan
