#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/partition_map.h"
#include "proto/control.pb.h"
#include "storage/model_store.h"
#include "storage/part_format.h"

namespace capstan {
// (Not in the anonymous namespace: members of types that have linkage.)
struct LoadedBlock {
  std::vector<Key> keys;
  std::vector<float> values;  // [keys, kept floats of the table]
};

struct LoadedTable {
  std::string name;
  uint32_t width = 0;
  uint32_t floats = 0;  // of a record on disk; 0 until the first block
  uint32_t kept = 0;    // floats of a record in memory
  uint64_t rows = 0;
  std::vector<uint32_t> block_of_partition;  // index into blocks, or kNoBlock
  std::vector<LoadedBlock> blocks;
};

namespace {

constexpr size_t kReadChunkBytes = size_t{1} << 20;
constexpr uint32_t kNoBlock = ~uint32_t{0};

// Reads a file from front to back, hashing what it hands out.
class HashingReader {
 public:
  explicit HashingReader(const RandomAccessFile& file) : file_(file) {}
  uint64_t left() const { return file_.size() - offset_; }
  absl::Status Read(void* out, size_t size) {
    CAPSTAN_RETURN_IF_ERROR(file_.Read(offset_, out, size));
    hash_.Update(out, size);
    offset_ += size;
    return absl::OkStatus();
  }
  Sha256Digest Finish() { return hash_.Finish(); }

 private:
  const RandomAccessFile& file_;
  uint64_t offset_ = 0;
  Sha256 hash_;
};

}  // namespace

struct SavedModel::Impl {
  ModelManifest manifest;
  Keep keep = Keep::kWeights;
  uint32_t partitions = 0;
  std::vector<LoadedTable> tables;  // by wire id; an id that is not used has width 0
  std::vector<PartitionSum> sums;
  std::string model_sha256;

  void PrepareTables();
  absl::Status ReadPart(FileSystem& fs, const std::string& folder, const ModelManifest::Part& part);
  absl::Status ReadBlocks(HashingReader* reader);
  absl::Status ReadBlock(const PartBlock& header, HashingReader* reader);
  absl::StatusOr<LoadedTable*> TableOf(const PartBlock& header, uint64_t left);
  absl::Status CheckTotals(const std::string& folder);
};

void SavedModel::Impl::PrepareTables() {
  partitions = manifest.job().config().cluster().partitions();
  for (const TableSpec& spec : manifest.job().table()) {
    if (spec.id() >= tables.size()) tables.resize(spec.id() + 1);
    LoadedTable& table = tables[spec.id()];
    table.name = spec.name();
    table.width = spec.width();
    table.block_of_partition.assign(partitions, kNoBlock);
  }
}

// The table that a block belongs to, once everything in the block's header is plausible. What is allocated
// for the block afterwards is therefore bounded by the size of the file.
absl::StatusOr<LoadedTable*> SavedModel::Impl::TableOf(const PartBlock& header, uint64_t left) {
  if (header.magic != kBlockMagic)
    return DataLoss(fmt::format("no block or end where one must be ({:#x})", header.magic));
  if (header.table >= tables.size() || tables[header.table].width == 0) {
    return DataLoss(fmt::format("a block of table {}, which the manifest does not know", header.table));
  }
  LoadedTable& table = tables[header.table];
  if (header.partition >= partitions || table.block_of_partition[header.partition] != kNoBlock) {
    return DataLoss(fmt::format("table '{}': partition {} is twice in the model or not below {}", table.name,
                                header.partition, partitions));
  }
  if (header.floats < table.width || header.floats > kMaxRecordFloats ||
      (table.floats != 0 && table.floats != header.floats)) {
    return DataLoss(fmt::format("table '{}' of width {}: a block of {} floats a row, others have {}",
                                table.name, table.width, header.floats, table.floats));
  }
  if (header.rows == 0 || header.rows > left / RecordBytes(header.floats)) {
    return DataLoss(
        fmt::format("table '{}', partition {}: {} rows do not fit into the {} bytes that are left",
                    table.name, header.partition, header.rows, left));
  }
  return &table;
}

absl::Status SavedModel::Impl::ReadBlock(const PartBlock& header, HashingReader* reader) {
  CAPSTAN_ASSIGN_OR_RETURN(LoadedTable* const table, TableOf(header, reader->left()));
  table->floats = header.floats;
  table->kept = keep == Keep::kWeights ? table->width : header.floats;
  LoadedBlock block;
  block.keys.reserve(header.rows);
  block.values.reserve(header.rows * table->kept);
  const size_t record = RecordBytes(header.floats);
  const size_t records_per_chunk = std::max<size_t>(1, kReadChunkBytes / record);
  std::string chunk;
  Sha256 hash;
  for (uint64_t done = 0; done < header.rows;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(records_per_chunk, header.rows - done));
    chunk.resize(n * record);
    CAPSTAN_RETURN_IF_ERROR(reader->Read(chunk.data(), chunk.size()));
    hash.Update(chunk.data(), chunk.size());
    for (size_t i = 0; i < n; ++i) {
      const char* const from = chunk.data() + i * record;
      Key key = 0;
      std::memcpy(&key, from, sizeof(key));
      if (PartitionOf(key, partitions) != header.partition ||
          (!block.keys.empty() && key <= block.keys.back())) {
        return DataLoss(
            fmt::format("table '{}', partition {}: key {} is out of order or of another partition",
                        table->name, header.partition, key));
      }
      block.keys.push_back(key);
      const size_t old_size = block.values.size();
      block.values.resize(old_size + table->kept);
      std::memcpy(block.values.data() + old_size, from + sizeof(key), table->kept * sizeof(float));
    }
    done += n;
  }
  table->rows += header.rows;
  table->block_of_partition[header.partition] = static_cast<uint32_t>(table->blocks.size());
  table->blocks.push_back(std::move(block));
  sums.push_back({static_cast<TableId>(header.table), header.partition, header.rows, hash.Finish()});
  return absl::OkStatus();
}

absl::Status SavedModel::Impl::ReadBlocks(HashingReader* reader) {
  PartHeader header;
  CAPSTAN_RETURN_IF_ERROR(reader->Read(&header, sizeof(header)));
  if (header.magic != kPartMagic || header.zero != 0) return DataLoss("it does not begin like a part file");
  if (header.version != kModelFormat) {
    return DataLoss(fmt::format("it has version {}, the manifest says {}", header.version, kModelFormat));
  }
  uint64_t blocks = 0;
  uint64_t rows = 0;
  while (true) {
    PartBlock block;
    CAPSTAN_RETURN_IF_ERROR(reader->Read(&block, sizeof(block)));
    if (block.magic == kEndMagic) {
      const PartBlock end = PartEnd(blocks, rows);
      if (std::memcmp(&block, &end, sizeof(end)) != 0) {
        return DataLoss(
            fmt::format("its end counts other than the {} blocks and {} rows read", blocks, rows));
      }
      if (reader->left() != 0) return DataLoss(fmt::format("{} bytes follow its end", reader->left()));
      return absl::OkStatus();
    }
    CAPSTAN_RETURN_IF_ERROR(ReadBlock(block, reader));
    ++blocks;
    rows += block.rows;
  }
}

absl::Status SavedModel::Impl::ReadPart(FileSystem& fs, const std::string& folder,
                                        const ModelManifest::Part& part) {
  const std::string path = folder + "/" + part.file();
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs.Open(path));
  const std::string doing = fmt::format("'{}' is damaged; restore it from a copy", path);
  if (file->size() != part.bytes()) {
    return While(doing,
                 DataLoss(fmt::format("it has {} bytes, the manifest says {}", file->size(), part.bytes())));
  }
  HashingReader reader(*file);
  CAPSTAN_RETURN_IF_ERROR(While(doing, ReadBlocks(&reader)));
  const Sha256Digest digest = reader.Finish();
  if (std::memcmp(digest.data(), part.sha256().data(), digest.size()) != 0) {
    return While(doing, DataLoss("its SHA-256 is not the manifest's"));
  }
  return absl::OkStatus();
}

absl::Status SavedModel::Impl::CheckTotals(const std::string& folder) {
  std::vector<std::string> names;
  uint64_t rows = 0;
  for (const LoadedTable& table : tables) {
    names.push_back(table.name);
    rows += table.rows;
  }
  model_sha256 = ModelSha256(names, std::move(sums));
  if (rows != manifest.rows() || model_sha256 != manifest.model_sha256()) {
    return DataLoss(fmt::format("'{}': {} rows with SHA-256 {} were read, the manifest says {} and {}",
                                folder, rows, model_sha256, manifest.rows(), manifest.model_sha256()));
  }
  return absl::OkStatus();
}

SavedModel::SavedModel() : impl_(std::make_unique<Impl>()) {}
SavedModel::~SavedModel() = default;

absl::StatusOr<std::unique_ptr<SavedModel>> SavedModel::Load(FileSystem& fs, const std::string& folder,
                                                             Keep keep) {
  std::unique_ptr<SavedModel> model(new SavedModel);
  Impl& impl = *model->impl_;
  CAPSTAN_ASSIGN_OR_RETURN(impl.manifest, ReadManifest(fs, folder));
  impl.keep = keep;
  impl.PrepareTables();
  for (const ModelManifest::Part& part : impl.manifest.part()) {
    CAPSTAN_RETURN_IF_ERROR(impl.ReadPart(fs, folder, part));
  }
  CAPSTAN_RETURN_IF_ERROR(impl.CheckTotals(folder));
  return model;
}

const ModelManifest& SavedModel::manifest() const { return impl_->manifest; }
const std::string& SavedModel::model_sha256() const { return impl_->model_sha256; }

uint32_t SavedModel::width(TableId table) const {
  return table < impl_->tables.size() ? impl_->tables[table].width : 0;
}

uint64_t SavedModel::rows(TableId table) const {
  return table < impl_->tables.size() ? impl_->tables[table].rows : 0;
}

const float* SavedModel::Find(TableId id, Key key) const {
  if (rows(id) == 0) return nullptr;
  const LoadedTable& table = impl_->tables[id];
  const uint32_t index = table.block_of_partition[PartitionOf(key, impl_->partitions)];
  if (index == kNoBlock) return nullptr;
  const LoadedBlock& block = table.blocks[index];
  const auto found = std::lower_bound(block.keys.begin(), block.keys.end(), key);
  if (found == block.keys.end() || *found != key) return nullptr;
  return block.values.data() + static_cast<size_t>(found - block.keys.begin()) * table.kept;
}

void SavedModel::ForEach(TableId id, const std::function<void(Key, std::span<const float>)>& visit) const {
  if (rows(id) == 0) return;
  const LoadedTable& table = impl_->tables[id];
  for (const uint32_t index : table.block_of_partition) {
    if (index == kNoBlock) continue;
    const LoadedBlock& block = table.blocks[index];
    for (size_t i = 0; i < block.keys.size(); ++i) {
      visit(block.keys[i], {block.values.data() + i * table.kept, table.kept});
    }
  }
}

}  // namespace capstan
