// Which checkpoints a root has, and which of them can be used. Reads only.
#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/root_files.h"

namespace capstan {
namespace {

absl::StatusOr<CheckpointEntry> ReadEntry(FileSystem& fs, const std::string& folder, uint64_t id) {
  CAPSTAN_ASSIGN_OR_RETURN(const FileInfo info, fs.Stat(folder));
  if (info.kind == FileInfo::Kind::kLink) {
    return InvalidArgument(
        fmt::format("'{}' is a symbolic link, which is not followed here; name the folder itself", folder));
  }
  if (info.kind != FileInfo::Kind::kFolder) return InvalidArgument(fmt::format("'{}' is no folder", folder));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ReadCheckpointManifest(fs, folder));
  if (manifest.id() != id) {
    return DataLoss(fmt::format("'{}' holds the manifest of {}; give the folder its name back", folder,
                                CheckpointFolderName(manifest.id())));
  }
  return EntryOf(manifest, folder);
}

bool StripSlashes(std::string* path) {
  while (path->size() > 1 && path->back() == '/') path->pop_back();
  return !path->empty();
}

// Whether the folder looks like a root: for choosing between RUN and RUN/checkpoints.
absl::StatusOr<bool> IsRoot(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<std::vector<std::string>> names = fs.List(path);
  if (absl::IsNotFound(names.status())) return false;
  CAPSTAN_RETURN_IF_ERROR(names.status());
  return std::any_of(names->begin(), names->end(), [](const std::string& name) {
    return name == kRootFile || ParseRootName(name).has_value();
  });
}

}  // namespace

CheckpointEntry EntryOf(const CheckpointManifest& manifest, const std::string& folder) {
  CheckpointEntry entry;
  entry.id = manifest.id();
  entry.folder = folder;
  entry.version = manifest.version();
  entry.examples = manifest.examples();
  entry.full = manifest.kind() == CheckpointManifest::FULL;
  for (const StoredFile& file : manifest.file()) entry.bytes += file.bytes();
  if (manifest.has_metric() && !std::isnan(manifest.metric())) entry.metric = manifest.metric();
  return entry;
}

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& root,
                                                             std::vector<std::string>* skipped) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(root));
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    const std::optional<RootName> parsed = ParseRootName(name);
    if (!parsed.has_value() || parsed->kind != RootName::Kind::kComplete) continue;
    absl::StatusOr<CheckpointEntry> entry = ReadEntry(fs, root + "/" + name, parsed->id);
    if (entry.ok()) {
      entries.push_back(*std::move(entry));
    } else {
      Tell(skipped, fmt::format("{}: {}", name, std::string(entry.status().message())));
    }
  }
  // By number: names of more than six digits sort before shorter ones.
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.id < b.id; });
  return entries;
}

absl::StatusOr<CheckpointEntry> FindNewestGood(FileSystem& fs, const std::string& root,
                                               std::vector<std::string>* skipped) {
  std::vector<std::string> problems;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs, root, &problems));
  std::optional<CheckpointEntry> found;
  for (auto entry = entries.rbegin(); entry != entries.rend() && !found.has_value(); ++entry) {
    const absl::Status status = CheckpointRecords::Load(fs, entry->folder).status();
    if (status.ok()) {
      found = *entry;
    } else {
      problems.push_back(
          fmt::format("{}: {}", CheckpointFolderName(entry->id), std::string(status.message())));
    }
  }
  for (const std::string& problem : problems) Tell(skipped, problem);
  if (found.has_value()) return *std::move(found);
  if (problems.empty()) return NotFound(fmt::format("'{}' holds no complete checkpoint", root));
  return NotFound(
      fmt::format("'{}' holds no checkpoint that can be used; {}{}", root, problems.front(),
                  problems.size() == 1 ? "" : fmt::format(" (and {} more)", problems.size() - 1)));
}

absl::StatusOr<std::vector<CheckpointEntry>> CheckpointRoot::List(std::vector<std::string>* skipped) {
  return ListCheckpoints(fs_, path_, skipped);
}

absl::StatusOr<CheckpointEntry> CheckpointRoot::NewestGood(std::vector<std::string>* skipped) {
  return FindNewestGood(fs_, path_, skipped);
}

absl::StatusOr<std::string> FindCheckpoint(FileSystem& fs, const std::string& given,
                                           std::vector<std::string>* skipped) {
  std::string path = given;
  if (!StripSlashes(&path)) return InvalidArgument("the path of a checkpoint is empty");
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::optional<RootName> parsed = ParseRootName(name);
  if (parsed.has_value() && parsed->kind != RootName::Kind::kComplete) {
    return NotFound(fmt::format("'{}' is a checkpoint that was not finished or is being removed", path));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const bool exists, fs.Exists(path));
  if (!exists)
    return NotFound(
        fmt::format("'{}' does not exist; give RUN, RUN/checkpoints or a checkpoint's folder", path));
  CAPSTAN_ASSIGN_OR_RETURN(const bool has_manifest, fs.Exists(path + "/" + kManifestFile));
  if (has_manifest || parsed.has_value()) return path;  // whether it is good, its reader says
  for (const std::string& root : {path, path + "/checkpoints"}) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool is_root, IsRoot(fs, root));
    if (!is_root) continue;
    CAPSTAN_ASSIGN_OR_RETURN(const CheckpointEntry entry, FindNewestGood(fs, root, skipped));
    return entry.folder;
  }
  return NotFound(
      fmt::format("'{}' holds no checkpoint; give RUN, RUN/checkpoints or a checkpoint's folder", path));
}

}  // namespace capstan
