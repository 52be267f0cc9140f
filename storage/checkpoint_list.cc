#include "storage/checkpoint_list.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include <fmt/core.h>

#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/folder_lock.h"

namespace capstan {

CheckpointEntry EntryOf(const CheckpointManifest& manifest, const std::string& folder) {
  CheckpointEntry entry;
  entry.id = manifest.id();
  entry.folder = folder;
  entry.version = manifest.version();
  entry.examples = manifest.examples();
  entry.full = manifest.kind() == CheckpointManifest::FULL;
  for (const StoredFile& file : manifest.file()) entry.bytes += file.bytes();
  // A NaN has no place in an order.
  if (manifest.has_metric() && !std::isnan(manifest.metric())) entry.metric = manifest.metric();
  entry.model_sha256 = manifest.model_sha256();
  return entry;
}

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& root,
                                                             std::vector<std::string>* skipped) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(root));
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names) {
    const absl::StatusOr<uint64_t> id = ParseCheckpointFolderName(name);
    if (!id.ok()) continue;
    const std::string folder = root + "/" + name;
    const absl::StatusOr<CheckpointManifest> manifest = ReadCheckpointManifest(fs, folder);
    if (!manifest.ok()) {
      const absl::StatusOr<bool> there = fs.Exists(folder);
      if (there.ok() && !*there) continue;  // removed just now
      skipped->push_back(fmt::format("{}: {}", name, std::string(manifest.status().message())));
      continue;
    }
    entries.push_back(EntryOf(*manifest, folder));
    entries.back().id = *id;  // where the owner looks for it, whatever a copied manifest says
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.id < b.id; });
  return entries;
}

// Whether all of it is as it was written, as far as `check` looks.
static absl::Status CheckOne(FileSystem& fs, const std::string& folder, CheckpointCheck check) {
  // Retention leaves it alone while it is read.
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<FolderLock> lock, FolderLock::Shared(folder + "/" + kManifestFile));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointRecords records, CheckpointRecords::Load(fs, folder));
  uint64_t bytes = 0;
  return check == CheckpointCheck::kRecords ? absl::OkStatus()
                                            : CheckFileHashes(fs, folder, records.manifest, {}, &bytes);
}

absl::StatusOr<CheckpointEntry> NewestGoodCheckpoint(FileSystem& fs, const std::string& root, CheckpointCheck check,
                                                     std::vector<std::string>* skipped) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> entries, ListCheckpoints(fs, root, skipped));
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const absl::Status status = CheckOne(fs, entry->folder, check);
    if (status.ok()) return *entry;
    const absl::StatusOr<bool> there = fs.Exists(entry->folder);
    if (there.ok() && !*there) continue;
    skipped->push_back(fmt::format("{}: {}", CheckpointFolderName(entry->id), std::string(status.message())));
  }
  std::string why;
  for (const std::string& line : *skipped) why += "; " + line;
  return NotFound(fmt::format("'{}' holds no good checkpoint{}", root, why));
}

std::vector<uint64_t> KeptBy(const RetentionPolicy& policy, const std::vector<CheckpointEntry>& entries) {
  std::vector<uint64_t> kept;
  const size_t last = std::max<size_t>(1, policy.keep_last);
  for (size_t i = entries.size() - std::min(last, entries.size()); i < entries.size(); ++i) {
    kept.push_back(entries[i].id);
  }
  std::vector<const CheckpointEntry*> judged;
  for (const CheckpointEntry& entry : entries) {
    if (policy.keep_every > 0 && entry.id % policy.keep_every == 0) kept.push_back(entry.id);
    if (entry.metric.has_value()) judged.push_back(&entry);
  }
  std::stable_sort(judged.begin(), judged.end(), [](const CheckpointEntry* a, const CheckpointEntry* b) {
    return *a->metric > *b->metric;
  });
  for (size_t i = 0; i < std::min<size_t>(policy.keep_best, judged.size()); ++i) kept.push_back(judged[i]->id);
  return kept;
}

// Why there is no checkpoint at `path`, where neither a manifest nor a root's file is.
static absl::Status WhyNoCheckpoint(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool there, fs.Exists(path));
  if (!there) return NotFound(fmt::format("'{}' does not exist", path));
  for (const std::string& root : {path + "/checkpoints", path}) {
    const absl::StatusOr<std::vector<std::string>> names = fs.List(root);
    if (absl::IsNotFound(names.status()) || absl::IsInvalidArgument(names.status())) continue;
    CAPSTAN_RETURN_IF_ERROR(names.status());
    for (auto name = names->rbegin(); name != names->rend(); ++name) {
      if (!ParseCheckpointFolderName(*name).ok()) continue;
      return DataLoss(fmt::format("'{}' has checkpoints, but not the file capstan-root.pb, which says whose they are: "
                                  "restore it from a copy, or name a checkpoint: {}/{}",
                                  root, root, *name));
    }
  }
  return NotFound(fmt::format("'{}' is no checkpoint: wanted a run's folder, its checkpoints folder, or one of the "
                              "C000001 … in it", path));
}

absl::StatusOr<std::string> FindCheckpoint(FileSystem& fs, const std::string& path, CheckpointCheck check,
                                           std::vector<std::string>* skipped) {
  const auto unseen = [&path](const absl::Status& status) {
    return DataLoss(fmt::format("'{}' cannot be looked into: {}", path, std::string(status.message())));
  };
  const absl::StatusOr<bool> single = fs.Exists(path + "/" + kManifestFile);
  if (!single.ok()) return unseen(single.status());
  if (*single) {
    if (check == CheckpointCheck::kFiles) CAPSTAN_RETURN_IF_ERROR(CheckOne(fs, path, check));
    return path;
  }
  for (const std::string& root : {path + "/checkpoints", path}) {
    const absl::StatusOr<bool> is_root = fs.Exists(root + "/capstan-root.pb");
    if (!is_root.ok()) return unseen(is_root.status());
    if (!*is_root) continue;
    const absl::StatusOr<CheckpointEntry> newest = NewestGoodCheckpoint(fs, root, check, skipped);
    if (!newest.ok()) return newest.status();
    return newest->folder;
  }
  const absl::Status why = WhyNoCheckpoint(fs, path);
  return absl::IsNotFound(why) || absl::IsDataLoss(why) ? why : unseen(why);
}

}  // namespace capstan
