#include "storage/saved_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/partition_map.h"
#include "storage/checkpoint_reader.h"

namespace capstan {
// (Not in the anonymous namespace: a member of a type that has linkage.)
struct LoadedTable {
  uint32_t width = 0;
  uint32_t kept = 0;                 // floats of a row in memory
  std::vector<Key> keys;             // by (partition, key)
  std::vector<float> values;         // [keys, kept]
  std::vector<uint64_t> first;       // [partitions + 1]: where each partition's rows begin
};

struct SavedModel::Impl {
  std::string folder;
  CheckpointManifest manifest;
  uint32_t partitions = 0;
  std::vector<LoadedTable> tables;   // by wire id; an id that is not used has width 0

  absl::Status LoadTable(const CheckpointReader& reader, TableId id, Keep keep);
};

absl::Status SavedModel::Impl::LoadTable(const CheckpointReader& reader, TableId id, Keep keep) {
  LoadedTable& table = tables[id];
  table.first.assign(partitions + 1, 0);
  const uint32_t floats = reader.floats(id);
  if (floats == 0) return absl::OkStatus();  // it has no row
  if (floats < table.width) return DataLoss("a table's rows are shorter than its width");
  table.kept = keep == Keep::kWeights ? table.width : floats;
  table.keys.reserve(reader.rows(id));
  table.values.reserve(reader.rows(id) * table.kept);
  CAPSTAN_RETURN_IF_ERROR(reader.ForEach(id, 0, partitions, [&table](const StoredRow& row) {
    table.keys.push_back(row.key);
    table.values.insert(table.values.end(), row.values, row.values + table.kept);
    ++table.first[row.partition + 1];
    return absl::OkStatus();
  }));
  for (uint32_t p = 0; p < partitions; ++p) table.first[p + 1] += table.first[p];
  return absl::OkStatus();
}

SavedModel::SavedModel() : impl_(std::make_unique<Impl>()) {}
SavedModel::~SavedModel() = default;

absl::StatusOr<std::unique_ptr<SavedModel>> SavedModel::Load(FileSystem& fs, const std::string& folder, Keep keep) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointReader> reader,
                           CheckpointReader::Open(fs, folder, CheckpointReader::Verify::kRecords));
  std::unique_ptr<SavedModel> model(new SavedModel);
  Impl& impl = *model->impl_;
  impl.folder = folder;
  impl.manifest = reader->manifest();
  impl.partitions = reader->partitions();
  for (const TableSpec& spec : impl.manifest.job().table()) {
    if (spec.id() >= impl.tables.size()) impl.tables.resize(spec.id() + 1);
    impl.tables[spec.id()].width = spec.width();
  }
  for (const TableSpec& spec : impl.manifest.job().table()) {
    CAPSTAN_RETURN_IF_ERROR(
        While("reading " + folder, impl.LoadTable(*reader, static_cast<TableId>(spec.id()), keep)));
  }
  return model;
}

const std::string& SavedModel::folder() const { return impl_->folder; }
const CheckpointManifest& SavedModel::manifest() const { return impl_->manifest; }

uint32_t SavedModel::width(TableId table) const {
  return table < impl_->tables.size() ? impl_->tables[table].width : 0;
}

uint64_t SavedModel::rows(TableId table) const {
  return table < impl_->tables.size() ? impl_->tables[table].keys.size() : 0;
}

const float* SavedModel::Find(TableId id, Key key) const {
  if (rows(id) == 0) return nullptr;
  const LoadedTable& table = impl_->tables[id];
  const PartitionId partition = PartitionOf(key, impl_->partitions);
  const auto begin = table.keys.begin() + static_cast<ptrdiff_t>(table.first[partition]);
  const auto end = table.keys.begin() + static_cast<ptrdiff_t>(table.first[partition + 1]);
  const auto found = std::lower_bound(begin, end, key);
  if (found == end || *found != key) return nullptr;
  return table.values.data() + static_cast<size_t>(found - table.keys.begin()) * table.kept;
}

void SavedModel::ForEach(TableId id, const std::function<void(Key, std::span<const float>)>& visit) const {
  if (rows(id) == 0) return;
  const LoadedTable& table = impl_->tables[id];
  for (size_t i = 0; i < table.keys.size(); ++i) {
    visit(table.keys[i], {table.values.data() + i * table.kept, table.kept});
  }
}

}  // namespace capstan
