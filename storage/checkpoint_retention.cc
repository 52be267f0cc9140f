// What a root removes: unfinished checkpoints, and those that the policy does not keep.
#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/folder_lock.h"
#include "storage/root_files.h"

namespace capstan {
namespace {

// `entries`: oldest first.
std::set<uint64_t> KeptByPolicy(const RetentionPolicy& policy, const std::vector<CheckpointEntry>& entries) {
  std::set<uint64_t> kept;
  const size_t last = std::min<size_t>(std::max<uint32_t>(policy.keep_last, 1), entries.size());
  for (size_t i = entries.size() - last; i < entries.size(); ++i) kept.insert(entries[i].id);
  std::vector<const CheckpointEntry*> ranked;
  for (const CheckpointEntry& entry : entries) {
    if (policy.keep_every > 0 && entry.id % policy.keep_every == 0) kept.insert(entry.id);
    if (entry.metric.has_value()) ranked.push_back(&entry);
  }
  std::sort(ranked.begin(), ranked.end(), [](const CheckpointEntry* a, const CheckpointEntry* b) {
    return *a->metric != *b->metric ? *a->metric > *b->metric : a->id > b->id;  // of equals the newer
  });
  for (size_t i = 0; i < std::min<size_t>(policy.keep_best, ranked.size()); ++i) kept.insert(ranked[i]->id);
  return kept;
}

}  // namespace

absl::Status CheckpointRoot::Abandon(uint64_t id) {
  const std::string folder = WorkingFolderOf(id);
  const absl::StatusOr<std::string> why_not = WhyNotOurs(fs_, folder, token_, id);
  if (absl::IsNotFound(why_not.status())) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(why_not.status());
  if (!why_not->empty()) return InvalidArgument(fmt::format("'{}' is not removed: {}", folder, *why_not));
  return RenameAndRemove(folder, id);
}

// Under its new name nobody takes it for what it was, and a writer that still runs makes no more files in it.
absl::Status CheckpointRoot::RenameAndRemove(const std::string& folder, uint64_t id) {
  const std::string removed = FolderOf(id) + kRemovedEnding;
  CAPSTAN_RETURN_IF_ERROR(fs_.Rename(folder, removed));
  CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(path_));
  CAPSTAN_RETURN_IF_ERROR(RemoveOurFolder(fs_, removed));
  return fs_.SyncFolder(path_);
}

absl::Status CheckpointRoot::CleanUp(uint64_t keep, std::vector<std::string>* log) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(path_));
  absl::Status first;
  for (const std::string& name : names) {  // "….del" sorts before "….tmp" of the same id
    const std::optional<RootName> parsed = ParseRootName(name);
    if (!parsed.has_value() || parsed->kind == RootName::Kind::kComplete || parsed->id == keep) continue;
    const std::string folder = path_ + "/" + name;
    const absl::StatusOr<std::string> why_not = WhyNotOurs(fs_, folder, token_, parsed->id);
    absl::Status status = why_not.status();
    if (status.ok() && !why_not->empty()) {
      Tell(log, fmt::format("{}: left alone, {}", name, *why_not));
      continue;
    }
    if (status.ok()) {
      status = parsed->kind == RootName::Kind::kWorking ? RenameAndRemove(folder, parsed->id)
                                                        : RemoveOurFolder(fs_, folder);
    }
    Tell(log, status.ok() ? fmt::format("{}: removed, it was not finished", name)
                          : fmt::format("{}: not removed, {}", name, std::string(status.message())));
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status CheckpointRoot::Retain(const RetentionPolicy& policy, const std::vector<uint64_t>& in_use,
                                    std::vector<std::string>* log) {
  std::vector<std::string> skipped;
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, List(&skipped));
  for (const std::string& text : skipped) Tell(log, "left alone: " + text);
  // Damaged ones in front do not count, or three of them would push out the last good one. They are left to a
  // person.
  while (!entries.empty()) {
    const absl::Status status = CheckpointRecords::Load(fs_, entries.back().folder).status();
    if (status.ok()) break;
    Tell(log, fmt::format("left alone: {}: {}", CheckpointFolderName(entries.back().id),
                          std::string(status.message())));
    entries.pop_back();
  }
  std::set<uint64_t> kept = KeptByPolicy(policy, entries);  // the newest good one among them
  kept.insert(in_use.begin(), in_use.end());
  absl::Status first;
  for (const CheckpointEntry& entry : entries) {
    if (kept.count(entry.id) > 0) continue;
    const absl::Status status = RemoveComplete(entry, log);
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status CheckpointRoot::RemoveComplete(const CheckpointEntry& entry, std::vector<std::string>* log) {
  const std::string name = CheckpointFolderName(entry.id);
  const absl::StatusOr<std::string> why_not = WhyNotOurs(fs_, entry.folder, token_, entry.id);
  CAPSTAN_RETURN_IF_ERROR(why_not.status());
  if (!why_not->empty()) {
    Tell(log, fmt::format("{}: left alone, {}", name, *why_not));
    return absl::OkStatus();
  }
  // Held until all is gone: who opened the manifest before it was renamed finds it locked, and who comes
  // later not there.
  const absl::StatusOr<std::unique_ptr<FolderLock>> lock =
      FolderLock::TryExclusive(entry.folder + "/" + kManifestFile);
  if (!lock.ok()) {
    Tell(log, fmt::format("{}: kept for now, {}", name, std::string(lock.status().message())));
    return absl::OkStatus();
  }
  const absl::Status status = RenameAndRemove(entry.folder, entry.id);
  Tell(log, status.ok() ? fmt::format("{}: removed", name)
                        : fmt::format("{}: not removed, {}", name, std::string(status.message())));
  return status;
}

}  // namespace capstan
