#include <algorithm>
#include <set>

#include <fmt/core.h>

#include "storage/checkpoint_root.h"
#include "tools/inspect/opened.h"

namespace capstan {
namespace {

struct LsLine {
  std::string name;
  std::string wrong;  // empty: good
  CheckpointManifest manifest;
  uint64_t own_bytes = 0;  // of the files that are new in it
  uint64_t all_bytes = 0;
  size_t layers = 0;  // of the shard that has most
};

LsLine LineOf(FileSystem& fs, const std::string& folder, const std::string& name) {
  LsLine line;
  line.name = name;
  const absl::StatusOr<CheckpointRecords> records = CheckpointRecords::Load(fs, folder);
  if (!records.ok()) {
    line.wrong = std::string(records.status().message());
    return line;
  }
  line.manifest = records->manifest;
  std::set<std::string> ours;
  for (const ShardRecord& shard : records->shards) {
    line.layers = std::max<size_t>(line.layers, static_cast<size_t>(shard.layer_size()));
    for (const StoredLayer& layer : shard.layer()) {
      for (const StoredFile& file : layer.file()) {
        if (layer.checkpoint() == line.manifest.id()) line.own_bytes += file.bytes();
      }
    }
  }
  for (const StoredFile& file : line.manifest.file()) line.all_bytes += file.bytes();
  return line;
}

Json JsonOf(const LsLine& line) {
  Json json;
  json["name"] = line.name;
  json["good"] = line.wrong.empty();
  if (!line.wrong.empty()) {
    json["wrong"] = line.wrong;
    return json;
  }
  const CheckpointManifest& m = line.manifest;
  json["id"] = m.id();
  json["created"] = m.created();
  json["step"] = m.version();
  json["epoch"] = m.epoch();
  json["examples"] = m.examples();
  json["rows"] = m.rows();
  json["new_bytes"] = line.own_bytes;
  json["bytes"] = line.all_bytes;
  json["full"] = m.kind() == CheckpointManifest::FULL;
  json["layers"] = line.layers;
  json["reason"] = m.reason();
  if (m.has_metric()) json["metric"] = m.metric();
  return json;
}

std::string TextOf(const LsLine& line) {
  if (!line.wrong.empty()) return fmt::format("{}  not usable: {}\n", line.name, line.wrong);
  const CheckpointManifest& m = line.manifest;
  return fmt::format(
      "{}  {}  step {:>8}  epoch {:>3}  {:>12} examples  {:>12} rows  {:>9} new of {:>9}  {:<11} "
      "{:>2} layer{}  {}\n",
      line.name, When(m.created()), m.version(), m.epoch(), m.examples(), m.rows(), Bytes(line.own_bytes),
      Bytes(line.all_bytes), m.kind() == CheckpointManifest::FULL ? "full" : "incremental", line.layers,
      line.layers == 1 ? " " : "s", m.reason());
}

// The folder that holds C000001 …, or of a single checkpoint its parent with that one name.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> FoldersOf(FileSystem& fs, const std::string& path) {
  std::vector<std::pair<std::string, std::string>> folders;
  CAPSTAN_ASSIGN_OR_RETURN(const bool single, fs.Exists(path + "/" + kManifestFile));
  if (single) return std::vector<std::pair<std::string, std::string>>{{path, path}};
  for (const std::string& root : {path + "/checkpoints", path}) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool there, fs.Exists(root));
    if (!there) continue;
    const absl::StatusOr<std::vector<std::string>> names = fs.List(root);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      const bool ours = ParseCheckpointFolderName(name.substr(0, name.find('.'))).ok();
      if (ours) folders.emplace_back(root + "/" + name, name);
    }
    CAPSTAN_ASSIGN_OR_RETURN(const bool is_root, fs.Exists(root + "/capstan-root.pb"));
    if (is_root || !folders.empty()) return folders;
  }
  return NotFound(
      fmt::format("'{}' holds no checkpoints: wanted a run's folder, its checkpoints folder, or one of the "
                  "C000001 … in it",
                  path));
}

}  // namespace

int InspectLs(const InspectOptions& options) {
  FileSystem& fs = PosixFileSystem();
  const auto folders = FoldersOf(fs, options.paths[0]);
  if (!folders.ok()) return InspectFailure("ls", folders.status());
  std::string text;
  Json all = Json::array();
  for (const auto& [folder, name] : *folders) {
    LsLine line;
    if (name.ends_with(".tmp") || name.ends_with(".del")) {
      line.name = name;
      line.wrong =
          name.ends_with(".tmp") ? "incomplete: being made, or left by a run that was killed" : "being removed";
    } else {
      line = LineOf(fs, folder, name);
      const absl::StatusOr<bool> there = fs.Exists(folder);
      if (!line.wrong.empty() && there.ok() && !*there) continue;  // retention removed it while we looked
    }
    text += TextOf(line);
    all.push_back(JsonOf(line));
  }
  if (options.json) return SayJson("ls", all);
  return Say("ls", text.empty() ? "no checkpoints yet\n" : text);
}

}  // namespace capstan
