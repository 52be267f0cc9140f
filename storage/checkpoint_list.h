// Which checkpoints a folder has. Reads only; for the folder's owner and for tools.
#pragma once

#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "storage/checkpoint_root.h"

namespace capstan {

class CheckpointManifest;

CheckpointEntry EntryOf(const CheckpointManifest& manifest, const std::string& folder);

// As CheckpointRoot::List and NewestGood, of the folder `root`.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& root,
                                                             std::vector<std::string>* skipped);
absl::StatusOr<CheckpointEntry> NewestGoodCheckpoint(FileSystem& fs, const std::string& root, CheckpointCheck check,
                                                     std::vector<std::string>* skipped);

// The ids that the policy keeps. entries: oldest first.
std::vector<uint64_t> KeptBy(const RetentionPolicy& policy, const std::vector<CheckpointEntry>& entries);

}  // namespace capstan
