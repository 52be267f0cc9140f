#include "storage/checkpoint_root.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/hash.h"
#include "common/random.h"
#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/root_files.h"

namespace capstan {
namespace {

// A root whose token file was damaged no longer knows which ids it has used; so many more were not used since
// the newest folder that is still there.
constexpr uint64_t kIdsSkippedAfterRepair = 1000;

std::string NewToken() {
  SystemRandom random;
  const uint64_t high = random.Next();
  const uint64_t low = random.Next();
  return fmt::format("{:016x}{:016x}", high, low);
}

uint64_t HighestIdIn(const std::vector<std::string>& names) {
  uint64_t highest = 0;
  for (const std::string& name : names) {
    if (const std::optional<RootName> parsed = ParseRootName(name)) highest = std::max(highest, parsed->id);
  }
  return highest;
}

absl::StatusOr<RootRecord> NewRoot(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(path));
  for (const std::string& name : names) {
    if (name == std::string(kRootFile) + ".tmp") continue;  // power was cut while the first token was written
    return InvalidArgument(
        fmt::format("'{}' holds '{}' and no {}: it is no folder of checkpoints. Give an empty folder or "
                    "one that does not exist",
                    path, name, kRootFile));
  }
  RootRecord record;
  record.set_token(NewToken());
  record.set_highest_id(0);
  return record;
}

// The token is also in the marker of every folder made here.
absl::StatusOr<RootRecord> RepairedRoot(FileSystem& fs, const std::string& path, const absl::Status& damage) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(path));
  RootRecord record;
  for (const std::string& name : names) {
    if (!ParseRootName(name).has_value()) continue;
    const absl::StatusOr<std::string> token = TokenOfMarker(fs, path + "/" + name);
    if (!token.ok()) continue;
    if (record.has_token() && record.token() != *token) {
      return DataLoss(
          fmt::format("{}; the folders beside it were made for different roots, so that it cannot be made "
                      "again: move those that do not belong here away",
                      std::string(damage.message())));
    }
    record.set_token(*token);
  }
  if (!record.has_token()) record.set_token(NewToken());
  record.set_highest_id(HighestIdIn(names) + kIdsSkippedAfterRepair);
  return record;
}

absl::StatusOr<ShardRecord> ReadReportedRecord(FileSystem& fs, const std::string& path,
                                               const ShardPart& part) {
  CAPSTAN_ASSIGN_OR_RETURN(std::string framed, ReadWholeFile(fs, path, kMaxRecordBytes));
  if (framed.size() != part.record_bytes) {
    return DataLoss(
        fmt::format("'{}' has {} bytes, its shard reported {}", path, framed.size(), part.record_bytes));
  }
  if (ToBytes(HashBytes128(framed.data(), framed.size())) != part.record_xxh3)
    return DataLoss(fmt::format("'{}' has not the hash that its shard reported", path));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, UnframeRecord(std::move(framed), path));
  ShardRecord record;
  if (!record.ParseFromString(bytes)) return DataLoss(fmt::format("'{}' is no record of a shard", path));
  return record;
}

absl::Status CheckStoredFile(FileSystem& fs, const std::string& folder, const StoredFile& file) {
  if (!IsPlainFileName(file.name()))
    return DataLoss(fmt::format("a shard's record lists '{}', which is no name of a file here", file.name()));
  const std::string path = folder + "/" + file.name();
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (absl::IsNotFound(info.status()))
    return DataLoss(fmt::format("'{}' is missing, which a shard reported", path));
  CAPSTAN_RETURN_IF_ERROR(info.status());
  if (info->kind == FileInfo::Kind::kFile && info->bytes == file.bytes()) return absl::OkStatus();
  return DataLoss(fmt::format("'{}' {}, its shard reported {} bytes", path,
                              info->kind == FileInfo::Kind::kFile ? fmt::format("has {} bytes", info->bytes)
                                                                  : std::string("is no ordinary file"),
                              file.bytes()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointRoot>> CheckpointRoot::Open(FileSystem& fs,
                                                                     const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(MakeFoldersDurably(fs, path));
  absl::StatusOr<RootRecord> record = ReadRootRecord(fs, path);
  if (!record.ok()) {
    if (!absl::IsNotFound(record.status()) && !absl::IsDataLoss(record.status())) return record.status();
    record = absl::IsNotFound(record.status()) ? NewRoot(fs, path) : RepairedRoot(fs, path, record.status());
    CAPSTAN_RETURN_IF_ERROR(record.status());
    CAPSTAN_RETURN_IF_ERROR(WriteRootRecord(fs, path, *record));
  }
  std::unique_ptr<CheckpointRoot> root(new CheckpointRoot(fs, path));
  root->token_ = record->token();
  root->highest_id_ = record->highest_id();
  return root;
}

std::string CheckpointRoot::FolderOf(uint64_t id) const { return path_ + "/" + CheckpointFolderName(id); }
std::string CheckpointRoot::WorkingFolderOf(uint64_t id) const { return FolderOf(id) + kWorkingEnding; }

absl::StatusOr<uint64_t> CheckpointRoot::NextId() {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(path_));
  return std::max(highest_id_, HighestIdIn(names)) + 1;
}

absl::Status CheckpointRoot::Begin(uint64_t id) {
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t next, NextId());
  if (id < next || id > kHighestId) {
    return InvalidArgument(
        fmt::format("checkpoint {} cannot begin in '{}': the next one is {}", id, path_, next));
  }
  // Before the folder: the id counts as used whatever becomes of it. An unknown outcome counts as used, too.
  highest_id_ = id;
  RootRecord record;
  record.set_token(token_);
  record.set_highest_id(id);
  CAPSTAN_RETURN_IF_ERROR(WriteRootRecord(fs_, path_, record));
  const std::string folder = WorkingFolderOf(id);
  CAPSTAN_RETURN_IF_ERROR(fs_.MakeFolders(folder));
  return WriteMarker(fs_, folder, token_, id);
}

absl::StatusOr<CheckpointEntry> CheckpointRoot::Commit(uint64_t id, const CheckpointManifest& head,
                                                       const std::vector<ShardPart>& parts) {
  absl::StatusOr<CheckpointEntry> entry = CommitUnnamed(id, head, parts);
  if (entry.ok()) return entry;
  return While(fmt::format("committing checkpoint {}", CheckpointFolderName(id)), entry.status());
}

absl::StatusOr<CheckpointEntry> CheckpointRoot::CommitUnnamed(uint64_t id, const CheckpointManifest& head,
                                                              const std::vector<ShardPart>& parts) {
  const std::string working = WorkingFolderOf(id);
  CAPSTAN_ASSIGN_OR_RETURN(const std::string why_not, WhyNotOurs(fs_, working, token_, id));
  if (!why_not.empty()) return InvalidArgument(fmt::format("'{}' is not ours: {}", working, why_not));

  CheckpointManifest manifest = head;
  manifest.set_format(kCheckpointFormat);
  manifest.set_id(id);
  manifest.clear_file();
  uint64_t rows = 0;
  std::vector<ShardRecord> shards;
  for (uint32_t shard = 0; shard < parts.size(); ++shard) {
    const std::string name = ShardFolderName(shard) + "/" + kShardRecordFile;
    CAPSTAN_ASSIGN_OR_RETURN(ShardRecord record, ReadReportedRecord(fs_, working + "/" + name, parts[shard]));
    StoredFile& file = *manifest.add_file();
    file.set_name(name);
    file.set_bytes(parts[shard].record_bytes);
    file.set_xxh3(parts[shard].record_xxh3);
    for (const StoredLayer& layer : record.layer()) {
      for (const StoredFile& stored : layer.file()) {
        CAPSTAN_RETURN_IF_ERROR(CheckStoredFile(fs_, working, stored));
        *manifest.add_file() = stored;
      }
    }
    for (const PartitionRows& part : record.rows()) rows += part.rows();
    shards.push_back(std::move(record));
  }
  manifest.set_rows(rows);
  // What its readers would refuse is not committed.
  if (const std::string wrong = WhatIsWrong(manifest, shards); !wrong.empty()) return DataLoss(wrong);
  CAPSTAN_RETURN_IF_ERROR(Publish(manifest, static_cast<uint32_t>(parts.size())));
  return EntryOf(manifest, FolderOf(id));
}

// The shards' writers have synced their files; the names of all, the manifest (with it its folder), and at
// last the folder's own name are synced here.
absl::Status CheckpointRoot::Publish(const CheckpointManifest& manifest, uint32_t shards) {
  const std::string working = WorkingFolderOf(manifest.id());
  for (uint32_t shard = 0; shard < shards; ++shard) {
    CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(working + "/" + ShardFolderName(shard)));
  }
  CAPSTAN_RETURN_IF_ERROR(
      WriteFileAtomically(fs_, working + "/" + kManifestFile, FrameRecord(manifest.SerializeAsString())));
  CAPSTAN_RETURN_IF_ERROR(fs_.Rename(working, FolderOf(manifest.id())));
  return fs_.SyncFolder(path_);
}

absl::Status CheckRootToken(FileSystem& fs, const std::string& root, const std::string& token) {
  const auto refuse = [](const std::string& text) {
    return absl::Status(absl::StatusCode::kFailedPrecondition, text);
  };
  const absl::StatusOr<RootRecord> record = ReadRootRecord(fs, root);
  if (absl::IsNotFound(record.status())) {
    return refuse(
        fmt::format("this machine does not see the folder of checkpoints '{}' (no {} there): mount the file "
                    "system of the scheduler's machine at that path, or name another folder",
                    root, kRootFile));
  }
  CAPSTAN_RETURN_IF_ERROR(record.status());
  if (record->token() == token) return absl::OkStatus();
  return refuse(
      fmt::format("'{}' on this machine is another folder than on the scheduler's (token {}, not {}): mount "
                  "the same file system at that path on both",
                  root, record->token(), token));
}

}  // namespace capstan
