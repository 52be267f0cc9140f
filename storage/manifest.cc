#include <cstring>
#include <set>

#include <fmt/core.h>

#include "common/hash.h"
#include "common/partition_map.h"
#include "proto/control.pb.h"
#include "storage/job_tables.h"
#include "storage/model_store.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
constexpr size_t kDigestBytes = sizeof(Sha256Digest);

std::string ManifestPath(const std::string& folder) { return folder + "/manifest.pb"; }

template <typename T>
void AppendRaw(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Why this manifest describes no model; empty if it does.
std::string WhatIsWrong(const ModelManifest& manifest) {
  if (!manifest.has_rows() || !manifest.has_steps() || !manifest.has_examples()) {
    return "rows, steps or examples are not set";
  }
  if (manifest.model_sha256().size() != 2 * kDigestBytes) return "model_sha256 is no SHA-256 in hex";
  if (manifest.part_size() == 0) return "it lists no part";
  std::set<std::string> files;
  for (const ModelManifest::Part& part : manifest.part()) {
    // A name with a slash could lead out of the folder.
    if (part.file().empty() || part.file().find('/') != std::string::npos ||
        !files.insert(part.file()).second) {
      return fmt::format("the name of part '{}' is empty, no plain file name, or used twice", part.file());
    }
    if (part.sha256().size() != kDigestBytes) return fmt::format("part '{}' has no SHA-256", part.file());
  }
  const uint32_t partitions = manifest.job().config().cluster().partitions();
  if (absl::Status status = ShardMap::Even(partitions, 1).status(); !status.ok()) {
    return std::string(status.message());
  }
  return WhatIsWrongWithTables(manifest.job());
}

}  // namespace

std::string PartFileName(ShardId shard) { return fmt::format("part-{:05}.rows", shard); }

absl::Status WriteManifest(FileSystem& fs, const std::string& folder, const ModelManifest& manifest) {
  ModelManifest copy = manifest;
  copy.set_format(kModelFormat);
  copy.mutable_job()->clear_plan();
  if (const std::string wrong = WhatIsWrong(copy); !wrong.empty()) {
    return InvalidArgument(fmt::format("the manifest of '{}' is not written: {}", folder, wrong));
  }
  std::string bytes = copy.SerializeAsString();
  AppendRaw(&bytes, HashBytes(bytes));
  return WriteFileAtomically(fs, ManifestPath(folder), bytes);
}

absl::StatusOr<ModelManifest> ReadManifest(FileSystem& fs, const std::string& folder) {
  const std::string path = ManifestPath(folder);
  absl::StatusOr<std::string> bytes = ReadWholeFile(fs, path, kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status())) {
    return NotFound(
        fmt::format("'{}' is no saved model: it has no manifest.pb (the save did not finish, or the path "
                    "is wrong)",
                    folder));
  }
  if (!bytes.ok()) return bytes.status();
  uint64_t wanted = 0;
  if (bytes->size() < sizeof(wanted))
    return DataLoss(fmt::format("'{}' has only {} bytes", path, bytes->size()));
  const size_t body = bytes->size() - sizeof(wanted);
  std::memcpy(&wanted, bytes->data() + body, sizeof(wanted));
  ModelManifest manifest;
  if (HashBytes(bytes->data(), body) != wanted ||
      !manifest.ParseFromArray(bytes->data(), static_cast<int>(body))) {
    return DataLoss(
        fmt::format("'{}' is damaged: its checksum does not fit; restore the file from a copy", path));
  }
  if (manifest.format() != kModelFormat) {
    return InvalidArgument(
        fmt::format("'{}' has format {}, this release reads {}", path, manifest.format(), kModelFormat));
  }
  if (const std::string wrong = WhatIsWrong(manifest); !wrong.empty()) {
    return DataLoss(fmt::format("'{}' cannot be used: {}", path, wrong));
  }
  return manifest;
}

}  // namespace capstan
