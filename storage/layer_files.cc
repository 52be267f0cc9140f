#include "storage/layer_files.h"

#include <algorithm>

#include <fmt/core.h>
#include <rocksdb/comparator.h>
#include <rocksdb/iterator.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table_properties.h>

#include "storage/rocksdb_options.h"

namespace capstan {
namespace {

constexpr size_t kReadAheadBytes = size_t{512} << 10;
constexpr char kReadingFile[] = "reading";

absl::Status Damaged(const std::string& path, std::string_view what) {
  return DataLoss(
      fmt::format("'{}' is damaged: {}; use another checkpoint or restore the file from a copy", path, what));
}

std::string_view View(const rocksdb::Slice& slice) { return {slice.data(), slice.size()}; }

// An iterator shows only plain entries, so a file that has others was not written by us.
absl::Status CheckProperties(const rocksdb::TableProperties& properties, const std::string& path) {
  if (properties.num_deletions != 0 || properties.num_range_deletions != 0 ||
      properties.num_merge_operands != 0 ||
      properties.comparator_name != rocksdb::BytewiseComparator()->Name()) {
    return Damaged(path, "it holds entries or an order that Capstan does not write");
  }
  return absl::OkStatus();
}

bool HasPart(const StoredLayer& layer, const RowPlace& place) {
  const auto& parts = layer.part();
  const auto found =
      std::lower_bound(parts.begin(), parts.end(), place,
                       [](const LayerPartition& part, const RowPlace& p) { return PlaceOf(part) < p; });
  return found != parts.end() && PlaceOf(*found) == place;
}

absl::StatusOr<StoredKey> FirstKey(rocksdb::SstFileReader& reader, const std::string& path) {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  const std::unique_ptr<rocksdb::Iterator> iterator(reader.NewIterator(options));
  iterator->SeekToFirst();
  if (!iterator->status().ok()) return FromRocksDb(kReadingFile, path, iterator->status());
  if (!iterator->Valid()) return Damaged(path, "it holds no record");
  absl::StatusOr<StoredKey> key = DecodeStoredKey(View(iterator->key()));
  if (!key.ok()) return Damaged(path, std::string(key.status().message()));
  return key;
}

}  // namespace

LayerFiles::LayerFiles(const StoredLayer& record, const std::string& folder)
    : record_(record), folder_(folder) {}
LayerFiles::~LayerFiles() = default;

absl::StatusOr<const std::vector<LayerFiles::File>*> LayerFiles::Files() const {
  const std::lock_guard lock(mutex_);
  if (files_.size() != static_cast<size_t>(record_.file_size())) {
    std::vector<File> files;
    CAPSTAN_RETURN_IF_ERROR(OpenAll(&files));
    files_ = std::move(files);
  }
  return &files_;
}

absl::Status LayerFiles::OpenAll(std::vector<File>* files) const {
  uint64_t entries = 0;
  for (const StoredFile& stored : record_.file()) {
    File file;
    file.path = folder_ + "/" + stored.name();
    file.reader = std::make_unique<rocksdb::SstFileReader>(TableFileOptions());
    if (const rocksdb::Status status = file.reader->Open(file.path); !status.ok())
      return FromRocksDb("opening", file.path, status);
    const auto properties = file.reader->GetTableProperties();
    if (properties == nullptr) return Damaged(file.path, "it does not say what is in it");
    CAPSTAN_RETURN_IF_ERROR(CheckProperties(*properties, file.path));
    entries += properties->num_entries;
    CAPSTAN_ASSIGN_OR_RETURN(file.first, FirstKey(*file.reader, file.path));
    if (!HasPart(record_, PlaceOf(file.first)))
      return Damaged(file.path, "it begins with a partition that its layer does not have");
    if (!files->empty() && files->back().first >= file.first)
      return Damaged(file.path, "its keys do not come after those of the file before");
    files->push_back(std::move(file));
  }
  uint64_t wanted = 0;
  for (const LayerPartition& part : record_.part()) wanted += part.puts() + part.deletes();
  if (entries == wanted) return absl::OkStatus();
  return Damaged(
      files->empty() ? folder_ : files->back().path,
      fmt::format("the files of its layer hold {} records, the shard's record says {}", entries, wanted));
}

LayerCursor::LayerCursor(const LayerFiles& layer, For use) : layer_(layer), use_(use) {}
LayerCursor::~LayerCursor() = default;
LayerCursor::LayerCursor(LayerCursor&&) noexcept = default;

std::string_view LayerCursor::value() const { return View(iterator_->value()); }

absl::Status LayerCursor::OpenFile(size_t file) {
  file_ = file;
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  options.fill_cache = use_ == For::kPoint;
  if (use_ == For::kScan) options.readahead_size = kReadAheadBytes;
  iterator_.reset((*files_)[file].reader->NewIterator(options));
  return absl::OkStatus();
}

absl::Status LayerCursor::Seek(const StoredKey& first) {
  CAPSTAN_ASSIGN_OR_RETURN(files_, layer_.Files());
  valid_ = false;
  ordered_ = false;
  if (files_->empty()) return absl::OkStatus();
  size_t file = 0;
  while (file + 1 < files_->size() && (*files_)[file + 1].first <= first) ++file;
  if (iterator_ == nullptr || file != file_) CAPSTAN_RETURN_IF_ERROR(OpenFile(file));
  const auto bytes = EncodeStoredKey(first);
  iterator_->Seek(rocksdb::Slice(bytes.data(), bytes.size()));
  CAPSTAN_RETURN_IF_ERROR(Arrive());
  if (valid_ && key_ < first) return Damaged(path(), "its index does not fit its records");
  return absl::OkStatus();
}

absl::Status LayerCursor::Next() {
  iterator_->Next();
  return Arrive();
}

absl::Status LayerCursor::Arrive() {
  while (!iterator_->Valid()) {
    valid_ = false;
    if (!iterator_->status().ok()) return FromRocksDb(kReadingFile, path(), iterator_->status());
    if (file_ + 1 == files_->size()) return absl::OkStatus();
    CAPSTAN_RETURN_IF_ERROR(OpenFile(file_ + 1));
    iterator_->SeekToFirst();
  }
  valid_ = true;
  const absl::StatusOr<StoredKey> key = DecodeStoredKey(View(iterator_->key()));
  if (!key.ok()) return Damaged(path(), std::string(key.status().message()));
  if (ordered_ && *key <= key_) return Damaged(path(), "its keys are not in order");
  key_ = *key;
  ordered_ = true;
  return absl::OkStatus();
}

}  // namespace capstan
