// merge and reshard: the same rows as a new, full checkpoint of its own.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "storage/layer_merge.h"
#include "storage/layer_writer.h"
#include "tools/inspect/opened.h"
#include "tools/inspect/unfinished_output.h"

namespace capstan {
namespace {

LayerWriterOptions WriterFor(const CheckpointManifest& manifest, const std::string& folder, uint32_t shard) {
  LayerWriterOptions options;
  options.folder = folder + "/" + ShardFolderName(shard);
  options.name_prefix = ShardFolderName(shard) + "/";
  options.checkpoint = manifest.id();
  return options;
}

// Writes records and manifest; the layers of `records` are in `folder` already.
absl::Status Complete(const CheckpointReader& reader, const std::vector<ShardRecord>& records,
                      const std::string& folder, const std::string& out) {
  FileSystem& fs = PosixFileSystem();
  CheckpointManifest manifest = reader.manifest();
  manifest.set_kind(CheckpointManifest::FULL);
  manifest.clear_parent();
  manifest.clear_file();
  for (uint32_t shard = 0; shard < records.size(); ++shard) {
    const std::string name = fmt::format("{}/{}", ShardFolderName(shard), kShardRecordFile);
    const std::string framed = FrameRecord(records[shard].SerializeAsString());
    CAPSTAN_RETURN_IF_ERROR(WriteFileAtomically(fs, folder + "/" + name, framed));
    StoredFile* own = manifest.add_file();
    own->set_name(name);
    own->set_bytes(framed.size());
    CAPSTAN_ASSIGN_OR_RETURN(*own->mutable_xxh3(), HashFile(fs, folder + "/" + name));
    for (const StoredLayer& layer : records[shard].layer()) {
      for (const StoredFile& file : layer.file()) *manifest.add_file() = file;
    }
  }
  if (const std::string wrong = WhatIsWrong(manifest, records); !wrong.empty()) return Internal(wrong);
  CAPSTAN_RETURN_IF_ERROR(
      WriteFileAtomically(fs, folder + "/" + kManifestFile, FrameRecord(manifest.SerializeAsString())));
  CAPSTAN_RETURN_IF_ERROR(CheckpointRecords::Load(fs, folder).status());
  CAPSTAN_RETURN_IF_ERROR(fs.Rename(folder, out));
  return fs.SyncFolder(ParentFolder(out));
}

absl::StatusOr<ShardRecord> MergedShard(const CheckpointReader& reader, uint32_t shard,
                                        const std::string& folder) {
  const LayerWriterOptions options = WriterFor(reader.manifest(), folder, shard);
  CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(options.folder));
  std::vector<const StoredLayer*> layers;
  for (const StoredLayer& layer : reader.shard(shard).layer()) layers.push_back(&layer);
  ShardRecord record = reader.shard(shard);
  record.clear_layer();
  CAPSTAN_ASSIGN_OR_RETURN(*record.add_layer(),
                           MergeLayers(layers, reader.folder(), options, nullptr, nullptr));
  return record;
}

// ---- reshard
// ------------------------------------------------------------------------------------------------

void AddRun(PartitionId partition, google::protobuf::RepeatedPtrField<PartitionRun>* runs) {
  PartitionRun* last = runs->empty() ? nullptr : runs->Mutable(runs->size() - 1);
  if (last == nullptr || last->first() + last->count() != partition) {
    last = runs->Add();
    last->set_first(partition);
  }
  last->set_count(last->count() + 1);
}

// What the partitions of a new shard had applied: the ledgers of the old shards, cut down to them.
absl::Status AddLedgers(const CheckpointReader& reader, const ShardMap& map, ShardId shard,
                        ShardRecord* record) {
  for (size_t old = 0; old < reader.shards(); ++old) {
    for (const LedgerRecord& ledger : reader.shard(old).ledger()) {
      LedgerRecord ours = ledger;
      ours.clear_partitions();
      for (const PartitionRun& run : ledger.partitions()) {
        for (uint64_t p = run.first(); p < uint64_t{run.first()} + run.count(); ++p) {
          if (p >= map.partitions())
            return DataLoss(fmt::format("a ledger of partition {} of {}", p, map.partitions()));
          const auto partition = static_cast<PartitionId>(p);
          if (map.OwnerOfPartition(partition) == shard) AddRun(partition, ours.mutable_partitions());
        }
      }
      if (ours.partitions_size() > 0) *record->add_ledger() = ours;
    }
  }
  return absl::OkStatus();
}

const ShardRecord& HomeOf(const CheckpointReader& reader) {
  for (size_t i = 0; i < reader.shards(); ++i) {
    if (reader.shard(i).has_totals()) return reader.shard(i);
  }
  return reader.shard(0);
}

absl::StatusOr<ShardRecord> NewShard(const CheckpointReader& reader, const ShardMap& map, ShardId shard,
                                     const std::string& folder) {
  const LayerWriterOptions options = WriterFor(reader.manifest(), folder, shard);
  CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().MakeFolders(options.folder));
  ShardRecord record = HomeOf(reader);
  record.set_shard(shard);
  record.clear_owned();
  record.clear_layer();
  record.clear_rows();
  record.clear_ledger();
  if (map.HomeShard() != shard) record.clear_totals();
  for (size_t old = 0; old < reader.shards(); ++old) {
    record.set_highest_clock(std::max(record.highest_clock(), reader.shard(old).highest_clock()));
    for (const PartitionRows& rows : reader.shard(old).rows()) {
      if (map.OwnerOfPartition(rows.partition()) == shard) *record.add_rows() = rows;
    }
  }
  std::sort(record.mutable_rows()->begin(), record.mutable_rows()->end(),
            [](const PartitionRows& a, const PartitionRows& b) {
              return a.table() != b.table() ? a.table() < b.table() : a.partition() < b.partition();
            });
  PartitionId first = map.partitions(), last = 0;  // Even gives every shard one run
  for (PartitionId p = 0; p < map.partitions(); ++p) {
    if (map.OwnerOfPartition(p) != shard) continue;
    AddRun(p, record.mutable_owned());
    first = std::min(first, p);
    last = p + 1;
  }
  CAPSTAN_RETURN_IF_ERROR(AddLedgers(reader, map, shard, &record));
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<LayerWriter> writer, LayerWriter::Create(options));
  std::vector<TableId> tables;
  for (const TableSpec& table : reader.manifest().job().table())
    tables.push_back(static_cast<TableId>(table.id()));
  std::sort(tables.begin(), tables.end());
  std::vector<std::byte> value;
  for (const TableId table : tables) {
    if (reader.floats(table) == 0) continue;
    CAPSTAN_RETURN_IF_ERROR(reader.ForEach(table, first, last, [&](const StoredRow& row) {
      value.resize(StoredValueBytes(row.floats));
      std::memcpy(value.data(), row.values, row.floats * sizeof(float));
      std::memcpy(value.data() + row.floats * sizeof(float), &row.last_step, 4);
      std::memcpy(value.data() + row.floats * sizeof(float) + 4, &row.updates, 4);
      return writer->Put({table, row.partition, row.key}, value);
    }));
  }
  CAPSTAN_ASSIGN_OR_RETURN(*record.add_layer(), writer->Finish());
  return record;
}

// "merged/" → "merged".
std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

absl::Status CheckNewFolder(const std::string& out, const CheckpointReader& reader) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool there, PosixFileSystem().Exists(out));
  if (there) return InvalidArgument(fmt::format("'{}' is there already; give another --out", out));
  return CheckOutsideCheckpoint(out, reader);
}

// As it was before: `folder` and the folders made for it are gone, unless somebody put something into them.
void Undo(const std::string& folder, const std::vector<std::string>& made) {
  RemoveTree(PosixFileSystem(), folder).IgnoreError();  // the first error is the one to tell
  for (const std::string& above : made) PosixFileSystem().Remove(above).IgnoreError();
}

using MakeShard = std::function<absl::StatusOr<ShardRecord>(uint32_t shard, const std::string& folder)>;

int Rewrite(const char* command, const InspectOptions& options, const CheckpointReader& reader, size_t shards,
            const MakeShard& make) {
  const std::string out = WithoutSlashes(options.out);
  if (const absl::Status place = CheckNewFolder(out, reader); !place.ok()) return InspectFailure(command, place);
  const std::string folder = fmt::format("{}.{}.tmp", out, getpid());  // nobody else's
  std::vector<ShardRecord> records;
  const std::vector<std::string> above = MissingAbove(out);
  const UnfinishedOutput unfinished([&] { Undo(folder, above); });
  absl::Status status = MakeFoldersDurably(PosixFileSystem(), ParentFolder(out));
  if (status.ok()) status = PosixFileSystem().MakeFolders(folder);
  for (uint32_t shard = 0; status.ok() && shard < shards; ++shard) {
    absl::StatusOr<ShardRecord> record = make(shard, folder);
    status = record.status();
    if (record.ok()) records.push_back(*std::move(record));
  }
  if (status.ok()) status = Complete(reader, records, folder, out);
  if (!status.ok()) {
    Undo(folder, above);
    return InspectUnreadable(command, WhileReading(reader, status));
  }
  return Say(command, fmt::format("{}: {} rows in {} shard{}\n", out, reader.manifest().rows(), shards,
                                  shards == 1 ? "" : "s"));
}

}  // namespace

int InspectMerge(const InspectOptions& options) {
  if (options.out.empty()) return InspectUsage("merge", "--out=FOLDER is missing");
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("merge", reader.status());
  return Rewrite(
      "merge", options, **reader, (*reader)->shards(),
      [&](uint32_t shard, const std::string& folder) { return MergedShard(**reader, shard, folder); });
}

int InspectReshard(const InspectOptions& options) {
  if (options.out.empty()) return InspectUsage("reshard", "--out=FOLDER is missing");
  if (options.shards == 0) {
    return InspectUsage("reshard", fmt::format("--shards={}: how many shards are there to be, from 1 to the number of "
                                               "partitions?", options.shards_given ? "0" : "N is missing"));
  }
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("reshard", reader.status());
  const absl::StatusOr<ShardMap> map = ShardMap::Even((*reader)->partitions(), options.shards);
  if (!map.ok())
    return InspectUsage("reshard",
                        fmt::format("--shards={}: {}", options.shards, std::string(map.status().message())));
  return Rewrite(
      "reshard", options, **reader, options.shards,
      [&](uint32_t shard, const std::string& folder) { return NewShard(**reader, *map, shard, folder); });
}

}  // namespace capstan
