// Whether the records of a checkpoint can be true: WhatIsWrong of checkpoint_records.h.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "common/sha256.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/job_tables.h"
#include "storage/model_hash.h"

namespace capstan {

// Checks all shards of one manifest, one after another. (Not in the anonymous namespace: it has members of
// its own.)
class RecordChecker {
 public:
  explicit RecordChecker(const CheckpointManifest& manifest)
      : manifest_(manifest), owner_(manifest.job().config().cluster().partitions(), kNobody) {
    for (const StoredFile& file : manifest.file()) listed_[file.name()] = &file;
    for (const TableSpec& table : manifest.job().table()) tables_[table.id()] = {table.width(), 0};
  }

  std::string Check(const std::vector<ShardRecord>& shards);

 private:
  static constexpr uint32_t kNobody = ~uint32_t{0};
  struct TableShape {
    uint32_t width = 0;
    uint32_t floats = 0;  // of a row, as the first part of a layer says; 0: none seen
  };

  std::string TakePartitions(uint32_t shard, const ShardRecord& record);
  std::string CheckLayers(uint32_t shard, const ShardRecord& record);
  std::string CheckFiles(const std::string& shard_folder, const StoredLayer& layer, uint64_t* bytes);
  std::string CheckParts(uint32_t shard, const StoredLayer& layer, bool first, uint64_t file_bytes);
  std::string CheckPart(uint32_t shard, const LayerPartition& part, bool first);
  std::string CheckRows(const ShardRecord& record);
  std::string CheckModelHash(const std::vector<ShardRecord>& shards) const;

  const CheckpointManifest& manifest_;
  std::vector<uint32_t> owner_;  // shard of each partition
  std::unordered_map<std::string, const StoredFile*> listed_;
  std::unordered_map<uint32_t, TableShape> tables_;
  std::set<std::string> used_;  // names of layer files
  uint64_t rows_ = 0;
};

namespace {

template <typename Part>
std::pair<uint32_t, uint32_t> PlaceOf(const Part& part) {
  return {part.table(), part.partition()};
}

bool IsHexDigest(const std::string& text) {
  return text.size() == 2 * sizeof(Sha256Digest) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

constexpr size_t kXxh3Bytes = 16;

}  // namespace

bool IsPlainFileName(std::string_view name) {
  bool component_begins = true;
  for (const char c : name) {
    const bool alphanumeric = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == '/' ? component_begins
                 : !alphanumeric && c != '_' && (component_begins || (c != '.' && c != '-')))
      return false;
    component_begins = c == '/';
  }
  return !component_begins;
}

std::string WhatIsWrong(const CheckpointManifest& manifest) {
  const uint32_t partitions = manifest.job().config().cluster().partitions();
  if (const absl::Status status = ShardMap::Even(partitions, 1).status(); !status.ok())
    return std::string(status.message());
  if (std::string wrong = WhatIsWrongWithTables(manifest.job()); !wrong.empty()) return wrong;
  if (manifest.has_model_sha256() && !IsHexDigest(manifest.model_sha256()))
    return "model_sha256 is no SHA-256 in hex";
  std::set<std::string> names;
  uint32_t shards = 0;
  for (const StoredFile& file : manifest.file()) {
    if (!IsPlainFileName(file.name()) || file.name() == kManifestFile || !names.insert(file.name()).second)
      return fmt::format("the file name '{}' leads out of the folder, has odd letters, or is there twice",
                         file.name());
    if (file.xxh3().size() != kXxh3Bytes)
      return fmt::format("file '{}' has no XXH3-128 of 16 bytes", file.name());
    if (file.name().ends_with(std::string("/") + kShardRecordFile)) ++shards;
  }
  if (shards == 0) return "it lists no shard";
  for (uint32_t shard = 0; shard < shards; ++shard) {
    if (names.count(ShardFolderName(shard) + "/" + kShardRecordFile) == 0)
      return fmt::format("it lists {} shards, but not shard {}", shards, shard);
  }
  return "";
}

std::string WhatIsWrong(const CheckpointManifest& manifest, const std::vector<ShardRecord>& shards) {
  if (std::string wrong = WhatIsWrong(manifest); !wrong.empty()) return wrong;
  return RecordChecker(manifest).Check(shards);
}

std::string RecordChecker::Check(const std::vector<ShardRecord>& shards) {
  for (uint32_t i = 0; i < shards.size(); ++i) {
    if (shards[i].shard() != i)
      return fmt::format("the record of shard {} says shard {}", i, shards[i].shard());
    std::string wrong = TakePartitions(i, shards[i]);
    if (wrong.empty()) wrong = CheckLayers(i, shards[i]);
    if (wrong.empty()) wrong = CheckRows(shards[i]);
    if (!wrong.empty()) return fmt::format("shard {}: {}", i, wrong);
  }
  const auto nobody = std::find(owner_.begin(), owner_.end(), kNobody);
  if (nobody != owner_.end()) return fmt::format("no shard owns partition {}", nobody - owner_.begin());
  if (manifest_.rows() != rows_)
    return fmt::format("the manifest says {} rows, the shards' records {}", manifest_.rows(), rows_);
  return CheckModelHash(shards);
}

std::string RecordChecker::TakePartitions(uint32_t shard, const ShardRecord& record) {
  for (const PartitionRun& run : record.owned()) {
    if (run.first() > owner_.size() || run.count() > owner_.size() - run.first())
      return fmt::format("owns partitions {} + {} of {}", run.first(), run.count(), owner_.size());
    for (uint32_t p = run.first(); p < run.first() + run.count(); ++p) {
      if (owner_[p] != kNobody) return fmt::format("owns partition {}, which shard {} has too", p, owner_[p]);
      owner_[p] = shard;
    }
  }
  return "";
}

std::string RecordChecker::CheckLayers(uint32_t shard, const ShardRecord& record) {
  uint64_t last = 0;
  for (const StoredLayer& layer : record.layer()) {
    const bool first = &layer == &record.layer(0);
    if (layer.checkpoint() > manifest_.id() || (!first && layer.checkpoint() <= last))
      return fmt::format("its layers are not in order at that of checkpoint {}", layer.checkpoint());
    last = layer.checkpoint();
    uint64_t bytes = 0;
    std::string wrong = CheckFiles(ShardFolderName(shard) + "/", layer, &bytes);
    if (wrong.empty()) wrong = CheckParts(shard, layer, first, bytes);
    if (!wrong.empty()) return fmt::format("layer of checkpoint {}: {}", layer.checkpoint(), wrong);
  }
  return "";
}

std::string RecordChecker::CheckFiles(const std::string& shard_folder, const StoredLayer& layer,
                                      uint64_t* bytes) {
  for (const StoredFile& file : layer.file()) {
    const auto listed = listed_.find(file.name());
    if (listed == listed_.end() || listed->second->bytes() != file.bytes() ||
        listed->second->xxh3() != file.xxh3())
      return fmt::format("file '{}' is not in the manifest with this size and hash", file.name());
    if (!file.name().starts_with(shard_folder) || !used_.insert(file.name()).second)
      return fmt::format("file '{}' is not in {} or belongs to two layers", file.name(), shard_folder);
    if (file.bytes() > ~uint64_t{0} - *bytes) return "the sizes of its files overflow";
    *bytes += file.bytes();
  }
  return "";
}

std::string RecordChecker::CheckParts(uint32_t shard, const StoredLayer& layer, bool first,
                                      uint64_t file_bytes) {
  if ((layer.part_size() == 0) != (layer.file_size() == 0))
    return fmt::format("{} files for {} partitions", layer.file_size(), layer.part_size());
  uint64_t left = file_bytes;
  for (int i = 0; i < layer.part_size(); ++i) {
    const LayerPartition& part = layer.part(i);
    std::string wrong = CheckPart(shard, part, first);
    if (wrong.empty() && i > 0 && PlaceOf(layer.part(i - 1)) >= PlaceOf(part)) wrong = "not in order";
    // Nothing is compressed but what keys share: values and one byte more of every record are in the files.
    const uint64_t value_bytes = StoredValueBytes(part.floats());
    if (wrong.empty() && part.puts() > left / value_bytes) wrong = "more rows than the files can hold";
    if (wrong.empty()) left -= part.puts() * value_bytes;
    if (wrong.empty() && part.deletes() > left) wrong = "more deletions than the files can hold";
    if (!wrong.empty())
      return fmt::format("table {}, partition {}: {}", part.table(), part.partition(), wrong);
    left -= part.deletes();
  }
  return "";
}

std::string RecordChecker::CheckPart(uint32_t shard, const LayerPartition& part, bool first) {
  const auto table = tables_.find(part.table());
  if (table == tables_.end()) return "the job has no such table";
  if (part.partition() >= owner_.size() || owner_[part.partition()] != shard)
    return "the shard does not own it";
  if (part.puts() == 0 && part.deletes() == 0) return "a layer without a record of it";
  if (first && part.deletes() != 0) return "deletions in the first layer";
  if (part.puts() == 0) return part.floats() == 0 ? "" : "floats without rows";
  TableShape& shape = table->second;
  if (shape.floats == 0) shape.floats = part.floats();
  if (part.floats() != shape.floats || part.floats() < shape.width || part.floats() > kMaxRowFloats) {
    return fmt::format("{} floats a row where the table has width {} and other parts have {}", part.floats(),
                       shape.width, shape.floats);
  }
  return "";
}

std::string RecordChecker::CheckRows(const ShardRecord& record) {
  std::set<std::pair<uint32_t, uint32_t>> written;
  uint64_t puts = 0;
  for (const StoredLayer& layer : record.layer()) {
    for (const LayerPartition& part : layer.part()) {
      written.insert(PlaceOf(part));
      puts += part.puts();  // bounded by the bytes of files
    }
  }
  for (int i = 0; i < record.rows_size(); ++i) {
    const PartitionRows& rows = record.rows(i);
    const bool in_order = i == 0 || PlaceOf(record.rows(i - 1)) < PlaceOf(rows);
    if (!in_order || rows.rows() == 0 || rows.rows() > puts || written.count(PlaceOf(rows)) == 0) {
      return fmt::format(
          "{} rows of table {}, partition {}: not in order, none, or more than its layers have", rows.rows(),
          rows.table(), rows.partition());
    }
    if (rows.has_sha256() && rows.sha256().size() != sizeof(Sha256Digest))
      return fmt::format("table {}, partition {} has a SHA-256 of {} bytes", rows.table(), rows.partition(),
                         rows.sha256().size());
    puts -= rows.rows();
    rows_ += rows.rows();
  }
  return "";
}

// Where every partition has its hash, the model's follows from them.
std::string RecordChecker::CheckModelHash(const std::vector<ShardRecord>& shards) const {
  if (!manifest_.has_model_sha256()) return "";
  std::vector<PartitionSum> sums;
  for (const ShardRecord& record : shards) {
    for (const PartitionRows& rows : record.rows()) {
      if (!rows.has_sha256()) return "";
      PartitionSum sum = {static_cast<TableId>(rows.table()), rows.partition(), rows.rows(), {}};
      std::copy(rows.sha256().begin(), rows.sha256().end(), sum.sha256.begin());
      sums.push_back(sum);
    }
  }
  std::vector<std::string> names;
  for (const TableSpec& table : manifest_.job().table()) {
    if (table.id() >= names.size()) names.resize(table.id() + 1);
    names[table.id()] = table.name();
  }
  const std::string computed = ModelSha256(names, std::move(sums));
  if (computed == manifest_.model_sha256()) return "";
  return fmt::format("model_sha256 is {}, the shards' records make it {}", manifest_.model_sha256(),
                     computed);
}

}  // namespace capstan
