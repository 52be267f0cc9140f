#include "storage/checkpoint_root.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "common/random.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_list.h"
#include "storage/checkpoint_records.h"
#include "storage/folder_lock.h"
#include "storage/model_hash.h"

namespace capstan {
namespace {

constexpr char kWorkingEnding[] = ".tmp";
constexpr char kRemovedEnding[] = ".del";
constexpr char kMarkerFile[] = "capstan-made.pb";
constexpr char kCompactPrefix[] = ".compact-shard-";
constexpr char kCompactMarker[] = "capstan-compact";
constexpr uint64_t kMaxRootRecordBytes = 4096;

std::string RootFile(const std::string& root) { return root + "/capstan-root.pb"; }

absl::StatusOr<CheckpointRootRecord> ReadRoot(FileSystem& fs, const std::string& file) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs, file, kMaxRootRecordBytes));
  CheckpointRootRecord record;
  if (!record.ParseFromString(bytes) || record.token().empty()) {
    return DataLoss(fmt::format("'{}' is damaged; restore it from a copy, or use another output folder", file));
  }
  return record;
}

absl::Status WriteRoot(FileSystem& fs, const std::string& file, const CheckpointRootRecord& record) {
  return WriteFileAtomically(fs, file, FrameRecord(record.SerializeAsString()));
}

std::string NewToken() {
  SystemRandom random;
  return fmt::format("{:016x}{:016x}", random.Next(), random.Next());
}

bool IsMarkerName(const std::string& name) {
  return name == kMarkerFile || name == std::string(kMarkerFile) + ".tmp";
}

// A folder of that very name, not a link to one.
bool IsFolder(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  return info.ok() && info->kind == FileInfo::Kind::kFolder;
}

bool MadeByUs(FileSystem& fs, const std::string& folder, const std::string& token) {
  if (!IsFolder(fs, folder)) return false;
  const absl::StatusOr<CheckpointRootRecord> marker = ReadRoot(fs, folder + "/" + kMarkerFile);
  return marker.ok() && marker->token() == token;
}

// Also without a good marker, where a power cut left only the folder's name, or the marker's name without its bytes:
// nothing that anybody could miss.
bool MayGo(FileSystem& fs, const std::string& folder, const std::string& token) {
  if (MadeByUs(fs, folder, token)) return true;
  if (!IsFolder(fs, folder)) return false;
  const absl::StatusOr<std::vector<std::string>> names = fs.List(folder);
  const absl::StatusOr<CheckpointRootRecord> marker = ReadRoot(fs, folder + "/" + kMarkerFile);
  const bool of_another = marker.ok() || absl::IsUnavailable(marker.status());
  return names.ok() && !of_another && std::all_of(names->begin(), names->end(), IsMarkerName);
}

// The marker goes last: what is half removed after a crash still carries it. A disk may forget removals in any order,
// so the others are synced before.
absl::Status RemoveMadeFolder(FileSystem& fs, const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
  for (const std::string& name : names) {
    if (!IsMarkerName(name)) CAPSTAN_RETURN_IF_ERROR(RemoveTree(fs, folder + "/" + name));
  }
  CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(folder));
  return RemoveTree(fs, folder);
}

bool EndsWithOneOf(const std::string& name, std::initializer_list<const char*> endings, std::string* stem) {
  for (const char* ending : endings) {
    if (!name.ends_with(ending)) continue;
    *stem = name.substr(0, name.size() - std::string_view(ending).size());
    return true;
  }
  return false;
}

uint64_t HighestIdIn(const std::vector<std::string>& names) {
  uint64_t highest = 0;
  for (const std::string& name : names) {
    const absl::StatusOr<uint64_t> id = ParseCheckpointFolderName(name.substr(0, name.find('.')));
    if (id.ok()) highest = std::max(highest, *id);
  }
  return highest;
}

// One bad byte in the root's file must not cost a run its checkpoints: the token is in the marker of every folder made
// here as well. Which ids were given out is not, so that many are left out.
constexpr uint64_t kIdsLeftOutAfterRepair = 1000;

absl::StatusOr<CheckpointRootRecord> RepairedRoot(FileSystem& fs, const std::string& path, const absl::Status& damage) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(path));
  CheckpointRootRecord record;
  for (const std::string& name : names) {
    const std::string folder = path + "/" + name;
    if (!ParseCheckpointFolderName(name.substr(0, name.find('.'))).ok() || !IsFolder(fs, folder)) continue;
    const absl::StatusOr<CheckpointRootRecord> marker = ReadRoot(fs, folder + "/" + kMarkerFile);
    if (!marker.ok()) continue;
    if (record.has_token() && record.token() != marker->token()) return damage;  // whose folder this is cannot be told
    record.set_token(marker->token());
  }
  if (!record.has_token()) return damage;
  record.set_highest_id(HighestIdIn(names) + kIdsLeftOutAfterRepair);
  return record;
}

// What the shards' records add up to.
absl::Status AddRecords(FileSystem& fs, const std::string& folder, const std::vector<ShardPart>& parts,
                        CheckpointManifest* manifest) {
  std::vector<std::string> names(static_cast<size_t>(manifest->job().table_size()));
  for (const TableSpec& table : manifest->job().table()) {
    if (table.id() < names.size()) names[table.id()] = table.name();
  }
  std::vector<PartitionSum> sums;
  bool hashed = !parts.empty();
  uint64_t rows = 0;
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("{}/{}", ShardFolderName(i), kShardRecordFile);
    CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs, folder + "/" + name, kMaxRecordBytes));
    ShardRecord record;
    if (!record.ParseFromString(bytes)) return DataLoss(fmt::format("{}/{} does not parse", folder, name));
    StoredFile* own = manifest->add_file();
    own->set_name(name);
    own->set_bytes(parts[i].record_bytes);
    own->set_xxh3(parts[i].record_xxh3);
    for (const StoredLayer& layer : record.layer()) {
      for (const StoredFile& file : layer.file()) *manifest->add_file() = file;
    }
    for (const PartitionRows& part : record.rows()) {
      rows += part.rows();
      hashed &= part.sha256().size() == sizeof(Sha256Digest) && part.table() < names.size();
      if (!hashed) continue;
      PartitionSum sum;
      sum.table = static_cast<TableId>(part.table());
      sum.partition = part.partition();
      sum.rows = part.rows();
      std::copy(part.sha256().begin(), part.sha256().end(), sum.sha256.begin());
      sums.push_back(sum);
    }
    if (!record.has_totals()) continue;
    manifest->set_version(record.version());
    manifest->set_epoch(record.epoch());
    manifest->set_epoch_first(record.epoch_first());
    manifest->set_examples(record.totals().examples());
    manifest->set_job_done(record.job_done());
  }
  manifest->set_rows(rows);
  if (hashed) manifest->set_model_sha256(ModelSha256(names, std::move(sums)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointRoot>> CheckpointRoot::Open(FileSystem& fs, const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(MakeFoldersDurably(fs, path));
  std::unique_ptr<CheckpointRoot> root(new CheckpointRoot(fs, path));
  absl::StatusOr<CheckpointRootRecord> record = ReadRoot(fs, RootFile(path));
  if (absl::IsNotFound(record.status())) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(path));
    for (const std::string& name : names) {
      if (name == "capstan-root.pb.tmp") continue;  // of an Open that was cut short
      return InvalidArgument(fmt::format("'{}' is to hold checkpoints, but there is '{}' in it and no capstan-root.pb: "
                                         "give another output folder", path, name));
    }
    record = CheckpointRootRecord();
    record->set_token(NewToken());
    CAPSTAN_RETURN_IF_ERROR(WriteRoot(fs, RootFile(path), *record));
  }
  if (absl::IsDataLoss(record.status())) {
    record = RepairedRoot(fs, path, record.status());
    if (record.ok()) CAPSTAN_RETURN_IF_ERROR(WriteRoot(fs, RootFile(path), *record));
  }
  if (!record.ok()) return record.status();
  root->token_ = record->token();
  return root;
}

std::string CheckpointRoot::FolderOf(uint64_t id) const { return path_ + "/" + CheckpointFolderName(id); }
std::string CheckpointRoot::WorkingFolderOf(uint64_t id) const { return FolderOf(id) + kWorkingEnding; }

absl::StatusOr<uint64_t> CheckpointRoot::NextId() {
  CAPSTAN_ASSIGN_OR_RETURN(CheckpointRootRecord record, ReadRoot(fs_, RootFile(path_)));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(path_));
  const uint64_t highest = std::max(record.highest_id(), HighestIdIn(names));
  record.set_highest_id(highest + 1);
  CAPSTAN_RETURN_IF_ERROR(WriteRoot(fs_, RootFile(path_), record));
  return record.highest_id();
}

absl::Status CheckpointRoot::Begin(uint64_t id) {
  const std::string folder = WorkingFolderOf(id);
  CAPSTAN_RETURN_IF_ERROR(fs_.MakeFolders(folder));
  CheckpointRootRecord marker;
  marker.set_token(token_);
  return WriteRoot(fs_, folder + "/" + kMarkerFile, marker);
}

absl::StatusOr<CheckpointEntry> CheckpointRoot::Commit(uint64_t id, const CheckpointManifest& head,
                                                       const std::vector<ShardPart>& parts) {
  const std::string folder = WorkingFolderOf(id);
  CheckpointManifest manifest = head;
  manifest.set_format(kCheckpointFormat);
  manifest.set_id(id);
  CAPSTAN_RETURN_IF_ERROR(AddRecords(fs_, folder, parts, &manifest));
  CAPSTAN_RETURN_IF_ERROR(
      WriteFileAtomically(fs_, folder + "/" + kManifestFile, FrameRecord(manifest.SerializeAsString())));
  // As a reader will see it: every record's hash, every file with its size.
  CAPSTAN_RETURN_IF_ERROR(While("reading the new checkpoint back", CheckpointRecords::Load(fs_, folder).status()));
  CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(folder));
  CAPSTAN_RETURN_IF_ERROR(fs_.Rename(folder, FolderOf(id)));
  CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(path_));
  return EntryOf(manifest, FolderOf(id));
}

absl::Status CheckpointRoot::Abandon(uint64_t id) {
  const std::string folder = WorkingFolderOf(id);
  CAPSTAN_ASSIGN_OR_RETURN(const bool there, fs_.Exists(folder));
  if (!there) return absl::OkStatus();
  if (!MayGo(fs_, folder, token_)) {
    return InvalidArgument(fmt::format("{} is left alone: it does not carry this run's mark", folder));
  }
  // A writer that still runs makes no more files in it, and none after the marker has gone.
  const std::string removed = FolderOf(id) + kRemovedEnding;
  CAPSTAN_RETURN_IF_ERROR(fs_.Rename(folder, removed));
  return RemoveMadeFolder(fs_, removed);
}

absl::StatusOr<std::vector<CheckpointEntry>> CheckpointRoot::List(std::vector<std::string>* skipped) {
  return ListCheckpoints(fs_, path_, skipped);
}

absl::StatusOr<CheckpointEntry> CheckpointRoot::NewestGood(std::vector<std::string>* skipped) {
  return NewestGoodCheckpoint(fs_, path_, CheckpointCheck::kRecords, skipped);
}

absl::Status CheckpointRoot::CleanUp(uint64_t keep, std::vector<std::string>* log) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(path_));
  for (const std::string& name : names) {
    if (!name.starts_with(kCompactPrefix)) continue;  // of a writer that was killed while it merged a chain
    const absl::StatusOr<bool> marked = fs_.Exists(path_ + "/" + name + "/" + kCompactMarker);
    if (marked.ok() && *marked) CAPSTAN_RETURN_IF_ERROR(RemoveTree(fs_, path_ + "/" + name));
  }
  return RemoveUnfinished(keep, log);
}

absl::Status CheckpointRoot::RemoveUnfinished(uint64_t keep, std::vector<std::string>* log) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(path_));
  absl::Status first;
  for (const std::string& name : names) {
    std::string stem;
    if (!EndsWithOneOf(name, {kWorkingEnding, kRemovedEnding}, &stem)) continue;
    const absl::StatusOr<uint64_t> id = ParseCheckpointFolderName(stem);
    if (!id.ok() || (*id == keep && name.ends_with(kWorkingEnding))) continue;
    const std::string folder = path_ + "/" + name;
    absl::Status removed;
    if (MayGo(fs_, folder, token_)) {
      removed = RemoveMadeFolder(fs_, folder);
      if (removed.ok()) log->push_back(fmt::format("removed {}, which was not finished", folder));
    } else {
      log->push_back(fmt::format("{} is left alone: it does not carry this run's mark; remove it by hand", folder));
    }
    if (first.ok()) first = removed;
  }
  return first;
}

absl::Status CheckpointRoot::Retain(const RetentionPolicy& policy, const std::vector<uint64_t>& in_use,
                                    std::vector<std::string>* log) {
  std::vector<std::string> skipped;
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<CheckpointEntry> all, List(&skipped));
  if (all.size() < 2) return absl::OkStatus();
  std::set<uint64_t> kept(in_use.begin(), in_use.end());
  for (const uint64_t id : KeptBy(policy, all)) kept.insert(id);
  // Whatever the policy says: the newest, and the newest that can be read.
  kept.insert(all.back().id);
  const absl::StatusOr<CheckpointEntry> good = NewestGood(&skipped);
  if (!good.ok()) return absl::OkStatus();  // none can be read: nothing is taken away from whoever repairs them
  kept.insert(good->id);
  absl::Status first;
  for (const CheckpointEntry& entry : all) {
    if (kept.count(entry.id) > 0 || !MadeByUs(fs_, entry.folder, token_)) continue;
    const absl::StatusOr<bool> removed = RemoveOne(entry);
    if (removed.ok() && *removed) log->push_back(fmt::format("removed checkpoint {}", entry.folder));
    if (first.ok()) first = removed.status();
  }
  return first;
}

absl::StatusOr<bool> CheckpointRoot::RemoveOne(const CheckpointEntry& entry) {
  const std::string removed = entry.folder + kRemovedEnding;
  {
    const auto lock = FolderLock::TryExclusive(entry.folder + "/" + kManifestFile);
    if (!lock.ok()) return false;  // somebody reads it: the next time will do
    CAPSTAN_RETURN_IF_ERROR(fs_.Rename(entry.folder, removed));
  }
  CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(path_));
  CAPSTAN_RETURN_IF_ERROR(RemoveMadeFolder(fs_, removed));
  return true;
}

std::string WhatIsWrongWithMark(FileSystem& fs, std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const absl::StatusOr<CheckpointRootRecord> root = ReadRoot(fs, RootFile(ParentFolder(folder)));
  if (absl::IsNotFound(root.status())) return "";
  if (!root.ok()) return std::string(root.status().message());
  const std::string file = folder + "/" + kMarkerFile;
  const absl::StatusOr<CheckpointRootRecord> marker = ReadRoot(fs, file);
  if (marker.ok() && marker->token() == root->token()) return "";
  const std::string seen = absl::IsNotFound(marker.status()) ? fmt::format("'{}' is missing", file)
                           : marker.ok()                     ? fmt::format("'{}' is another run's", file)
                                                             : std::string(marker.status().message());
  return seen + "; the rows are not touched by that, but the run will never remove this checkpoint by itself";
}

absl::Status CheckRootToken(FileSystem& fs, const std::string& root, const std::string& token) {
  const absl::StatusOr<CheckpointRootRecord> record = ReadRoot(fs, RootFile(root));
  if (record.ok() && record->token() == token) return absl::OkStatus();
  const std::string seen = record.ok() ? fmt::format("{} belongs to another run", RootFile(root))
                                       : std::string(record.status().message());
  return absl::FailedPreconditionError(
      fmt::format("the scheduler's folder of checkpoints is not seen here: {}; mount the output folder on this machine "
                  "under the same path", seen));
}

}  // namespace capstan
