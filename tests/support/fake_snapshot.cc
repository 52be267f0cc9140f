#include "tests/support/fake_snapshot.h"

#include <cstring>
#include <functional>
#include <iterator>
#include <string_view>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/hash.h"
#include "common/sha256.h"
#include "storage/checkpoint_reader.h"
#include "storage/checkpoint_records.h"

namespace capstan::testing {
namespace {

constexpr uint64_t kMaxLayerBytes = uint64_t{1} << 30;
constexpr uint32_t kDeletion = 0xFFFFFFFF;

// One record of a layer's file: the stored key, the size of the value (or kDeletion), the value.
void AppendFakeRecord(const StoredKey& key, const std::string* value, std::string* out) {
  const auto bytes = EncodeStoredKey(key);
  const uint32_t size = value == nullptr ? kDeletion : static_cast<uint32_t>(value->size());
  out->append(bytes.data(), bytes.size());
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  if (value != nullptr) out->append(*value);
}

using FakeVisit = std::function<void(const StoredKey& key, bool deleted, std::string_view value)>;
absl::Status ParseFakeLayer(std::string_view bytes, const FakeVisit& visit) {
  while (!bytes.empty()) {
    uint32_t size = 0;
    if (bytes.size() < kStoredKeyBytes + sizeof(size)) return DataLoss("a record is cut off");
    CAPSTAN_ASSIGN_OR_RETURN(const StoredKey key, DecodeStoredKey(bytes.substr(0, kStoredKeyBytes)));
    std::memcpy(&size, bytes.data() + kStoredKeyBytes, sizeof(size));
    bytes.remove_prefix(kStoredKeyBytes + sizeof(size));
    const size_t value = size == kDeletion ? 0 : size;
    if (bytes.size() < value) return DataLoss("a value is cut off");
    visit(key, size == kDeletion, bytes.substr(0, value));
    bytes.remove_prefix(value);
  }
  return absl::OkStatus();
}

absl::Status WriteFakeFile(FileSystem& fs, const std::string& path, const std::string& bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(path));
  CAPSTAN_RETURN_IF_ERROR(file->Append(bytes.data(), bytes.size()));
  CAPSTAN_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::StatusOr<ShardRecord> ReadFakeRecord(FileSystem& fs, const std::string& folder) {
  const std::string path = folder + "/" + kShardRecordFile;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadRecord(fs, path, kMaxRecordBytes));
  ShardRecord record;
  if (!record.ParseFromString(bytes)) return DataLoss(fmt::format("'{}' is no record of a shard", path));
  return record;
}

std::string LastName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Sha256Digest HashRows(const std::map<Key, std::string>& rows) {
  Sha256 hash;
  for (const auto& [key, value] : rows) {
    hash.Update(&key, sizeof(key));
    hash.Update(value.data(), value.size() - kStoredCounterBytes);
  }
  return hash.Finish();
}

}  // namespace

FakeSnapshotSink::FakeSnapshotSink(FileSystem& fs, const FakeSnapshotOptions& options)
    : fs_(fs), options_(options), random_(options.seed) {}

void FakeSnapshotSink::Begin(const SnapshotOrder& order) {
  CHECK(!active_) << "Begin of snapshot " << order.id << " before the result of " << order_.id;
  active_ = true;
  told_all_ = false;
  order_ = order;
  parts_.clear();
  place_.reset();
  place_ended_ = false;
  result_.reset();
  if (!planned_failure_ && std::uniform_real_distribution<double>(0, 1)(random_) < options_.fail) {
    planned_failure_ = Unavailable(fmt::format("the simulated disk under '{}' failed", order.folder));
    calls_to_failure_ = random_() % 16;
  }
  if (absl::Status status = fs_.MakeFolders(order.folder); !status.ok()) Fail(status);
}

bool FakeSnapshotSink::Offer(const SnapshotChunk& chunk) {
  CHECK(chunk.rows.size() + chunk.deleted.size_bytes() <= kMaxChunkBytes) << "a chunk above the limit";
  MaybeFail();
  if (!active_ || told_all_ || Refuse()) return false;
  if (absl::Status status = Take(chunk); !status.ok()) Fail(status);
  return true;
}

bool FakeSnapshotSink::Finish(const ShardRecord& record) {
  if (!active_ || told_all_ || Refuse()) return false;
  told_all_ = true;
  calls_to_failure_ = 0;
  MaybeFail();
  if (result_) return true;
  if (absl::Status status = Write(record); !status.ok()) Fail(status);
  return true;
}

void FakeSnapshotSink::Abort() {
  if (active_) RemoveFolder();
  active_ = false;
  result_.reset();
}

std::optional<SnapshotResult> FakeSnapshotSink::Poll() {
  if (!active_) return std::nullopt;
  MaybeFail();
  if (!result_) return std::nullopt;
  if (polls_left_ > 0) {
    --polls_left_;
    return std::nullopt;
  }
  active_ = false;
  if (result_->status.ok()) ++snapshots_;
  return std::exchange(result_, std::nullopt);
}

bool FakeSnapshotSink::Refuse() {
  return options_.refuse > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < options_.refuse;
}

// One call closer to the failure that Begin rolled.
void FakeSnapshotSink::MaybeFail() {
  if (!active_ || result_ || !planned_failure_ || calls_to_failure_-- > 0) return;
  Fail(*std::exchange(planned_failure_, std::nullopt));
}

void FakeSnapshotSink::Fail(const absl::Status& status) {
  RemoveFolder();
  told_all_ = true;
  polls_left_ = options_.delay_polls;
  result_ = SnapshotResult{order_.id, status, 0, ""};
}

absl::Status FakeSnapshotSink::CheckPlace(const SnapshotChunk& chunk) {
  const std::pair<TableId, PartitionId> place(chunk.table, chunk.partition);
  if (place_ && (place < *place_ || (place == *place_ && place_ended_))) {
    return Internal(fmt::format("table {}, partition {}: its chunk came after table {}, partition {}", chunk.table,
                                chunk.partition, place_->first, place_->second));
  }
  if (place_ && place != *place_ && !place_ended_) {
    return Internal(fmt::format("table {}, partition {} was never ended", place_->first, place_->second));
  }
  for (const SnapshotOrder::Table& table : order_.tables) {
    if (table.id == chunk.table && table.floats == chunk.floats) return absl::OkStatus();
  }
  return Internal(fmt::format("table {} with {} floats is not in the order", chunk.table, chunk.floats));
}

absl::Status FakeSnapshotSink::Take(const SnapshotChunk& chunk) {
  CAPSTAN_RETURN_IF_ERROR(CheckPlace(chunk));
  place_ = {chunk.table, chunk.partition};
  place_ended_ = chunk.last;
  Part& part = parts_[*place_];
  const size_t value_bytes = StoredValueBytes(chunk.floats);
  const size_t record_bytes = sizeof(Key) + value_bytes;
  if (chunk.rows.size() % record_bytes != 0) return Internal("a chunk with half a row");
  for (size_t at = 0; at < chunk.rows.size(); at += record_bytes) {
    Key key = 0;
    std::memcpy(&key, chunk.rows.data() + at, sizeof(key));
    std::string value(reinterpret_cast<const char*>(chunk.rows.data()) + at + sizeof(Key), value_bytes);
    if (!part.puts.emplace(key, std::move(value)).second) {
      return Internal(fmt::format("table {}, partition {}: key {} twice", chunk.table, chunk.partition, key));
    }
  }
  part.deletes.insert(chunk.deleted.begin(), chunk.deleted.end());
  if (!chunk.last) return absl::OkStatus();
  ContentDigest digest;
  for (const auto& [key, value] : part.puts) digest.AddRow(chunk.table, key, value.data(), value.size());
  if (chunk.partition_rows != part.puts.size() || !(chunk.digest == digest)) {
    return DataLoss(fmt::format("table {}, partition {}: {} rows arrived, {} were sent, or their digests differ",
                                chunk.table, chunk.partition, part.puts.size(), chunk.partition_rows));
  }
  return absl::OkStatus();
}

// Copies the parent's files: names in its record lie below the checkpoint's folder, as ours do.
absl::Status FakeSnapshotSink::LinkParent(ShardRecord* record) {
  if (order_.parent_folder.empty()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(const ShardRecord parent, ReadFakeRecord(fs_, order_.parent_folder));
  for (const StoredLayer& layer : parent.layer()) {
    StoredLayer* copy = record->add_layer();
    *copy = layer;
    for (StoredFile& file : *copy->mutable_file()) {
      const std::string name = LastName(file.name());
      CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes,
                               ReadWholeFile(fs_, order_.parent_folder + "/" + name, kMaxLayerBytes));
      CAPSTAN_RETURN_IF_ERROR(WriteFakeFile(fs_, order_.folder + "/" + name, bytes));
      file.set_name(ShardFolderName(order_.shard) + "/" + name);
    }
  }
  return absl::OkStatus();
}

absl::Status FakeSnapshotSink::WriteLayer(ShardRecord* record) {
  StoredLayer* layer = record->add_layer();
  layer->set_checkpoint(order_.id);
  std::string bytes;
  for (auto& [place, part] : parts_) {
    for (const auto& [key, value] : part.puts) part.deletes.erase(key);
    if (part.puts.empty() && part.deletes.empty()) continue;
    ContentDigest digest;
    for (const auto& [key, value] : part.puts) {
      AppendFakeRecord({place.first, place.second, key}, &value, &bytes);
      digest.AddRow(place.first, key, value.data(), value.size());
    }
    for (const Key key : part.deletes) AppendFakeRecord({place.first, place.second, key}, nullptr, &bytes);
    LayerPartition* about = layer->add_part();
    about->set_table(place.first);
    about->set_partition(place.second);
    about->set_puts(part.puts.size());
    about->set_deletes(part.deletes.size());
    about->set_digest_low(digest.low);
    about->set_digest_high(digest.high);
    if (!part.puts.empty()) {
      const size_t value = part.puts.begin()->second.size();
      about->set_floats(static_cast<uint32_t>((value - kStoredCounterBytes) / sizeof(float)));
    }
  }
  if (bytes.empty()) return absl::OkStatus();  // a layer without a record has no file
  const std::string name = fmt::format("{}-0000.sst", CheckpointFolderName(order_.id));
  CAPSTAN_RETURN_IF_ERROR(WriteFakeFile(fs_, order_.folder + "/" + name, bytes));
  StoredFile* file = layer->add_file();
  file->set_name(ShardFolderName(order_.shard) + "/" + name);
  file->set_bytes(bytes.size());
  CAPSTAN_ASSIGN_OR_RETURN(*file->mutable_xxh3(), HashFile(fs_, order_.folder + "/" + name));
  return absl::OkStatus();
}

absl::Status FakeSnapshotSink::Write(const ShardRecord& record) {
  if (place_ && !place_ended_) return Internal("the last partition was never ended");
  ShardRecord whole = record;
  whole.clear_layer();
  CAPSTAN_RETURN_IF_ERROR(LinkParent(&whole));
  CAPSTAN_RETURN_IF_ERROR(WriteLayer(&whole));
  for (PartitionRows& rows : *whole.mutable_rows()) {
    if (!order_.model_sha256) break;
    const Sha256Digest digest =
        HashRows(parts_[{static_cast<TableId>(rows.table()), rows.partition()}].puts);
    rows.set_sha256(digest.data(), digest.size());
  }
  const std::string framed = FrameRecord(whole.SerializeAsString());
  const std::string path = order_.folder + "/" + kShardRecordFile;
  CAPSTAN_RETURN_IF_ERROR(WriteFakeFile(fs_, path, framed));
  CAPSTAN_RETURN_IF_ERROR(fs_.SyncFolder(order_.folder));
  SnapshotResult result = {order_.id, absl::OkStatus(), framed.size(), ""};
  CAPSTAN_ASSIGN_OR_RETURN(result.record_xxh3, HashFile(fs_, path));
  polls_left_ = options_.delay_polls;
  result_ = std::move(result);
  return absl::OkStatus();
}

void FakeSnapshotSink::RemoveFolder() {
  const absl::StatusOr<std::vector<std::string>> names = fs_.List(order_.folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (absl::Status status = fs_.Remove(order_.folder + "/" + name); !status.ok()) LOG(WARNING) << status;
  }
  if (absl::Status status = fs_.Remove(order_.folder); !status.ok()) LOG(WARNING) << status;
}

namespace {

class FakeRowSource final : public RowSource {
 public:
  static absl::StatusOr<std::unique_ptr<RowSource>> Open(FileSystem& fs, const std::string& folder) {
    auto source = std::make_unique<FakeRowSource>();
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(folder));
    for (const std::string& name : names) {
      if (name.compare(0, 6, "shard-") != 0) continue;
      CAPSTAN_RETURN_IF_ERROR(While(fmt::format("reading '{}/{}'", folder, name), source->Load(fs, folder, name)));
    }
    if (source->records_.empty()) return NotFound(fmt::format("'{}' has no part of a shard", folder));
    return source;
  }

  std::vector<const ShardRecord*> records() const override {
    std::vector<const ShardRecord*> records;
    for (const ShardRecord& record : records_) records.push_back(&record);
    return records;
  }

  absl::Status ForEach(TableId table, PartitionId first, PartitionId last,
                       const std::function<absl::Status(const StoredRow& row)>& visit) const override {
    const auto end = rows_.lower_bound({table, last, 0});
    for (auto at = rows_.lower_bound({table, first, 0}); at != end; ++at) {
      const std::string& value = at->second;
      StoredRow row;
      row.key = at->first.key;
      row.partition = at->first.partition;
      row.floats = static_cast<uint32_t>((value.size() - kStoredCounterBytes) / sizeof(float));
      std::vector<float> floats(row.floats);
      std::memcpy(floats.data(), value.data(), floats.size() * sizeof(float));
      row.values = floats.data();
      const char* counters = value.data() + value.size() - kStoredCounterBytes;
      std::memcpy(&row.last_step, counters, sizeof(row.last_step));
      std::memcpy(&row.updates, counters + sizeof(row.last_step), sizeof(row.updates));
      CAPSTAN_RETURN_IF_ERROR(visit(row));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Load(FileSystem& fs, const std::string& folder, const std::string& name) {
    CAPSTAN_ASSIGN_OR_RETURN(ShardRecord record, ReadFakeRecord(fs, folder + "/" + name));
    for (const StoredLayer& layer : record.layer()) {
      for (const StoredFile& file : layer.file()) CAPSTAN_RETURN_IF_ERROR(LoadFile(fs, folder, file));
    }
    for (const PartitionRows& rows : record.rows()) {
      const TableId table = static_cast<TableId>(rows.table());
      const auto found = static_cast<uint64_t>(std::distance(rows_.lower_bound({table, rows.partition(), 0}),
                                                             rows_.lower_bound({table, rows.partition() + 1, 0})));
      if (found == rows.rows()) continue;
      return DataLoss(fmt::format("table {}, partition {} has {} rows, {} by its record", table, rows.partition(),
                                  found, rows.rows()));
    }
    records_.push_back(std::move(record));
    return absl::OkStatus();
  }

  absl::Status LoadFile(FileSystem& fs, const std::string& folder, const StoredFile& file) {
    const std::string path = folder + "/" + file.name();
    CAPSTAN_ASSIGN_OR_RETURN(const std::string hash, HashFile(fs, path));
    if (hash != file.xxh3()) return DataLoss(fmt::format("'{}' is damaged: its hash is another one", path));
    CAPSTAN_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(fs, path, kMaxLayerBytes));
    return ParseFakeLayer(bytes, [&](const StoredKey& key, bool deleted, std::string_view value) {
      if (deleted) {
        rows_.erase(key);
      } else {
        rows_[key] = std::string(value);
      }
    });
  }

  std::vector<ShardRecord> records_;
  std::map<StoredKey, std::string> rows_;
};

}  // namespace

OpenRowSource FakeRowSources(FileSystem& fs) {
  return [&fs](const std::string& folder) { return FakeRowSource::Open(fs, folder); };
}

}  // namespace capstan::testing
