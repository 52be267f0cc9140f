#include "storage/root_files.h"

#include <utility>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxSmallRecordBytes = 4096;

template <typename Proto>
absl::StatusOr<Proto> ReadSmallRecord(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(path));
  if (info.kind != FileInfo::Kind::kFile || info.bytes > kMaxSmallRecordBytes)
    return DataLoss(fmt::format("'{}' is damaged: it is no file of a few bytes", path));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs, path, kMaxSmallRecordBytes));
  Proto proto;
  if (!proto.ParseFromString(bytes) || proto.token().empty())
    return DataLoss(fmt::format("'{}' is damaged: its checksum fits, its contents cannot be read", path));
  return proto;
}

std::string MarkerPath(const std::string& folder) { return folder + "/" + kMarkerFile; }

bool IsMarkerName(const std::string& name) {
  return name == kMarkerFile || name == std::string(kMarkerFile) + ".tmp";
}

}  // namespace

std::optional<RootName> ParseRootName(std::string_view name) {
  RootName result;
  if (name.ends_with(kWorkingEnding)) result.kind = RootName::Kind::kWorking;
  if (name.ends_with(kRemovedEnding)) result.kind = RootName::Kind::kRemoved;
  if (result.kind != RootName::Kind::kComplete) name.remove_suffix(std::string_view(kWorkingEnding).size());
  const absl::StatusOr<uint64_t> id = ParseCheckpointFolderName(name);
  if (!id.ok() || *id > kHighestId) return std::nullopt;
  result.id = *id;
  return result;
}

absl::StatusOr<RootRecord> ReadRootRecord(FileSystem& fs, const std::string& root) {
  return ReadSmallRecord<RootRecord>(fs, root + "/" + kRootFile);
}

absl::Status WriteRootRecord(FileSystem& fs, const std::string& root, const RootRecord& record) {
  return WriteFileAtomically(fs, root + "/" + kRootFile, FrameRecord(record.SerializeAsString()));
}

absl::Status WriteMarker(FileSystem& fs, const std::string& folder, const std::string& token, uint64_t id) {
  FolderMarker marker;
  marker.set_token(token);
  marker.set_id(id);
  return WriteFileAtomically(fs, MarkerPath(folder), FrameRecord(marker.SerializeAsString()));
}

absl::StatusOr<std::string> TokenOfMarker(FileSystem& fs, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const FolderMarker marker, ReadSmallRecord<FolderMarker>(fs, MarkerPath(folder)));
  return marker.token();
}

absl::StatusOr<std::string> WhyNotOurs(FileSystem& fs, const std::string& folder, const std::string& token,
                                       uint64_t id) {
  CAPSTAN_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(folder));
  if (info.kind == FileInfo::Kind::kLink) return std::string("it is a symbolic link");
  if (info.kind != FileInfo::Kind::kFolder) return std::string("it is no folder");
  const absl::StatusOr<FolderMarker> marker = ReadSmallRecord<FolderMarker>(fs, MarkerPath(folder));
  if (marker.ok()) {
    if (marker->token() != token) return std::string("it was made for another root");
    if (marker->id() != id) return fmt::format("it was made as {}", CheckpointFolderName(marker->id()));
    return std::string();
  }
  if (!absl::IsNotFound(marker.status()) && !absl::IsDataLoss(marker.status())) return marker.status();
  // A power cut may leave the folder's name without the marker's, or the marker's without its bytes.
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    if (IsMarkerName(name)) continue;
    return absl::IsNotFound(marker.status()) ? fmt::format("it has no {}", kMarkerFile)
                                             : fmt::format("its {} is damaged", kMarkerFile);
  }
  return std::string();
}

absl::Status RemoveOurFolder(FileSystem& fs, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    if (!IsMarkerName(name)) CAPSTAN_RETURN_IF_ERROR(RemoveTree(fs, folder + "/" + name));
  }
  // The disk may forget removals in any order; the marker's must be the last that it remembers.
  CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(folder));
  return RemoveTree(fs, folder);
}

void Tell(std::vector<std::string>* list, std::string text) {
  if (list != nullptr) list->push_back(std::move(text));
}

}  // namespace capstan
