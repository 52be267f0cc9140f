// Reads a complete checkpoint: the layers of all shards merged, rows of a table in (partition, key) order whatever the
// number of shards. Never writes. Memory: a few blocks per open file, never the table. Rows are read from the real disk
// (RocksDB opens the files), whatever the FileSystem.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"

namespace capstan {

struct StoredRow {
  Key key = 0;
  PartitionId partition = 0;
  const float* values = nullptr;   // weights, then slots; aligned; valid during the visit
  uint32_t floats = 0;
  uint32_t last_step = 0;
  uint32_t updates = 0;
};

struct TableTotals {
  uint64_t rows = 0;
  uint64_t bytes = 0;              // of keys and values
};

// Thread-safe for different tables; not movable.
class CheckpointReader {
 public:
  enum class Verify {
    kRecords,  // manifest and shard records: checksums, sizes of all files, that they agree
    kFiles,    // and the hash of every file
  };
  // kNotFound: no checkpoint there (no manifest: it was never finished, or the path is wrong). kInvalidArgument: a
  // newer format, named. kDataLoss: names the file that is damaged or missing. Holds a shared lock on the manifest, so
  // that retention leaves the folder alone while it is open.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(FileSystem& fs, const std::string& folder, Verify verify);
  ~CheckpointReader();

  const std::string& folder() const;
  const CheckpointManifest& manifest() const;
  size_t shards() const;
  const ShardRecord& shard(size_t i) const;
  uint32_t partitions() const;
  uint32_t floats(TableId table) const;      // of a row on disk: width and slots; 0: the table has no row
  uint64_t rows(TableId table) const;        // live, as the records say

  // Visits the live rows of partitions [first, last) in (partition, key) order. Checks on the way, per partition: rows
  // against the record, and per layer the content digest where the whole layer of a partition was read; a mismatch is
  // kDataLoss after the visits. Ends at the first error of `visit`.
  absl::Status ForEach(TableId table, PartitionId first, PartitionId last,
                       const std::function<absl::Status(const StoredRow& row)>& visit) const;
  // The row, or nothing. `visit` sees it; the result says whether there was one. Checks the blocks it reads, no digest:
  // after kRecords alone, good files in each other's place may go unnoticed.
  absl::StatusOr<bool> Get(TableId table, Key key, const std::function<void(const StoredRow& row)>& visit) const;
  // Reads everything: file hashes, RocksDB's block checksums, digests, row counts, order, and (where the manifest has
  // it) the model's SHA-256. `progress` (may be empty) is told the bytes read so far.
  absl::Status VerifyAll(const std::function<void(uint64_t bytes)>& progress) const;
  // Of the rows in memory order of ModelSha256 (storage/model_hash.h): one full pass.
  absl::StatusOr<std::string> ComputeModelSha256() const;

 private:
  CheckpointReader();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
