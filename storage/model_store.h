// A saved model on disk: one folder with a manifest (written last, by the scheduler) and one part file per shard.
// Shared by servers (write), the scheduler (manifest) and the tools (read). proto/FORMAT.md has the bytes.
//
//   FOLDER/manifest.pb     ModelManifest, then its XXH3 (8 bytes)
//   FOLDER/part-00000.rows one per shard: blocks of one (table, partition) each, rows by key
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/types.h"

namespace capstan {

class ModelManifest;

// SHA-256 over the records of one (table, partition), rows by key; a record is key (u64 LE), weights and slots
// (f32 LE), no counters.
struct PartitionSum {
  TableId table = 0;
  PartitionId partition = 0;
  uint64_t rows = 0;
  Sha256Digest sha256 = {};
};

// PartitionSums travel in control messages as packed bytes (48 each: table u32, partition u32, rows u64, sha).
std::string PackSums(std::span<const PartitionSum> sums);
absl::StatusOr<std::vector<PartitionSum>> UnpackSums(std::string_view packed);

// model_sha256: the SHA-256 of the list of (table name, partition, SHA-256) of all non-empty partitions, in (table
// name, partition) order. Independent of shards, processes and order of arrival.
std::string ModelSha256(std::span<const std::string> table_names /* by wire id */, std::vector<PartitionSum> sums);

// Writes one part file. One thread. After an error the file is of no use.
class PartWriter {
 public:
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(FileSystem& fs, const std::string& path);
  ~PartWriter();
  // keys sorted; row(i) returns `floats` floats (weights, then slots) of keys[i]. Empty partitions are skipped.
  absl::Status Add(TableId table, PartitionId partition, uint32_t floats, std::span<const Key> keys,
                   const std::function<const float*(size_t i)>& row);
  absl::Status Finish();  // syncs
  const std::vector<PartitionSum>& sums() const;
  uint64_t bytes() const;
  Sha256Digest file_sha256() const;  // after Finish

 private:
  PartWriter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string PartFileName(ShardId shard);
absl::Status WriteManifest(FileSystem& fs, const std::string& folder, const ModelManifest& manifest);
// kDataLoss: checksum or format; kNotFound: no manifest (the save never finished).
absl::StatusOr<ModelManifest> ReadManifest(FileSystem& fs, const std::string& folder);

// All weights (no slots) of a saved model in memory, checked against the manifest's hashes while reading.
class SavedModel {
 public:
  // kDataLoss names the file that is damaged; kNotFound what is missing.
  static absl::StatusOr<std::unique_ptr<SavedModel>> Load(FileSystem& fs, const std::string& folder);
  ~SavedModel();
  const ModelManifest& manifest() const;
  uint32_t width(TableId table) const;
  // Weights of a row, or nullptr where the table has no such row (the caller then uses the initial values).
  const float* Find(TableId table, Key key) const;
  uint64_t rows(TableId table) const;
  // Recomputed from the records read; equal to the manifest's.
  const std::string& model_sha256() const;
  // Visits rows of a table in (partition, key) order: key and `floats` floats (weights then slots).
  void ForEach(TableId table, const std::function<void(Key, std::span<const float>)>& visit) const;

 private:
  SavedModel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
