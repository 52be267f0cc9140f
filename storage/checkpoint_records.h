// What a checkpoint says about itself: its manifest and its shards' records, read and checked against each
// other and against the sizes of the files. Needs no RocksDB.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

inline constexpr uint64_t kMaxRecordBytes = uint64_t{1} << 30;  // of manifest.pb and shard.pb

// Protobuf bytes followed by their XXH3-64: how manifest.pb, shard.pb and the scheduler's state are framed.
std::string FrameRecord(const std::string& bytes);
// The protobuf bytes. kDataLoss: the checksum does not fit. `path` is for messages.
absl::StatusOr<std::string> UnframeRecord(std::string framed, const std::string& path);
absl::StatusOr<std::string> ReadRecord(FileSystem& fs, const std::string& path, uint64_t max_bytes);

// XXH3-128 of a whole file, canonical form, 16 bytes: StoredFile::xxh3. Reads 1 MiB at a time.
absl::StatusOr<std::string> HashFile(FileSystem& fs, const std::string& path);

// That every file listed has the hash that the manifest says: one pass over them, at the speed of the disk. kDataLoss
// names the first that has not. `progress` (may be empty) is told the bytes read so far, which are added to *bytes.
absl::Status CheckFileHashes(FileSystem& fs, const std::string& folder, const CheckpointManifest& manifest,
                             const std::function<void(uint64_t bytes)>& progress, uint64_t* bytes);

// Reads and checks ROOT/C…/manifest.pb alone: quick, for lists. Errors as CheckpointRecords::Load.
absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(FileSystem& fs, const std::string& folder);

struct CheckpointRecords {
  CheckpointManifest manifest;
  std::vector<ShardRecord> shards;  // by shard id

  // Reads the manifest and every shard's record, and checks the records' own hashes, that all files are there
  // with their sizes, and CheckRecords. kNotFound: no checkpoint there (no manifest: it was never finished,
  // or the path is wrong). kInvalidArgument: a format of another release, named. kDataLoss: names the file
  // that is damaged or missing.
  static absl::StatusOr<CheckpointRecords> Load(FileSystem& fs, const std::string& folder);
};

// That records agree with each other: every partition owned once, every layer's file listed in the manifest,
// names that stay inside the folder, tables that the job has, counts that fit into the files. Empty if so,
// else what is wrong. For those who write a manifest, before they do; Load calls it too.
std::string WhatIsWrong(const CheckpointManifest& manifest);
std::string WhatIsWrong(const CheckpointManifest& manifest, const std::vector<ShardRecord>& shards);

// "shard-0003/C000007-0000.sst": folders and names of letters, digits, '.', '_' and '-', none beginning with
// a '.', so that no name leads out of the folder.
bool IsPlainFileName(std::string_view name);

}  // namespace capstan
