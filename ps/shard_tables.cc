#include "ps/shard_tables.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "ps/gradient_merge.h"
#include "ps/table.h"
#include "ps/snapshot_sink.h"
#include "storage/checkpoint_reader.h"

namespace capstan {
namespace {

constexpr size_t kMergeBlockKeys = 1024;

bool IsKind(const SectionView& section, SectionKind kind) { return section.kind() == kind; }

void ApplyFiltered(Table& table, std::span<const Key> keys, const float* gradients, const UpdateContext& context,
                   const ShardTables::KeyFilter& filter) {
  const uint32_t width = table.shape().width;
  std::vector<Key> chosen;
  std::vector<float> values;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!filter(keys[i])) continue;
    chosen.push_back(keys[i]);
    values.insert(values.end(), gradients + i * width, gradients + (i + 1) * width);
  }
  table.Apply(chosen, values.data(), context);
}

}  // namespace

ShardTables::ShardTables() = default;
ShardTables::ShardTables(ShardTables&&) noexcept = default;
ShardTables& ShardTables::operator=(ShardTables&&) noexcept = default;
ShardTables::~ShardTables() = default;

absl::StatusOr<ShardTables> ShardTables::Make(const EffectiveJob& job, const ShardMap& map, ShardId shard) {
  ShardTables tables;
  tables.map_ = map;
  tables.shard_ = shard;
  for (int i = 0; i < job.table_size(); ++i) {
    if (job.table(i).id() != static_cast<uint32_t>(i)) {
      return InvalidArgument(fmt::format("table {} has wire id {}, want {}", job.table(i).name(), job.table(i).id(), i));
    }
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, Table::Create(job.table(i), job.config().seed()));
    table->CreateDense([&](Key key) { return map.OwnerOf(key) == shard; });
    tables.tables_.push_back(std::move(table));
  }
  return tables;
}

absl::Status ShardTables::CheckKeys(const SectionView& section) const {
  if (section.table() >= tables_.size() || section.descriptor.dtype != static_cast<uint8_t>(DType::kU64) ||
      section.descriptor.width != 1) {
    return InvalidArgument(fmt::format("keys of table {}, but the job has {} tables, or they are not 64-bit keys",
                                       section.table(), tables_.size()));
  }
  const std::span<const Key> keys = section.As<Key>();
  const TableShape& shape = tables_[section.table()]->shape();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i > 0 && keys[i] <= keys[i - 1]) {
      return InvalidArgument(fmt::format("table {}: keys are not strictly increasing at {}", shape.name, i));
    }
    if (map_.OwnerOf(keys[i]) != shard_) {
      return Aborted(fmt::format("table {}: key {} belongs to shard {}, this is shard {}", shape.name, keys[i],
                                 map_.OwnerOf(keys[i]), shard_));
    }
  }
  if (shape.dense && !keys.empty() && keys.back() >= shape.blocks()) {
    return InvalidArgument(
        fmt::format("table {}: block {} of {}", shape.name, keys.back(), shape.blocks()));
  }
  return absl::OkStatus();
}

absl::Status ShardTables::CheckPull(const BodyView& body) const {
  if (body.sections().size() >= kMaxSections) {  // the answer has one more
    return InvalidArgument(fmt::format("a pull of {} sections, at most {}", body.sections().size(), kMaxSections - 1));
  }
  size_t reply = sizeof(SectionDescriptor) + sizeof(RowsInfo);
  for (const SectionView& section : body.sections()) {
    if (!IsKind(section, SectionKind::kKeys)) return InvalidArgument("a pull holds something else than keys");
    CAPSTAN_RETURN_IF_ERROR(CheckKeys(section));
    reply += sizeof(SectionDescriptor) + 8 +
             size_t{section.descriptor.rows} * tables_[section.table()]->shape().width * sizeof(float);
  }
  if (reply > kMaxBodyBytes) {
    return InvalidArgument(fmt::format("the answer would have {} bytes, at most {} fit a frame", reply, kMaxBodyBytes));
  }
  return absl::OkStatus();
}

absl::Status ShardTables::CheckPushPart(const BodyView& body) const {
  const std::vector<SectionView>& sections = body.sections();
  size_t i = 0;
  if (i < sections.size() && IsKind(sections[i], SectionKind::kPushInfo)) ++i;
  for (; i < sections.size(); i += 2) {
    if (i + 1 >= sections.size() || !IsKind(sections[i], SectionKind::kKeys) ||
        !IsKind(sections[i + 1], SectionKind::kValues)) {
      return InvalidArgument("a push must hold pairs of keys and values");
    }
    CAPSTAN_RETURN_IF_ERROR(CheckKeys(sections[i]));
    const SectionDescriptor& values = sections[i + 1].descriptor;
    const TableShape& shape = tables_[sections[i].table()]->shape();
    if (values.table != sections[i].table() || values.dtype != static_cast<uint8_t>(DType::kF32) ||
        values.rows != sections[i].descriptor.rows || values.width != shape.width) {
      return InvalidArgument(fmt::format("table {}: {} rows of {} floats for {} keys of width {}", shape.name,
                                         values.rows, values.width, sections[i].descriptor.rows, shape.width));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardTables::CheckPush(const PushRecord& push) const {
  std::vector<const Key*> last(tables_.size(), nullptr);
  const bool may_have_rows = !push.end && push.info.examples > 0;
  for (const BodyView& part : push.parts) {
    for (const SectionView& section : part.sections()) {
      if (!IsKind(section, SectionKind::kKeys) || section.descriptor.rows == 0) continue;
      if (!may_have_rows) return InvalidArgument("a push has gradients but no example");
      const std::span<const Key> keys = section.As<Key>();
      const Key*& before = last[section.table()];
      if (before != nullptr && keys.front() <= *before) {
        return InvalidArgument(fmt::format("table {}: keys do not increase from part to part",
                                           tables_[section.table()]->shape().name));
      }
      before = &keys.back();
    }
  }
  return absl::OkStatus();
}

Buffer ShardTables::Answer(const BodyView& pull, const RowsInfo* info, uint16_t* sections) const {
  BodyBuilder builder;
  size_t info_section = 0;
  if (info != nullptr) info_section = builder.Add(SectionKind::kRowsInfo, 0, DType::kBytes, 1, sizeof(RowsInfo));
  std::vector<size_t> places;
  for (const SectionView& keys : pull.sections()) {
    places.push_back(builder.Add(SectionKind::kValues, keys.table(), DType::kF32, keys.descriptor.rows,
                                 tables_[keys.table()]->shape().width));
  }
  Buffer body = builder.Allocate();
  if (info != nullptr) std::memcpy(builder.Section<std::byte>(info_section).data(), info, sizeof(RowsInfo));
  for (size_t i = 0; i < places.size(); ++i) {
    const SectionView& keys = pull.sections()[i];
    tables_[keys.table()]->Gather(keys.As<Key>(), builder.Section<float>(places[i]).data());
  }
  *sections = builder.sections();
  return body;
}

uint64_t ShardTables::ApplyStep(std::span<const PushRecord* const> pushes, double divisor,
                                const UpdateContext& context, const KeyFilter& filter) {
  uint64_t nonfinite = 0;
  std::vector<std::vector<RankGradients>> by_table(tables_.size(), std::vector<RankGradients>(pushes.size()));
  for (size_t p = 0; p < pushes.size(); ++p) {
    for (const BodyView& part : pushes[p]->parts) {
      for (size_t i = 0; i + 1 < part.sections().size(); ++i) {
        const SectionView& keys = part.sections()[i];
        if (!IsKind(keys, SectionKind::kKeys) || keys.descriptor.rows == 0) continue;
        by_table[keys.table()][p].push_back({keys.As<Key>(), part.sections()[i + 1].As<float>().data()});
      }
    }
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    Table& table = *tables_[t];
    const double divide_by = table.shape().mean ? divisor : 1.0;
    const MergeCounts counts =
        SumInRankOrder(by_table[t], table.shape().width, divide_by, kMergeBlockKeys,
                       [&](std::span<const Key> keys, const float* gradients) {
                         if (filter == nullptr) return table.Apply(keys, gradients, context);
                         ApplyFiltered(table, keys, gradients, context, filter);
                       });
    nonfinite += counts.nonfinite_rows;
  }
  return nonfinite;
}

absl::Status ShardTables::Import(const Restore& order, const RowSource& source, const std::function<void()>& alive) {
  constexpr uint64_t kAliveRows = 1 << 16;
  const bool whole = order.mode() == Restore::RESUME;
  uint64_t taken = 0;
  for (const Restore::Import& import : order.import()) {
    if (import.to() >= tables_.size()) return InvalidArgument(fmt::format("there is no table {}", import.to()));
    Table& table = *tables_[import.to()];
    const RowLayout& layout = table.layout();
    const auto visit = [&](const StoredRow& row) -> absl::Status {
      if (whole ? row.floats != layout.floats() : row.floats < layout.width) {
        return DataLoss(fmt::format("table {}: rows of {} floats there, of {} ({} weights) here", table.shape().name,
                                    row.floats, layout.floats(), layout.width));
      }
      if (table.shape().dense && row.key >= table.shape().blocks()) {
        return DataLoss(fmt::format("table {}: block {} of {}", table.shape().name, row.key, table.shape().blocks()));
      }
      if (whole) {
        table.Import(row.key, row.values, row.values + layout.width, row.last_step, row.updates);
      } else {
        table.ImportWeights(row.key, row.values);
      }
      if (++taken % kAliveRows == 0 && alive != nullptr) alive();
      return absl::OkStatus();
    };
    for (PartitionId first = 0; first < map_.partitions();) {  // runs of partitions that are ours
      PartitionId last = first;
      while (last < map_.partitions() && map_.OwnerOfPartition(last) == shard_) ++last;
      if (last > first) {
        CAPSTAN_RETURN_IF_ERROR(source.ForEach(static_cast<TableId>(import.from()), first, last, visit));
      }
      first = last + 1;
    }
  }
  return absl::OkStatus();
}

void ShardTables::Track(bool increments) {
  for (const std::unique_ptr<Table>& table : tables_) table->Track(map_.partitions(), increments);
}

std::vector<Table*> ShardTables::tables() {
  std::vector<Table*> tables;
  for (const std::unique_ptr<Table>& table : tables_) tables.push_back(table.get());
  return tables;
}

uint64_t ShardTables::rows() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<Table>& table : tables_) sum += table->store().rows();
  return sum;
}

uint64_t ShardTables::bytes() const {
  uint64_t sum = 0;
  for (const std::unique_ptr<Table>& table : tables_) sum += table->store().bytes();
  return sum;
}

}  // namespace capstan
