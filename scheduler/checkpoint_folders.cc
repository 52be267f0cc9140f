#include "scheduler/checkpoint_folders.h"

#include <ctime>
#include <utility>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"

namespace capstan {

absl::StatusOr<std::unique_ptr<CheckpointFolders>> CheckpointFolders::Open(
    FileSystem& fs, const std::string& path, const RetentionPolicy& policy,
    std::function<void(const std::string& line)> log) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointRoot> root, CheckpointRoot::Open(fs, path));
  std::vector<std::string> lines;
  const absl::Status clean = root->CleanUp(/*keep=*/0, &lines);
  for (const std::string& line : lines) log(line);
  if (!clean.ok()) log(fmt::format("cleaning up {}: {}", path, std::string(clean.message())));
  return std::unique_ptr<CheckpointFolders>(new CheckpointFolders(std::move(root), policy, std::move(log)));
}

absl::StatusOr<uint64_t> CheckpointFolders::Begin() {
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t id, root_->NextId());
  CAPSTAN_RETURN_IF_ERROR(root_->Begin(id));
  return id;
}

absl::StatusOr<CheckpointEntry> CheckpointFolders::Commit(uint64_t id, const CheckpointManifest& head,
                                                          const std::vector<ShardPart>& parts) {
  CheckpointManifest dated = head;
  dated.set_created(std::time(nullptr));  // for people only
  absl::StatusOr<CheckpointEntry> entry = root_->Commit(id, dated, parts);
  if (!entry.ok()) return entry;
  std::vector<std::string> lines;
  // Next time is soon enough where something cannot be removed. One is under way at a time: other unfinished folders
  // are of checkpoints that were given up while a shard's writer still made files in them.
  const absl::Status kept = root_->Retain(policy_, {id}, &lines);
  const absl::Status rest = root_->RemoveUnfinished(/*keep=*/0, &lines);
  for (const std::string& line : lines) {
    if (said_.insert(line).second) log_(line);
  }
  if (!kept.ok()) log_(fmt::format("removing old checkpoints: {}", std::string(kept.message())));
  if (!rest.ok()) log_(fmt::format("removing unfinished checkpoints: {}", std::string(rest.message())));
  return entry;
}

void CheckpointFolders::Abandon(uint64_t id) {
  const absl::Status removed = root_->Abandon(id);
  if (!removed.ok()) log_(fmt::format("checkpoint {}: {}", id, std::string(removed.message())));
}

}  // namespace capstan
