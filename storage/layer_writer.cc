#include "storage/layer_writer.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>
#include <rocksdb/env.h>
#include <rocksdb/sst_file_writer.h>

#include "common/file_system.h"
#include "common/hash.h"
#include "storage/hashing_file_system.h"
#include "storage/rocksdb_options.h"

namespace capstan {

struct LayerWriter::Impl {
  LayerWriterOptions options;
  std::shared_ptr<HashingFileSystem> disk;
  std::unique_ptr<rocksdb::Env> env;
  rocksdb::Options table_options = TableFileOptions();
  std::unique_ptr<rocksdb::SstFileWriter>
      file;  // open; none before the first record, so no file is ever empty
  StoredLayer layer;
  LayerPartition* part = nullptr;  // of the last record; within layer
  ContentDigest digest;            // of *part
  std::optional<StoredKey> last;
  uint32_t table_floats = 0;  // of the last record's table; 0: not known yet
  uint64_t rows = 0;
  absl::Status failure;

  absl::Status PutRow(const StoredKey& key, std::span<const std::byte> value);  // all but its digest
  absl::Status Add(const StoredKey& key, std::span<const std::byte> value);
  absl::Status Write(const StoredKey& key, std::span<const std::byte> value);
  absl::Status OpenFile();
  absl::Status CloseFile();
  void EnterPartition(const StoredKey& key);
  void LeavePartition();
  std::string NameOf(int n) const {
    return fmt::format("{}-{:04}.sst", CheckpointFolderName(options.checkpoint), n);
  }
  std::string PathOf(int n) const { return options.folder + "/" + NameOf(n); }
};

namespace {

// The index and the block under way are not in SstFileWriter's size yet.
bool IsFull(uint64_t file_bytes, uint64_t max_bytes) {
  return file_bytes + kTableBlockBytes + file_bytes / 128 >= max_bytes;
}

}  // namespace

absl::Status LayerWriter::Impl::OpenFile() {
  const std::string path = PathOf(layer.file_size());
  file = std::make_unique<rocksdb::SstFileWriter>(rocksdb::EnvOptions(table_options), table_options);
  if (const rocksdb::Status status = file->Open(path); !status.ok())
    return FromRocksDb("creating", path, status);
  const std::string name = options.name_prefix + NameOf(layer.file_size());
  layer.add_file()->set_name(name);
  return absl::OkStatus();
}

// What SstFileWriter says of a full disk; no Put of it does.
absl::Status LayerWriter::Impl::CloseFile() {
  if (file == nullptr) return absl::OkStatus();
  rocksdb::ExternalSstFileInfo info;
  const rocksdb::Status status = std::exchange(file, nullptr)->Finish(&info);
  if (!status.ok() || disk->failed()) {
    return Unavailable(fmt::format("writing '{}': {} (is the disk full?)", PathOf(layer.file_size() - 1),
                                   status.ToString()));
  }
  layer.mutable_file(layer.file_size() - 1)->set_bytes(info.file_size);
  layer.mutable_file(layer.file_size() - 1)->set_xxh3(ToBytes(disk->hash().Value()));
  return absl::OkStatus();
}

void LayerWriter::Impl::LeavePartition() {
  if (part == nullptr) return;
  part->set_digest_low(digest.low);
  part->set_digest_high(digest.high);
  part = nullptr;
}

void LayerWriter::Impl::EnterPartition(const StoredKey& key) {
  if (part != nullptr && part->table() == key.table && part->partition() == key.partition) return;
  if (part != nullptr && part->table() != key.table) table_floats = 0;
  LeavePartition();
  digest = {};
  part = layer.add_part();
  part->set_table(key.table);
  part->set_partition(key.partition);
}

absl::Status LayerWriter::Impl::Write(const StoredKey& key, std::span<const std::byte> value) {
  if (file != nullptr && (disk->failed() || IsFull(file->FileSize(), options.max_file_bytes)))
    CAPSTAN_RETURN_IF_ERROR(CloseFile());
  if (file == nullptr) CAPSTAN_RETURN_IF_ERROR(OpenFile());
  const auto bytes = EncodeStoredKey(key);
  const rocksdb::Status status =
      file->Put(rocksdb::Slice(bytes.data(), bytes.size()),
                rocksdb::Slice(reinterpret_cast<const char*>(value.data()), value.size()));
  if (status.ok()) return absl::OkStatus();
  return Unavailable(fmt::format("writing '{}': {}", PathOf(layer.file_size() - 1), status.ToString()));
}

absl::Status LayerWriter::Impl::Add(const StoredKey& key, std::span<const std::byte> value) {
  CAPSTAN_RETURN_IF_ERROR(failure);
  if (last.has_value() && key <= *last) {
    return InvalidArgument(
        fmt::format("table {}, partition {}, key {} does not come after table {}, partition {}, key {}",
                    key.table, key.partition, key.key, last->table, last->partition, last->key));
  }
  EnterPartition(key);
  if (failure = Write(key, value); !failure.ok()) return failure;
  last = key;
  return absl::OkStatus();
}

LayerWriter::LayerWriter() : impl_(std::make_unique<Impl>()) {}
LayerWriter::~LayerWriter() = default;

absl::StatusOr<std::unique_ptr<LayerWriter>> LayerWriter::Create(const LayerWriterOptions& options) {
  CAPSTAN_ASSIGN_OR_RETURN(const bool exists, PosixFileSystem().Exists(options.folder));
  if (!exists) return NotFound(fmt::format("the folder '{}' of a layer does not exist", options.folder));
  std::unique_ptr<LayerWriter> writer(new LayerWriter);
  writer->impl_->options = options;
  writer->impl_->layer.set_checkpoint(options.checkpoint);
  writer->impl_->disk = std::make_shared<HashingFileSystem>(options.sync);
  writer->impl_->env = rocksdb::NewCompositeEnv(writer->impl_->disk);
  writer->impl_->table_options.env = writer->impl_->env.get();
  return writer;
}

absl::Status LayerWriter::Impl::PutRow(const StoredKey& key, std::span<const std::byte> value) {
  const uint64_t floats =
      value.size() < kStoredCounterBytes ? 0 : (value.size() - kStoredCounterBytes) / sizeof(float);
  const bool same_table = last.has_value() && last->table == key.table;
  const uint32_t wanted = same_table ? table_floats : 0;
  if (floats < 1 || floats > kMaxRowFloats ||
      value.size() != StoredValueBytes(static_cast<uint32_t>(floats)) || (wanted != 0 && floats != wanted)) {
    return InvalidArgument(
        fmt::format("a value of {} bytes for table {}, key {} (floats of its rows so far: {})", value.size(),
                    key.table, key.key, wanted));
  }
  CAPSTAN_RETURN_IF_ERROR(Add(key, value));
  table_floats = static_cast<uint32_t>(floats);
  part->set_puts(part->puts() + 1);
  part->set_floats(table_floats);
  ++rows;
  return absl::OkStatus();
}

absl::Status LayerWriter::Put(const StoredKey& key, std::span<const std::byte> value) {
  CAPSTAN_RETURN_IF_ERROR(impl_->PutRow(key, value));
  impl_->digest.AddRow(key.table, key.key, value.data(), value.size());
  return absl::OkStatus();
}

absl::Status LayerWriter::PutRecord(TableId table, PartitionId partition, std::span<const std::byte> record) {
  StoredKey key = {table, partition, 0};
  if (record.size() < sizeof(key.key)) {
    return InvalidArgument(fmt::format("a record of {} bytes for table {}, without a key", record.size(), table));
  }
  std::memcpy(&key.key, record.data(), sizeof(key.key));
  CAPSTAN_RETURN_IF_ERROR(impl_->PutRow(key, record.subspan(sizeof(key.key))));
  impl_->digest.AddRecord(table, record.data(), record.size());
  return absl::OkStatus();
}

absl::Status LayerWriter::Delete(const StoredKey& key) {
  CAPSTAN_RETURN_IF_ERROR(impl_->Add(key, {}));
  impl_->part->set_deletes(impl_->part->deletes() + 1);
  return absl::OkStatus();
}

absl::StatusOr<StoredLayer> LayerWriter::Finish() {
  Impl& impl = *impl_;
  CAPSTAN_RETURN_IF_ERROR(impl.failure);
  impl.failure = Internal("the layer is finished");
  CAPSTAN_RETURN_IF_ERROR(impl.CloseFile());
  impl.LeavePartition();
  if (impl.options.sync) CAPSTAN_RETURN_IF_ERROR(PosixFileSystem().SyncFolder(impl.options.folder));
  return std::move(impl.layer);
}

uint64_t LayerWriter::rows() const { return impl_->rows; }

}  // namespace capstan
