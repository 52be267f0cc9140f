#include "storage/checkpoint_records.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "common/hash.h"
#include "storage/checkpoint_format.h"

namespace capstan {
namespace {

constexpr size_t kHashPieceBytes = size_t{1} << 20;

template <typename Proto>
absl::StatusOr<Proto> ParseRecord(const std::string& framed, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, UnframeRecord(framed, path));
  Proto proto;
  if (!proto.ParseFromString(bytes))
    return DataLoss(fmt::format("'{}' is damaged: its checksum fits, its contents cannot be read", path));
  return proto;
}

absl::Status CheckFormat(const CheckpointManifest& manifest, const std::string& path) {
  const uint32_t format = manifest.format();
  if (format == kCheckpointFormat) return absl::OkStatus();
  if (format == 0) return DataLoss(fmt::format("'{}' is damaged: it is no manifest", path));
  const std::string text =
      fmt::format("'{}' has format {}, this release reads {}", path, format, kCheckpointFormat);
  if (format < kCheckpointFormat) return InvalidArgument(text + ": it is a saved model, not a checkpoint");
  return InvalidArgument(
      fmt::format("{}: it was made by a newer release ({}); use that one", text, manifest.written_by()));
}

// The file must be there, and as long as the manifest says.
absl::Status CheckSize(FileSystem& fs, const std::string& folder, const StoredFile& file) {
  const std::string path = folder + "/" + file.name();
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> opened = fs.Open(path);
  if (absl::IsNotFound(opened.status()) || absl::IsInvalidArgument(opened.status())) {
    return DataLoss(
        fmt::format("'{}' is missing, which the manifest lists; use another checkpoint or restore "
                    "the file from a copy",
                    path));
  }
  if (!opened.ok()) return opened.status();
  if ((*opened)->size() == file.bytes()) return absl::OkStatus();
  return DataLoss(
      fmt::format("'{}' has {} bytes, the manifest says {}; use another checkpoint or restore the file "
                  "from a copy",
                  path, (*opened)->size(), file.bytes()));
}

absl::StatusOr<ShardRecord> ReadShardRecord(FileSystem& fs, const std::string& folder,
                                            const StoredFile& file) {
  const std::string path = folder + "/" + file.name();
  CAPSTAN_ASSIGN_OR_RETURN(const std::string framed, ReadWholeFile(fs, path, kMaxRecordBytes));
  if (ToBytes(HashBytes128(framed.data(), framed.size())) != file.xxh3())
    return DataLoss(
        fmt::format("'{}' is damaged or of another checkpoint: its hash is not the manifest's", path));
  return ParseRecord<ShardRecord>(framed, path);
}

}  // namespace

std::string FrameRecord(const std::string& bytes) {
  const uint64_t sum = HashBytes(bytes);
  std::string framed = bytes;
  framed.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return framed;
}

absl::StatusOr<std::string> UnframeRecord(std::string framed, const std::string& path) {
  uint64_t wanted = 0;
  if (framed.size() < sizeof(wanted))
    return DataLoss(fmt::format("'{}' is damaged: it has only {} bytes", path, framed.size()));
  const size_t body = framed.size() - sizeof(wanted);
  std::memcpy(&wanted, framed.data() + body, sizeof(wanted));
  if (HashBytes(framed.data(), body) != wanted)
    return DataLoss(
        fmt::format("'{}' is damaged: its checksum does not fit; restore the file from a copy", path));
  framed.resize(body);
  return framed;
}

absl::StatusOr<std::string> ReadRecord(FileSystem& fs, const std::string& path, uint64_t max_bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(std::string framed, ReadWholeFile(fs, path, max_bytes));
  return UnframeRecord(std::move(framed), path);
}

absl::StatusOr<std::string> HashFile(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs.Open(path));
  std::string piece(std::min<uint64_t>(kHashPieceBytes, file->size()), '\0');
  StreamHash128 hash;
  for (uint64_t at = 0; at < file->size();) {
    const size_t size = std::min<uint64_t>(piece.size(), file->size() - at);
    CAPSTAN_RETURN_IF_ERROR(file->Read(at, piece.data(), size));
    hash.Update(piece.data(), size);
    at += size;
  }
  return ToBytes(hash.Value());
}

absl::Status CheckFileHashes(FileSystem& fs, const std::string& folder, const CheckpointManifest& manifest,
                             const std::function<void(uint64_t bytes)>& progress, uint64_t* bytes) {
  for (const StoredFile& file : manifest.file()) {
    const std::string path = folder + "/" + file.name();
    CAPSTAN_ASSIGN_OR_RETURN(const std::string hash, HashFile(fs, path));
    if (hash != file.xxh3()) {
      return DataLoss(
          fmt::format("'{}' is damaged: its hash is not the manifest's; use another checkpoint or restore "
                      "the file from a copy",
                      path));
    }
    *bytes += file.bytes();
    if (progress) progress(*bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(FileSystem& fs, const std::string& folder) {
  const std::string path = folder + "/" + kManifestFile;
  const absl::StatusOr<std::string> framed = ReadWholeFile(fs, path, kMaxRecordBytes);
  if (absl::IsNotFound(framed.status())) {
    return NotFound(
        fmt::format("'{}' is no checkpoint: it has no {} (it was never finished, or the path is wrong)",
                    folder, kManifestFile));
  }
  if (!framed.ok()) return framed.status();
  CAPSTAN_ASSIGN_OR_RETURN(CheckpointManifest manifest, ParseRecord<CheckpointManifest>(*framed, path));
  CAPSTAN_RETURN_IF_ERROR(CheckFormat(manifest, path));
  if (const std::string wrong = WhatIsWrong(manifest); !wrong.empty())
    return DataLoss(fmt::format("'{}' cannot be used: {}", path, wrong));
  return manifest;
}

absl::StatusOr<CheckpointRecords> CheckpointRecords::Load(FileSystem& fs, const std::string& folder) {
  CheckpointRecords records;
  CAPSTAN_ASSIGN_OR_RETURN(records.manifest, ReadCheckpointManifest(fs, folder));
  for (const StoredFile& file : records.manifest.file()) CAPSTAN_RETURN_IF_ERROR(CheckSize(fs, folder, file));
  // WhatIsWrong has seen that the shards are 0 … n-1.
  std::vector<const StoredFile*> files;
  for (const StoredFile& file : records.manifest.file()) {
    if (file.name().ends_with(std::string("/") + kShardRecordFile)) files.push_back(&file);
  }
  for (uint32_t shard = 0; shard < files.size(); ++shard) {
    const std::string name = ShardFolderName(shard) + "/" + kShardRecordFile;
    const auto found =
        std::find_if(files.begin(), files.end(), [&](const StoredFile* f) { return f->name() == name; });
    CAPSTAN_ASSIGN_OR_RETURN(ShardRecord record, ReadShardRecord(fs, folder, **found));
    records.shards.push_back(std::move(record));
  }
  if (const std::string wrong = WhatIsWrong(records.manifest, records.shards); !wrong.empty())
    return DataLoss(fmt::format("the checkpoint in '{}' cannot be used: {}", folder, wrong));
  return records;
}

}  // namespace capstan
