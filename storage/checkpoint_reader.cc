#include "storage/checkpoint_reader.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "common/sha256.h"
#include "storage/folder_lock.h"
#include "storage/layer_files.h"
#include "storage/model_hash.h"

namespace capstan {
namespace {

// A row's floats and counters, at an address that floats may have.
class RowBuffer {
 public:
  // value: of a length that StoredValueBytes gives.
  StoredRow Fill(const StoredKey& key, std::string_view value) {
    StoredRow row;
    row.key = key.key;
    row.partition = key.partition;
    row.floats = static_cast<uint32_t>((value.size() - kStoredCounterBytes) / sizeof(float));
    floats_.resize(row.floats);
    const size_t float_bytes = size_t{row.floats} * sizeof(float);
    std::memcpy(floats_.data(), value.data(), float_bytes);
    std::memcpy(&row.last_step, value.data() + float_bytes, sizeof(row.last_step));
    std::memcpy(&row.updates, value.data() + float_bytes + sizeof(row.last_step), sizeof(row.updates));
    row.values = floats_.data();
    return row;
  }

 private:
  std::vector<float> floats_;
};

}  // namespace

using VisitRow = std::function<absl::Status(const StoredRow& row)>;
using TellProgress = std::function<void(uint64_t bytes)>;

struct CheckpointReader::Impl {
  FileSystem* fs = nullptr;
  std::string folder;
  std::unique_ptr<FolderLock> lock;
  CheckpointRecords records;
  uint32_t partitions = 0;
  std::vector<uint32_t> owner;                                   // shard of each partition
  std::vector<std::vector<std::unique_ptr<LayerFiles>>> layers;  // of each shard, oldest first
  std::vector<TableTotals> totals;                               // by table id
  std::vector<uint32_t> floats;                                  // by table id

  void Prepare();
  std::vector<const LayerFiles*> LayersOf(uint32_t shard) const;
  absl::Status ReadRun(MergedRows* rows, TableId table, uint32_t shard, PartitionId first, PartitionId last,
                       const VisitRow& visit) const;
  absl::Status CheckRows(uint32_t shard, RowPlace place, uint64_t seen) const;
  absl::Status ForEach(TableId table, PartitionId first, PartitionId last, const VisitRow& visit) const;
  absl::StatusOr<std::vector<PartitionSum>> SumAll(const TellProgress& progress, uint64_t bytes) const;
  absl::Status CheckSums(const std::vector<PartitionSum>& sums) const;
  std::string HashOf(std::vector<PartitionSum> sums) const;
};

void CheckpointReader::Impl::Prepare() {
  partitions = records.manifest.job().config().cluster().partitions();
  owner.resize(partitions);
  layers.resize(records.shards.size());
  for (uint32_t shard = 0; shard < records.shards.size(); ++shard) {
    const ShardRecord& record = records.shards[shard];
    for (const PartitionRun& run : record.owned())
      std::fill_n(owner.begin() + run.first(), run.count(), shard);
    for (const StoredLayer& layer : record.layer()) {
      layers[shard].push_back(std::make_unique<LayerFiles>(layer, folder));
      for (const LayerPartition& part : layer.part()) {
        if (part.table() >= floats.size()) floats.resize(part.table() + 1);
        floats[part.table()] = std::max(floats[part.table()], part.floats());
      }
    }
  }
  totals.resize(floats.size());
  for (const ShardRecord& record : records.shards) {
    for (const PartitionRows& rows : record.rows()) {
      TableTotals& total = totals[rows.table()];
      total.rows += rows.rows();
      total.bytes += rows.rows() * (kStoredKeyBytes + StoredValueBytes(floats[rows.table()]));
    }
  }
}

std::vector<const LayerFiles*> CheckpointReader::Impl::LayersOf(uint32_t shard) const {
  std::vector<const LayerFiles*> of_shard;
  for (const auto& layer : layers[shard]) of_shard.push_back(layer.get());
  return of_shard;
}

// After the visits of a partition: were they as many as the record says?
absl::Status CheckpointReader::Impl::CheckRows(uint32_t shard, RowPlace place, uint64_t seen) const {
  const auto& rows = records.shards[shard].rows();
  const auto found =
      std::lower_bound(rows.begin(), rows.end(), place,
                       [](const PartitionRows& r, const RowPlace& p) { return PlaceOf(r) < p; });
  const uint64_t wanted = found != rows.end() && PlaceOf(*found) == place ? found->rows() : 0;
  if (seen == wanted) return absl::OkStatus();
  return DataLoss(fmt::format(
      "'{}/{}/{}' does not fit the shard's files: table {}, partition {} has {} rows, the record says {}",
      folder, ShardFolderName(shard), kShardRecordFile, place.first, place.second, seen, wanted));
}

// Partitions [first, last) of one shard.
absl::Status CheckpointReader::Impl::ReadRun(MergedRows* rows, TableId table, uint32_t shard,
                                             PartitionId first, PartitionId last,
                                             const VisitRow& visit) const {
  CAPSTAN_RETURN_IF_ERROR(rows->Seek({table, first}, {table, last}));
  RowBuffer buffer;
  PartitionId partition = first;
  uint64_t seen = 0;
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, rows->Next());
    const PartitionId next = more ? rows->key().partition : last;
    for (; partition < next; ++partition, seen = 0)
      CAPSTAN_RETURN_IF_ERROR(CheckRows(shard, {table, partition}, seen));
    if (!more) return absl::OkStatus();
    ++seen;
    CAPSTAN_RETURN_IF_ERROR(visit(buffer.Fill(rows->key(), rows->value())));
  }
}

absl::Status CheckpointReader::Impl::ForEach(TableId table, PartitionId first, PartitionId last,
                                             const VisitRow& visit) const {
  last = std::min(last, partitions);
  std::vector<std::unique_ptr<MergedRows>> rows(layers.size());  // made when first needed
  while (first < last) {
    const uint32_t shard = owner[first];
    PartitionId end = first + 1;
    while (end < last && owner[end] == shard) ++end;
    if (rows[shard] == nullptr) rows[shard] = std::make_unique<MergedRows>(LayersOf(shard), partitions);
    CAPSTAN_RETURN_IF_ERROR(ReadRun(rows[shard].get(), table, shard, first, end, visit));
    first = end;
  }
  return absl::OkStatus();
}

// All rows of all tables, hashed as ModelSha256 wants it.
absl::StatusOr<std::vector<PartitionSum>> CheckpointReader::Impl::SumAll(const TellProgress& progress,
                                                                         uint64_t bytes) const {
  constexpr uint64_t kBytesBetweenTells = uint64_t{16} << 20;
  std::vector<PartitionSum> sums;
  uint64_t told = bytes;
  for (const TableSpec& spec : records.manifest.job().table()) {
    const TableId table = static_cast<TableId>(spec.id());
    std::unique_ptr<Sha256> hash;
    const auto close = [&] {
      if (hash != nullptr) sums.back().sha256 = hash->Finish();
      hash = nullptr;
    };
    CAPSTAN_RETURN_IF_ERROR(ForEach(table, 0, partitions, [&](const StoredRow& row) {
      if (hash == nullptr || sums.back().partition != row.partition) {
        close();
        hash = std::make_unique<Sha256>();
        sums.push_back({table, row.partition, 0, {}});
      }
      hash->Update(&row.key, sizeof(row.key));
      hash->Update(row.values, size_t{row.floats} * sizeof(float));
      ++sums.back().rows;
      bytes += kStoredKeyBytes + StoredValueBytes(row.floats);
      if (progress && bytes - told >= kBytesBetweenTells) progress(told = bytes);
      return absl::OkStatus();
    }));
    close();
  }
  if (progress) progress(bytes);
  return sums;
}

absl::Status CheckpointReader::Impl::CheckSums(const std::vector<PartitionSum>& sums) const {
  for (const PartitionSum& sum : sums) {
    const uint32_t shard = owner[sum.partition];
    const auto& rows = records.shards[shard].rows();
    const RowPlace place = {sum.table, sum.partition};
    const auto found =
        std::lower_bound(rows.begin(), rows.end(), place,
                         [](const PartitionRows& r, const RowPlace& p) { return PlaceOf(r) < p; });
    if (found == rows.end() || PlaceOf(*found) != place || !found->has_sha256()) continue;
    const std::string_view seen(reinterpret_cast<const char*>(sum.sha256.data()), sum.sha256.size());
    if (found->sha256() == seen) continue;
    return DataLoss(
        fmt::format("'{}/{}': the rows of table {}, partition {} do not have the SHA-256 of the record",
                    folder, ShardFolderName(shard), sum.table, sum.partition));
  }
  return absl::OkStatus();
}

std::string CheckpointReader::Impl::HashOf(std::vector<PartitionSum> sums) const {
  std::vector<std::string> names;
  for (const TableSpec& table : records.manifest.job().table()) {
    if (table.id() >= names.size()) names.resize(table.id() + 1);
    names[table.id()] = table.name();
  }
  return ModelSha256(names, std::move(sums));
}

CheckpointReader::CheckpointReader() : impl_(std::make_unique<Impl>()) {}
CheckpointReader::~CheckpointReader() = default;

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(FileSystem& fs,
                                                                         const std::string& folder,
                                                                         Verify verify) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader);
  Impl& impl = *reader->impl_;
  impl.fs = &fs;
  impl.folder = folder;
  CAPSTAN_ASSIGN_OR_RETURN(impl.lock, FolderLock::Shared(folder + "/" + kManifestFile));
  CAPSTAN_ASSIGN_OR_RETURN(impl.records, CheckpointRecords::Load(fs, folder));
  impl.Prepare();
  uint64_t bytes = 0;
  if (verify == Verify::kFiles) CAPSTAN_RETURN_IF_ERROR(CheckFileHashes(fs, folder, impl.records.manifest, {}, &bytes));
  return reader;
}

const std::string& CheckpointReader::folder() const { return impl_->folder; }
const CheckpointManifest& CheckpointReader::manifest() const { return impl_->records.manifest; }
size_t CheckpointReader::shards() const { return impl_->records.shards.size(); }
const ShardRecord& CheckpointReader::shard(size_t i) const { return impl_->records.shards[i]; }
uint32_t CheckpointReader::partitions() const { return impl_->partitions; }
uint32_t CheckpointReader::floats(TableId table) const { return rows(table) == 0 ? 0 : impl_->floats[table]; }
uint64_t CheckpointReader::rows(TableId table) const {
  return table < impl_->totals.size() ? impl_->totals[table].rows : 0;
}

absl::Status CheckpointReader::ForEach(TableId table, PartitionId first, PartitionId last,
                                       const VisitRow& visit) const {
  return impl_->ForEach(table, first, last, visit);
}

absl::StatusOr<bool> CheckpointReader::Get(TableId table, Key key,
                                           const std::function<void(const StoredRow& row)>& visit) const {
  const StoredKey wanted = {table, PartitionOf(key, impl_->partitions), key};
  const auto& layers = impl_->layers[impl_->owner[wanted.partition]];
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    LayerCursor cursor(**layer, LayerCursor::For::kPoint);
    CAPSTAN_RETURN_IF_ERROR(cursor.Seek(wanted));
    if (!cursor.valid() || cursor.key() != wanted) continue;
    if (cursor.value().empty()) return false;
    if (table >= impl_->floats.size() || cursor.value().size() != StoredValueBytes(impl_->floats[table])) {
      return DataLoss(fmt::format("'{}' is damaged: the row of table {}, key {} has {} bytes", cursor.path(),
                                  table, key, cursor.value().size()));
    }
    RowBuffer buffer;
    visit(buffer.Fill(wanted, cursor.value()));
    return true;
  }
  return false;
}

absl::Status CheckpointReader::VerifyAll(const std::function<void(uint64_t bytes)>& progress) const {
  uint64_t bytes = 0;
  CAPSTAN_RETURN_IF_ERROR(CheckFileHashes(*impl_->fs, folder(), manifest(), progress, &bytes));
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<PartitionSum> sums, impl_->SumAll(progress, bytes));
  CAPSTAN_RETURN_IF_ERROR(impl_->CheckSums(sums));
  if (!manifest().has_model_sha256()) return absl::OkStatus();
  const std::string computed = impl_->HashOf(std::move(sums));
  if (computed == manifest().model_sha256()) return absl::OkStatus();
  return DataLoss(fmt::format("'{}': the rows have the model hash {}, the manifest says {}", folder(),
                              computed, manifest().model_sha256()));
}

absl::StatusOr<std::string> CheckpointReader::ComputeModelSha256() const {
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<PartitionSum> sums, impl_->SumAll({}, 0));
  return impl_->HashOf(std::move(sums));
}

}  // namespace capstan
