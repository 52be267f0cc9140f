// The small files by which a root knows itself and the folders it made. For checkpoint_root.h's own sources.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "storage/checkpoint_root.h"

namespace capstan {

class RootRecord;

inline constexpr char kRootFile[] = "capstan-root.pb";
inline constexpr char kMarkerFile[] = "capstan-folder.pb";
inline constexpr char kWorkingEnding[] = ".tmp";
inline constexpr char kRemovedEnding[] = ".del";
inline constexpr uint64_t kHighestId = 999'999'999'999'999;  // a folder above is none of ours

// A name in a root: of a checkpoint, complete or not.
struct RootName {
  enum class Kind { kComplete, kWorking, kRemoved };
  uint64_t id = 0;
  Kind kind = Kind::kComplete;
};
std::optional<RootName> ParseRootName(std::string_view name);

// kDataLoss: it is there and cannot be used. kNotFound: there is none.
absl::StatusOr<RootRecord> ReadRootRecord(FileSystem& fs, const std::string& root);
absl::Status WriteRootRecord(FileSystem& fs, const std::string& root, const RootRecord& record);

absl::Status WriteMarker(FileSystem& fs, const std::string& folder, const std::string& token, uint64_t id);
// Whether this root made the folder: it has the marker with this token and id, or, left by a crash while it
// was made or removed, nothing that anybody could miss. Empty if so, else why not.
absl::StatusOr<std::string> WhyNotOurs(FileSystem& fs, const std::string& folder, const std::string& token,
                                       uint64_t id);
// The token in the folder's marker, if it has a good one.
absl::StatusOr<std::string> TokenOfMarker(FileSystem& fs, const std::string& folder);
// Removes a folder that is ours (WhyNotOurs); the marker goes last, so that it is still ours after a crash.
absl::Status RemoveOurFolder(FileSystem& fs, const std::string& folder);

// CheckpointRoot::List and NewestGood, for roots of which only the path is known.
absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(FileSystem& fs, const std::string& root,
                                                             std::vector<std::string>* skipped);
absl::StatusOr<CheckpointEntry> FindNewestGood(FileSystem& fs, const std::string& root,
                                               std::vector<std::string>* skipped);

// `list` may be null.
void Tell(std::vector<std::string>* list, std::string text);

}  // namespace capstan
