#include "tests/support/checkpoint_builder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>

#include <gtest/gtest.h>

#include "common/hash.h"
#include "common/partition_map.h"
#include "common/sha256.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"
#include "storage/layer_writer.h"
#include "storage/model_hash.h"

namespace capstan::testing {
namespace {

std::vector<std::byte> StoredValue(const BuiltRow& row) {
  const size_t float_bytes = row.values.size() * sizeof(float);
  std::vector<std::byte> value(float_bytes + kStoredCounterBytes);
  std::memcpy(value.data(), row.values.data(), float_bytes);
  std::memcpy(value.data() + float_bytes, &row.last_step, sizeof(row.last_step));
  std::memcpy(value.data() + float_bytes + sizeof(row.last_step), &row.updates, sizeof(row.updates));
  return value;
}

// What one layer says about a key.
struct BuiltRecord {
  const BuiltRow* row = nullptr;  // none: a deletion
};

class ShardMaker {
 public:
  ShardMaker(const CheckpointSpec& spec, const std::string& folder, const ShardMap& map, uint32_t shard)
      : spec_(spec), folder_(folder), map_(map), shard_(shard) {}

  ShardRecord Make() {
    ShardRecord record;
    record.set_shard(shard_);
    for (PartitionId p = 0; p < map_.partitions(); ++p) {
      if (map_.OwnerOfPartition(p) != shard_) continue;
      if (record.owned_size() == 0) record.add_owned()->set_first(p);
      record.mutable_owned(0)->set_count(record.owned(0).count() + 1);
    }
    EXPECT_TRUE(PosixFileSystem().MakeFolders(folder_ + "/" + ShardFolderName(shard_)).ok());
    for (size_t layer = 0; layer < spec_.layers.size(); ++layer) *record.add_layer() = WriteLayer(layer);
    AddRows(&record);
    record.set_version(100 * spec_.layers.size());
    record.set_epoch(1);
    return record;
  }

 private:
  bool Owned(Key key) const { return map_.OwnerOf(key) == shard_; }
  StoredKey Place(TableId table, Key key) const { return {table, PartitionOf(key, spec_.partitions), key}; }

  StoredLayer WriteLayer(size_t layer) {
    std::map<StoredKey, BuiltRecord> records;
    for (const auto& [table, keys] : spec_.layers[layer].deletes) {
      for (const Key key : keys) {
        if (Owned(key)) records[Place(table, key)] = {};
      }
    }
    for (const auto& [table, rows] : spec_.layers[layer].puts) {
      for (const auto& [key, row] : rows) {
        if (Owned(key)) records[Place(table, key)] = {&row};
      }
    }
    LayerWriterOptions options;
    options.folder = folder_ + "/" + ShardFolderName(shard_);
    options.name_prefix = ShardFolderName(shard_) + "/";
    options.checkpoint = spec_.first_id + layer;
    options.max_file_bytes = spec_.max_file_bytes;
    options.sync = false;
    const std::unique_ptr<LayerWriter> writer = *LayerWriter::Create(options);
    for (const auto& [key, record] : records) {
      const absl::Status status =
          record.row == nullptr ? writer->Delete(key) : writer->Put(key, StoredValue(*record.row));
      EXPECT_TRUE(status.ok()) << status;
    }
    absl::StatusOr<StoredLayer> stored = writer->Finish();
    EXPECT_TRUE(stored.ok()) << stored.status();
    return *std::move(stored);
  }

  void AddRows(ShardRecord* record) {
    std::map<StoredKey, const BuiltRow*> live;
    const std::map<TableId, BuiltRows> all = LiveRows(spec_);
    for (const auto& [table, rows] : all) {
      for (const auto& [key, row] : rows) {
        if (Owned(key)) live[Place(table, key)] = &row;
      }
    }
    std::unique_ptr<Sha256> hash;
    const auto close = [&] {
      if (hash == nullptr) return;
      const Sha256Digest digest = hash->Finish();
      if (spec_.model_sha256)
        record->mutable_rows(record->rows_size() - 1)->set_sha256(digest.data(), digest.size());
    };
    for (const auto& [key, row] : live) {
      const PartitionRows* last = record->rows_size() == 0 ? nullptr : &record->rows(record->rows_size() - 1);
      if (last == nullptr || last->table() != key.table || last->partition() != key.partition) {
        close();
        hash = std::make_unique<Sha256>();
        PartitionRows* next = record->add_rows();
        next->set_table(key.table);
        next->set_partition(key.partition);
      }
      PartitionRows* rows = record->mutable_rows(record->rows_size() - 1);
      rows->set_rows(rows->rows() + 1);
      hash->Update(&key.key, sizeof(key.key));
      hash->Update(row->values.data(), row->values.size() * sizeof(float));
    }
    close();
  }

  const CheckpointSpec& spec_;
  const std::string folder_;
  const ShardMap& map_;
  const uint32_t shard_;
};

void FillJob(const CheckpointSpec& spec, EffectiveJob* job) {
  job->set_job_id(4711);
  job->set_cpu_isa("avx2");
  job->mutable_config()->set_name("built");
  job->mutable_config()->set_ranks(2);
  job->mutable_config()->mutable_cluster()->set_partitions(spec.partitions);
  job->mutable_config()->mutable_cluster()->set_servers(spec.shards);
  for (const BuiltTable& table : spec.tables) {
    TableSpec* added = job->add_table();
    added->set_id(table.id);
    added->set_name(table.name);
    added->set_kind(TableSpec::SPARSE);
    added->set_width(table.width);
    added->mutable_optimizer()->set_name(table.slots == 0             ? "sgd"
                                         : table.slots == table.width ? "adagrad"
                                                                      : "adam");
  }
}

std::string ModelHashOf(const CheckpointSpec& spec, const std::vector<ShardRecord>& shards) {
  std::vector<std::string> names;
  for (const BuiltTable& table : spec.tables) {
    if (table.id >= names.size()) names.resize(table.id + 1);
    names[table.id] = table.name;
  }
  std::vector<PartitionSum> sums;
  for (const ShardRecord& shard : shards) {
    for (const PartitionRows& rows : shard.rows()) {
      PartitionSum sum = {static_cast<TableId>(rows.table()), rows.partition(), rows.rows(), {}};
      std::copy(rows.sha256().begin(), rows.sha256().end(), sum.sha256.begin());
      sums.push_back(sum);
    }
  }
  return ModelSha256(names, std::move(sums));
}

CheckpointManifest ManifestOf(const CheckpointSpec& spec) {
  const uint64_t layers = spec.layers.size();
  CheckpointManifest manifest;
  manifest.set_format(kCheckpointFormat);
  manifest.set_id(spec.first_id + layers - 1);
  manifest.set_kind(layers == 1 ? CheckpointManifest::FULL : CheckpointManifest::INCREMENTAL);
  if (layers > 1) manifest.set_parent(manifest.id() - 1);
  FillJob(spec, manifest.mutable_job());
  manifest.set_version(100 * layers);
  manifest.set_epoch(1);
  manifest.set_examples(6400 * layers);
  manifest.set_created(1'700'000'000);
  manifest.set_written_by("capstan test");
  manifest.set_reason("100 steps");
  return manifest;
}

BuiltRow RandomRow(const BuiltTable& table, std::mt19937_64* random) {
  BuiltRow row;
  for (uint32_t i = 0; i < table.width + table.slots; ++i)
    row.values.push_back(static_cast<float>(static_cast<int64_t>((*random)() % 2001) - 1000) / 64);
  row.last_step = static_cast<uint32_t>((*random)() % 1000);
  row.updates = static_cast<uint32_t>((*random)() % 100);
  return row;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "capstan-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a folder that is left behind fails no test
  std::filesystem::remove_all(path_, ignored);
}

std::map<TableId, BuiltRows> LiveRows(const CheckpointSpec& spec) {
  std::map<TableId, BuiltRows> live;
  for (const BuiltLayer& layer : spec.layers) {
    for (const auto& [table, keys] : layer.deletes) {
      for (const Key key : keys) live[table].erase(key);
    }
    for (const auto& [table, rows] : layer.puts) {
      for (const auto& [key, row] : rows) live[table][key] = row;
    }
  }
  return live;
}

void OverwriteFile(const std::string& path, const std::string& contents) {
  std::filesystem::remove(path);
  auto file = PosixFileSystem().Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append(contents.data(), contents.size()).ok());
  ASSERT_TRUE((*file)->Close().ok());
}

StoredFile WriteRecordFile(const std::string& folder, const std::string& name,
                           const std::string& serialized) {
  const std::string framed = FrameRecord(serialized);
  OverwriteFile(folder + "/" + name, framed);
  StoredFile file;
  file.set_name(name);
  file.set_bytes(framed.size());
  file.set_xxh3(ToBytes(HashBytes128(framed.data(), framed.size())));
  return file;
}

std::string BuildCheckpoint(const CheckpointSpec& spec, const std::string& root) {
  CheckpointManifest manifest = ManifestOf(spec);
  const std::string folder = root + "/" + CheckpointFolderName(manifest.id());
  const ShardMap map = *ShardMap::Even(spec.partitions, spec.shards);
  std::vector<ShardRecord> shards;
  uint64_t rows = 0;
  for (uint32_t shard = 0; shard < spec.shards; ++shard) {
    shards.push_back(ShardMaker(spec, folder, map, shard).Make());
    ShardRecord& record = shards.back();
    if (spec.edit_shard) spec.edit_shard(shard, &record);
    const std::string name = ShardFolderName(shard) + "/" + kShardRecordFile;
    *manifest.add_file() = WriteRecordFile(folder, name, record.SerializeAsString());
    for (const StoredLayer& layer : record.layer()) {
      for (const StoredFile& file : layer.file()) *manifest.add_file() = file;
    }
    for (const PartitionRows& part : record.rows()) rows += part.rows();
  }
  manifest.set_rows(rows);
  if (spec.model_sha256) manifest.set_model_sha256(ModelHashOf(spec, shards));
  if (spec.edit_manifest) spec.edit_manifest(&manifest);
  WriteRecordFile(folder, kManifestFile, manifest.SerializeAsString());
  return folder;
}

CheckpointSpec SomeCheckpoint(int layers, int rows, uint32_t shards) {
  std::mt19937_64 random(static_cast<uint64_t>(layers) * 1'000'003 + static_cast<uint64_t>(rows));
  CheckpointSpec spec;
  spec.shards = shards;
  for (int i = 0; i < layers; ++i) {
    std::map<TableId, BuiltRows> live = LiveRows(spec);
    BuiltLayer& layer = spec.layers.emplace_back();
    for (const BuiltTable& table : spec.tables) {
      if (i == 0) {
        for (const Key key : {Key{0}, ~Key{0}}) layer.puts[table.id][key] = RandomRow(table, &random);
        for (int r = 2; r < rows; ++r) layer.puts[table.id][random()] = RandomRow(table, &random);
        continue;
      }
      // A quarter changes, an eighth goes, an eighth is new.
      for (const auto& [key, row] : live[table.id]) {
        const uint64_t what = random() % 8;
        if (what < 2) layer.puts[table.id][key] = RandomRow(table, &random);
        if (what == 2) layer.deletes[table.id].insert(key);
        if (what == 3) layer.puts[table.id][random()] = RandomRow(table, &random);
      }
    }
  }
  return spec;
}

}  // namespace capstan::testing
