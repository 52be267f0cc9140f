// A saved model on disk: one folder with a manifest (written last, by the scheduler) and one part file per
// shard. Shared by servers (write), the scheduler (manifest) and the tools (read).
//
//   FOLDER/manifest.pb      ModelManifest (protobuf), then the XXH3-64 of those bytes (u64)
//   FOLDER/part-00000.rows  one per shard
//
// A part file, little-endian, without padding:
//
//   header   8 bytes  "CAPSROWS"
//            u32      version, 1
//            u32      0
//   blocks   any number, each one (table, partition), in any order, no pair twice in the whole model:
//            u32      0x4B4C4243 ("CBLK")
//            u32      table, wire id, < 65536
//            u32      partition
//            u32      floats per record: the table's width, then its optimizer's slots; 1 … 2^20
//            u64      rows, ≥ 1
//            rows records, strictly increasing by key:
//              u64           key (its partition is the block's)
//              f32 × floats  weights, then slots
//   end      u32      0x444E4543 ("CEND")
//            u32      0
//            u64      blocks
//            u64      rows
//   Nothing follows the end.
//
// The manifest holds the size and the SHA-256 of every part and the SHA-256 of the model, so that a flipped
// or a missing byte anywhere is found at load.
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
#include "storage/model_hash.h"

namespace capstan {

class ModelManifest;

inline constexpr uint32_t kModelFormat = 1;  // of manifest and parts
inline constexpr uint32_t kMaxRecordFloats = 1u << 20;

// Writes one part file. One thread. After an error the file is of no use.
class PartWriter {
 public:
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(FileSystem& fs, const std::string& path);
  ~PartWriter();
  // keys: strictly increasing, all of `partition`; row(i) returns `floats` floats (weights, then slots) of
  // keys[i]. A (table, partition) is added at most once. Empty partitions are skipped.
  absl::Status Add(TableId table, PartitionId partition, uint32_t floats, std::span<const Key> keys,
                   const std::function<const float*(size_t i)>& row);
  absl::Status Finish();                          // writes the end, syncs, closes; once
  const std::vector<PartitionSum>& sums() const;  // in the order of Add
  uint64_t bytes() const;
  Sha256Digest file_sha256() const;  // after Finish

 private:
  PartWriter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string PartFileName(ShardId shard);

// Writes the manifest atomically; it is what makes the folder a saved model, so it comes after all parts.
// Sets the format and leaves the data plan out. kInvalidArgument if the manifest would not load (see
// ReadManifest).
absl::Status WriteManifest(FileSystem& fs, const std::string& folder, const ModelManifest& manifest);
// kDataLoss: checksum or contents; kInvalidArgument: a format of another release; kNotFound: no manifest (the
// save never finished, or this is no saved model).
absl::StatusOr<ModelManifest> ReadManifest(FileSystem& fs, const std::string& folder);

// A saved model in memory, checked against the manifest while it is read. Immutable after Load, so
// thread-safe.
class SavedModel {
 public:
  enum class Keep { kWeights, kWeightsAndSlots };
  // kDataLoss names the file that is damaged; kNotFound what is missing.
  // Memory: 8 bytes per row and 4 per float kept.
  static absl::StatusOr<std::unique_ptr<SavedModel>> Load(FileSystem& fs, const std::string& folder,
                                                          Keep keep = Keep::kWeights);
  ~SavedModel();
  const ModelManifest& manifest() const;
  uint32_t width(TableId table) const;  // weights per row
  // Weights of a row, or nullptr where the table has no such row (the caller then uses the initial values).
  const float* Find(TableId table, Key key) const;
  uint64_t rows(TableId table) const;
  // Recomputed from the records read; equal to the manifest's.
  const std::string& model_sha256() const;
  // Visits the rows of a table in (partition, key) order with the floats kept: weights, and slots after them
  // if they were asked for.
  void ForEach(TableId table, const std::function<void(Key, std::span<const float>)>& visit) const;

 private:
  SavedModel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
