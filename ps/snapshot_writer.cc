#include "ps/snapshot_writer.h"

#include <sched.h>

#include <algorithm>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/file_system.h"
#include "storage/checkpoint_records.h"

namespace capstan {
namespace {

constexpr uint64_t kRowsPerYield = 256;  // about 50 us of work
constexpr int kWaitPerWork = 8;          // of a yield, at most, to the work until the next; what nice 10 would get

constexpr uint64_t kSpaceCheckBytes = uint64_t{16} << 20;
constexpr size_t kCopyBytes = size_t{1} << 20;

std::string SizeText(uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", value / 1e6) : fmt::format("{:.1f} GB", value / 1e9);
}

std::string PlaceText(uint32_t table, uint32_t partition) {
  return fmt::format("table {}, partition {}", table, partition);
}

absl::Status CloseSynced(WritableFile& file, bool sync) {
  if (sync) CAPSTAN_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

absl::Status CopyFile(FileSystem& fs, const std::string& from, const std::string& to, bool sync) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> source, fs.Open(from));
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> target, fs.Create(to));
  std::vector<std::byte> block(kCopyBytes);
  for (uint64_t at = 0; at < source->size(); at += block.size()) {
    const size_t size = static_cast<size_t>(std::min<uint64_t>(block.size(), source->size() - at));
    CAPSTAN_RETURN_IF_ERROR(source->Read(at, block.data(), size));
    CAPSTAN_RETURN_IF_ERROR(target->Append(block.data(), size));
  }
  return CloseSynced(*target, sync);
}

}  // namespace

absl::Status SnapshotWriter::Begin(const SnapshotOrder& order) {
  order_ = order;
  folder_made_ = false;
  in_partition_ = any_place_ = false;
  expected_.clear();
  written_ = checked_at_ = 0;
  FileSystem& fs = PosixFileSystem();
  const std::string checkpoint = ParentFolder(order.folder);
  CAPSTAN_ASSIGN_OR_RETURN(const bool exists, fs.Exists(checkpoint));
  if (!exists) {
    return NotFound(fmt::format("'{}' does not exist: the checkpoint was given up, or this host does not see the folder "
                                "of checkpoints", checkpoint));
  }
  compactor_.UseFolder(ParentFolder(checkpoint), order.shard);
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t free, fs.FreeBytes(checkpoint));
  const uint64_t wanted = order.expected_bytes + options_.reserve_bytes;
  if (free < wanted) {
    return Unavailable(fmt::format("{} free in '{}', {} wanted; make room there", SizeText(free), checkpoint,
                                   SizeText(wanted)));
  }
  CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(order.folder));
  folder_made_ = true;
  LayerWriterOptions options;
  options.folder = order.folder;
  options.name_prefix = ShardFolderName(order.shard) + "/";
  options.checkpoint = order.id;
  options.sync = options_.sync;
  CAPSTAN_ASSIGN_OR_RETURN(layer_, LayerWriter::Create(options));
  return absl::OkStatus();
}

// The first chunk of a partition opens it, the last one closes it.
absl::Status SnapshotWriter::Enter(const RingChunk& chunk) {
  const Place place(static_cast<TableId>(chunk.table), chunk.partition);
  if (in_partition_ && place == place_) return absl::OkStatus();
  if (in_partition_ || (any_place_ && place <= place_)) {
    return Internal(fmt::format("{} came after {}", PlaceText(chunk.table, chunk.partition),
                                PlaceText(place_.first, place_.second)));
  }
  const auto known = std::find_if(order_.tables.begin(), order_.tables.end(), [&](const SnapshotOrder::Table& table) {
    return table.id == chunk.table && table.floats == chunk.floats;
  });
  if (known == order_.tables.end()) {
    return Internal(fmt::format("{} with {} floats a row is not in the order", PlaceText(chunk.table, chunk.partition),
                                chunk.floats));
  }
  buffer_.Start(chunk.floats);
  place_ = place;
  in_partition_ = any_place_ = true;
  return absl::OkStatus();
}

absl::Status SnapshotWriter::Add(const RingChunk& chunk, const std::function<void(void* out, size_t bytes)>& read) {
  CAPSTAN_RETURN_IF_ERROR(Enter(chunk));
  if (chunk.row_bytes % buffer_.record_bytes() != 0) {
    return Internal(fmt::format("{}: {} bytes are no whole rows of {}", PlaceText(chunk.table, chunk.partition),
                                chunk.row_bytes, buffer_.record_bytes()));
  }
  read(buffer_.AddRows(chunk.row_bytes), chunk.row_bytes);
  read(buffer_.AddDeletes(chunk.deleted_keys), chunk.deleted_keys * sizeof(Key));
  if (chunk.last == 0) return absl::OkStatus();
  in_partition_ = false;
  return WritePartition(chunk);
}

absl::Status SnapshotWriter::WritePartition(const RingChunk& chunk) {
  const std::string where = PlaceText(chunk.table, chunk.partition);
  if (buffer_.rows() != chunk.partition_rows) {
    return DataLoss(fmt::format("{}: {} rows arrived of {} sent", where, buffer_.rows(), chunk.partition_rows));
  }
  CAPSTAN_RETURN_IF_ERROR(While(where, buffer_.Sort()));
  const bool hashed = order_.model_sha256 && order_.parent_folder.empty();
  Sha256 hash;
  StoredKey key = {place_.first, place_.second, 0};
  const std::span<const Key> deletes = buffer_.deletes();
  size_t deleted = 0;
  for (const SortedRow& row : buffer_.sorted()) {
    for (; deleted < deletes.size() && deletes[deleted] < row.key; ++deleted) {
      key.key = deletes[deleted];
      CAPSTAN_RETURN_IF_ERROR(layer_->Delete(key));
    }
    const std::span<const std::byte> record = buffer_.Record(row);
    if (hashed) hash.Update(record.data(), record.size() - kStoredCounterBytes);
    CAPSTAN_RETURN_IF_ERROR(layer_->PutRecord(place_.first, place_.second, record));
    if (++since_yield_ % kRowsPerYield == 0) Yield();
  }
  for (; deleted < deletes.size(); ++deleted) {
    key.key = deletes[deleted];
    CAPSTAN_RETURN_IF_ERROR(layer_->Delete(key));
  }
  if (buffer_.rows() > 0) {
    Expected& expected = expected_[place_];
    expected.rows = chunk.partition_rows;
    expected.digest = {chunk.digest_low, chunk.digest_high};
    if (hashed) expected.sha256 = hash.Finish();
  }
  written_ += buffer_.rows() * buffer_.record_bytes();
  return CheckSpace();
}

// A low priority alone lets us keep a core for milliseconds while a shard waits for it. But where others always want it,
// a yield takes tens of milliseconds: yielding all the time, we would come nearly to a halt, and the shard's updates
// with us once its copies are full.
void SnapshotWriter::Yield() {
  const Time begin = clock_.Now();
  if (begin < next_yield_) return;
  sched_yield();
  const Time end = clock_.Now();
  next_yield_ = end + (end - begin) / kWaitPerWork;
}

// SstFileWriter tells of a full disk at the end of a file only, and may abort.
absl::Status SnapshotWriter::CheckSpace() {
  if (written_ - checked_at_ < kSpaceCheckBytes) return absl::OkStatus();
  checked_at_ = written_;
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t free, PosixFileSystem().FreeBytes(order_.folder));
  if (free >= options_.reserve_bytes) return absl::OkStatus();
  return Unavailable(fmt::format("{} free in '{}' after writing {}, {} wanted; make room there", SizeText(free),
                                 order_.folder, SizeText(written_), SizeText(options_.reserve_bytes)));
}

// The layer's digests are of what went to its files: they cover the way from the shard's tables to here.
absl::Status SnapshotWriter::CheckLayer(const StoredLayer& layer) const {
  size_t found = 0;
  for (const LayerPartition& part : layer.part()) {
    if (part.puts() == 0) continue;
    ++found;
    const auto expected = expected_.find({static_cast<TableId>(part.table()), part.partition()});
    if (expected != expected_.end() && expected->second.rows == part.puts() &&
        expected->second.digest == ContentDigest{part.digest_low(), part.digest_high()}) {
      continue;
    }
    return DataLoss(fmt::format("{}: the rows written are not those that the shard sent (their digest differs); check "
                                "this machine's memory", PlaceText(part.table(), part.partition())));
  }
  if (found == expected_.size()) return absl::OkStatus();
  return Internal(fmt::format("{} partitions written of {}", found, expected_.size()));
}

absl::Status SnapshotWriter::LinkFiles(const StoredLayer& layer, const std::string& folder, ShardRecord* record) {
  FileSystem& fs = PosixFileSystem();
  StoredLayer* const ours = record->add_layer();
  *ours = layer;
  for (StoredFile& file : *ours->mutable_file()) {
    const std::string name = file.name().substr(file.name().rfind('/') + 1);
    file.set_name(ShardFolderName(order_.shard) + "/" + name);
    const std::string from = folder + "/" + name;
    const std::string to = order_.folder + "/" + name;
    const absl::Status linked = fs.HardLink(from, to);
    if (linked.ok()) continue;
    if (absl::IsNotFound(linked)) return linked;
    CAPSTAN_RETURN_IF_ERROR(While(std::string(linked.message()), CopyFile(fs, from, to, options_.sync)));
  }
  return absl::OkStatus();
}

absl::Status SnapshotWriter::AddParentLayers(ShardRecord* record) {
  if (order_.parent_folder.empty()) return absl::OkStatus();
  CAPSTAN_ASSIGN_OR_RETURN(
      const std::string bytes,
      ReadRecord(PosixFileSystem(), order_.parent_folder + "/" + kShardRecordFile, kMaxRecordBytes));
  ShardRecord parent;
  if (!parent.ParseFromString(bytes)) {
    return DataLoss(fmt::format("'{}/{}' is no record of a shard", order_.parent_folder, kShardRecordFile));
  }
  int next = 0;
  if (const std::optional<ChainCompactor::Merged> merged = compactor_.TakeFor(parent)) {
    CAPSTAN_RETURN_IF_ERROR(LinkFiles(merged->layer, merged->folder, record));
    next = merged->layers;
  }
  for (; next < parent.layer_size(); ++next) {
    CAPSTAN_RETURN_IF_ERROR(LinkFiles(parent.layer(next), order_.parent_folder, record));
  }
  return absl::OkStatus();
}

absl::Status SnapshotWriter::AddHashes(ShardRecord* record) const {
  if (!order_.model_sha256 || !order_.parent_folder.empty()) return absl::OkStatus();
  for (PartitionRows& rows : *record->mutable_rows()) {
    const auto found = expected_.find({static_cast<TableId>(rows.table()), rows.partition()});
    if (found == expected_.end() || found->second.rows != rows.rows()) {
      return Internal(fmt::format("{} has {} rows by the record, others were sent",
                                  PlaceText(rows.table(), rows.partition()), rows.rows()));
    }
    rows.set_sha256(found->second.sha256.data(), found->second.sha256.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<SnapshotResult> SnapshotWriter::WriteRecord(const ShardRecord& record) {
  FileSystem& fs = PosixFileSystem();
  const std::string path = order_.folder + "/" + kShardRecordFile;
  const std::string framed = FrameRecord(record.SerializeAsString());
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(path));
  CAPSTAN_RETURN_IF_ERROR(file->Append(framed.data(), framed.size()));
  CAPSTAN_RETURN_IF_ERROR(CloseSynced(*file, options_.sync));
  if (options_.sync) {
    CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(order_.folder));
    CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(ParentFolder(order_.folder)));
  }
  SnapshotResult result;
  result.id = order_.id;
  result.record_bytes = framed.size();
  CAPSTAN_ASSIGN_OR_RETURN(result.record_xxh3, HashFile(fs, path));
  return result;
}

absl::StatusOr<SnapshotResult> SnapshotWriter::Finish(ShardRecord record) {
  if (in_partition_) return Internal(PlaceText(place_.first, place_.second) + " was not ended");
  CAPSTAN_ASSIGN_OR_RETURN(const StoredLayer layer, layer_->Finish());
  layer_.reset();
  CAPSTAN_RETURN_IF_ERROR(CheckLayer(layer));
  record.clear_layer();
  CAPSTAN_RETURN_IF_ERROR(AddParentLayers(&record));
  *record.add_layer() = layer;
  CAPSTAN_RETURN_IF_ERROR(AddHashes(&record));
  CAPSTAN_ASSIGN_OR_RETURN(SnapshotResult result, WriteRecord(record));
  folder_made_ = false;  // no longer ours to remove
  if (record.layer_size() == 1) compactor_.Cancel();  // a full one: the chain before it is of no use
  if (options_.compact_layers > 0 && static_cast<uint32_t>(record.layer_size()) >= options_.compact_layers) {
    compactor_.Start(record, order_.folder, options_.reserve_bytes);
  }
  return result;
}

void SnapshotWriter::Drop() {
  layer_.reset();
  if (!folder_made_) return;
  folder_made_ = false;
  if (absl::Status status = RemoveTree(PosixFileSystem(), order_.folder); !status.ok()) LOG(WARNING) << status;
}

}  // namespace capstan
