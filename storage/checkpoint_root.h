// The folder of a run's checkpoints: makes new ones, finds the newest good one, removes old ones. One owner (the
// scheduler) changes it; anybody may read. All I/O goes through FileSystem. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class CheckpointManifest;

struct RetentionPolicy {
  uint32_t keep_last = 3;   // at least 1
  uint32_t keep_every = 0;  // ids that are multiples; 0: none
  uint32_t keep_best = 0;   // by CheckpointManifest::metric, higher is better; 0: none
};

struct CheckpointEntry {
  uint64_t id = 0;
  std::string folder;
  uint64_t version = 0;
  uint64_t examples = 0;
  bool full = true;
  uint64_t bytes = 0;
  std::optional<double> metric;
  std::string model_sha256;  // hex; empty where it was not asked for
};

// What a shard reported; the scheduler checks it against the folder before it commits.
struct ShardPart {
  uint64_t record_bytes = 0;
  std::string record_xxh3;   // 16 bytes
};

class CheckpointRoot {
 public:
  // Makes the folder with a new token file, or opens the one there. kInvalidArgument: the folder holds other things
  // and no token of ours.
  static absl::StatusOr<std::unique_ptr<CheckpointRoot>> Open(FileSystem& fs, const std::string& path);

  const std::string& path() const { return path_; }
  // 32 hex digits, random, in ROOT/capstan-root.pb. A server proves that it sees the same file system by reading it.
  const std::string& token() const { return token_; }

  // Above every id that any folder here ever had, incomplete and removed ones included.
  absl::StatusOr<uint64_t> NextId();
  std::string FolderOf(uint64_t id) const;           // ROOT/C000007
  std::string WorkingFolderOf(uint64_t id) const;    // ROOT/C000007.tmp

  // Makes the working folder with our marker file inside.
  absl::Status Begin(uint64_t id);
  // Reads every shard's record, lists its files in the manifest (names, sizes, hashes as the records say; checks that
  // the files are there with those sizes), sums up rows, writes the manifest, syncs files and folders, renames.
  // After an error the working folder is still there: Abandon it. parts[i] belongs to shard i.
  absl::StatusOr<CheckpointEntry> Commit(uint64_t id, const CheckpointManifest& head, const std::vector<ShardPart>& parts);
  // Removes the working folder. Not there: fine. kInvalidArgument: it does not carry our marker, and stays.
  absl::Status Abandon(uint64_t id);

  // Complete ones, oldest first. Those whose manifest cannot be used are left out and told in `skipped` ("C000007: …").
  absl::StatusOr<std::vector<CheckpointEntry>> List(std::vector<std::string>* skipped);
  // The newest whose records and file sizes agree (CheckpointReader::Verify::kRecords). kNotFound: none is good.
  absl::StatusOr<CheckpointEntry> NewestGood(std::vector<std::string>* skipped);

  // Removes working folders that carry our marker, except `keep` (0: none). Others are left alone and named in `log`.
  // Also what merges of chains left: no writer may be at work here.
  absl::Status CleanUp(uint64_t keep, std::vector<std::string>* log);
  // The same without those merges, so that writers may be at work.
  absl::Status RemoveUnfinished(uint64_t keep, std::vector<std::string>* log);
  // Removes what the policy does not keep. Never the newest, never the only good one, never `in_use` ids, none that a
  // reader holds. A removed one is renamed first, so that it is never half there under its name.
  absl::Status Retain(const RetentionPolicy& policy, const std::vector<uint64_t>& in_use, std::vector<std::string>* log);

 private:
  CheckpointRoot(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  absl::StatusOr<bool> RemoveOne(const CheckpointEntry& entry);  // false: somebody reads it

  FileSystem& fs_;
  std::string path_;
  std::string token_;
};

// For servers: does `root` (from an order) hold this token? kFailedPrecondition says what to mount where.
absl::Status CheckRootToken(FileSystem& fs, const std::string& root, const std::string& token);
enum class CheckpointCheck {
  kRecords,  // records, and the sizes of all files: quick, whatever the size
  kFiles,    // and the hash of every file: reads all of it once
};
// For tools: RUN, RUN/checkpoints, RUN/checkpoints/C000007 → the folder of one checkpoint: of a run the newest good one;
// `skipped` says why newer ones are not. kNotFound: there is none. kDataLoss: one is named (kFiles) and not good, or
// the path cannot be looked into.
absl::StatusOr<std::string> FindCheckpoint(FileSystem& fs, const std::string& path, CheckpointCheck check,
                                           std::vector<std::string>* skipped);
// Of a checkpoint among a run's own: why the run will never remove it (its mark is missing, damaged or another run's).
// Empty: it carries the mark, or stands elsewhere.
std::string WhatIsWrongWithMark(FileSystem& fs, std::string folder);

}  // namespace capstan
