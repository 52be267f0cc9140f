#include "tests/storage/fake_parts.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/hash.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"

namespace capstan::testing {
namespace {

constexpr uint32_t kPartitions = 4;
constexpr uint64_t kRowsPerPartition = 2;

std::string FakeRows(const std::string& name) {
  return fmt::format("the rows of {}, as many as there are: {:64}", name, 7);
}

absl::StatusOr<StoredFile> WriteSynced(FileSystem& fs, const std::string& folder, const std::string& name,
                                       const std::string& contents) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(folder + "/" + name));
  CAPSTAN_RETURN_IF_ERROR(file->Append(contents.data(), contents.size()));
  CAPSTAN_RETURN_IF_ERROR(file->Sync());
  CAPSTAN_RETURN_IF_ERROR(file->Close());
  StoredFile stored;
  stored.set_name(name);
  stored.set_bytes(contents.size());
  stored.set_xxh3(ToBytes(HashBytes128(contents.data(), contents.size())));
  return stored;
}

absl::StatusOr<ShardRecord> WriteLayers(FileSystem& fs, const std::string& working, uint64_t id,
                                        uint32_t shard, const std::string& parent) {
  ShardRecord record;
  if (!parent.empty()) {
    CAPSTAN_ASSIGN_OR_RETURN(const CheckpointRecords below, CheckpointRecords::Load(fs, parent));
    for (const StoredLayer& layer : below.shards[shard].layer()) {
      for (const StoredFile& file : layer.file()) {
        CAPSTAN_RETURN_IF_ERROR(fs.HardLink(parent + "/" + file.name(), working + "/" + file.name()));
      }
      *record.add_layer() = layer;
    }
  }
  const std::string name = fmt::format("{}/{}-0000.sst", ShardFolderName(shard), CheckpointFolderName(id));
  StoredLayer& layer = *record.add_layer();
  layer.set_checkpoint(id);
  CAPSTAN_ASSIGN_OR_RETURN(*layer.add_file(), WriteSynced(fs, working, name, FakeRows(name)));
  record.set_shard(shard);
  PartitionRun& owned = *record.add_owned();
  owned.set_count(kPartitions / kFakeShards);
  owned.set_first(shard * owned.count());
  for (uint32_t p = owned.first(); p < owned.first() + owned.count(); ++p) {
    LayerPartition& part = *layer.add_part();
    part.set_table(0);
    part.set_partition(p);
    part.set_puts(kRowsPerPartition);
    part.set_floats(1);
    PartitionRows& rows = *record.add_rows();
    rows.set_table(0);
    rows.set_partition(p);
    rows.set_rows(kRowsPerPartition);
  }
  return record;
}

}  // namespace

CheckpointManifest FakeHead(uint64_t version) {
  CheckpointManifest head;
  EffectiveJob& job = *head.mutable_job();
  job.mutable_config()->mutable_cluster()->set_partitions(kPartitions);
  TableSpec& table = *job.add_table();
  table.set_id(0);
  table.set_name("wide");
  table.set_width(1);
  head.set_version(version);
  head.set_examples(version * 256);
  return head;
}

absl::StatusOr<std::vector<ShardPart>> WriteFakeParts(FileSystem& fs, const std::string& working, uint64_t id,
                                                      const std::string& parent) {
  std::vector<ShardPart> parts;
  for (uint32_t shard = 0; shard < kFakeShards; ++shard) {
    const std::string folder = working + "/" + ShardFolderName(shard);
    CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(folder));
    CAPSTAN_ASSIGN_OR_RETURN(const ShardRecord record, WriteLayers(fs, working, id, shard, parent));
    const std::string name = ShardFolderName(shard) + "/" + kShardRecordFile;
    CAPSTAN_ASSIGN_OR_RETURN(const StoredFile file,
                             WriteSynced(fs, working, name, FrameRecord(record.SerializeAsString())));
    parts.push_back({file.bytes(), file.xxh3()});
  }
  return parts;
}

absl::StatusOr<CheckpointEntry> CommitFake(FileSystem& fs, CheckpointRoot& root,
                                           const CheckpointManifest& head) {
  std::string parent;
  const absl::StatusOr<CheckpointEntry> newest = root.NewestGood(nullptr);
  if (newest.ok()) parent = newest->folder;
  if (!newest.ok() && !absl::IsNotFound(newest.status())) return newest.status();
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t id, root.NextId());
  CAPSTAN_RETURN_IF_ERROR(root.Begin(id));
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<ShardPart> parts,
                           WriteFakeParts(fs, root.WorkingFolderOf(id), id, parent));
  CheckpointManifest full = head;
  full.set_kind(parent.empty() ? CheckpointManifest::FULL : CheckpointManifest::INCREMENTAL);
  return root.Commit(id, full, parts);
}

std::string WhatIsNotAsWritten(FileSystem& fs, const std::string& folder) {
  const absl::StatusOr<CheckpointRecords> records = CheckpointRecords::Load(fs, folder);
  if (!records.ok()) return std::string(records.status().message());
  for (const StoredFile& file : records->manifest.file()) {
    const std::string contents = GetFile(fs, folder + "/" + file.name());
    if (ToBytes(HashBytes128(contents.data(), contents.size())) != file.xxh3())
      return file.name() + ": other bytes";
    if (file.name().ends_with(".sst") && contents != FakeRows(file.name()))
      return file.name() + ": " + contents;
  }
  return "";
}

void FlipBit(FileSystem& fs, const std::string& path) {
  std::string contents = GetFile(fs, path);
  ASSERT_FALSE(contents.empty()) << path;
  contents[contents.size() / 2] ^= 4;
  PutFile(fs, path, contents);
}

void PutFile(FileSystem& fs, const std::string& path, const std::string& contents) {
  const absl::Status status = WriteFileAtomically(fs, path, contents);
  ASSERT_TRUE(status.ok()) << status;
}

std::string GetFile(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<std::string> contents = ReadWholeFile(fs, path, 1 << 20);
  EXPECT_TRUE(contents.ok()) << contents.status();
  return contents.value_or("");
}

}  // namespace capstan::testing
