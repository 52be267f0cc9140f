#include <charconv>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "common/partition_map.h"
#include "data/format.h"
#include "data/schema.h"
#include "tools/inspect/opened.h"

namespace capstan {
namespace {

struct Wanted {
  const TableSpec* table;
  Key key;
  std::string feature;  // where the key was made from a value
};

absl::StatusOr<Key> ParseKey(const std::string& text) {
  Key key = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, key);
  if (error == std::errc() && at == end && !text.empty()) return key;
  return InvalidArgument(fmt::format("'{}' is no key: wanted a whole number from 0 to 2^64 - 1", text));
}

absl::StatusOr<const TableSpec*> NamedTable(const CheckpointReader& reader, const std::string& name) {
  if (const TableSpec* table = FindTable(reader, name); table != nullptr) return table;
  return InvalidArgument(fmt::format("there is no table '{}'; there are {}", name, TableNames(reader)));
}

// A dense table is stored in blocks of `width` elements, whose keys are 0, 1, 2 …
absl::Status CheckBlock(const TableSpec& table, Key key) {
  if (table.kind() != TableSpec::DENSE) return absl::OkStatus();
  const uint64_t blocks = table.elements() / table.width() + (table.elements() % table.width() != 0 ? 1 : 0);
  if (key < blocks) return absl::OkStatus();
  return InvalidArgument(fmt::format(
      "table '{}' is dense: its {} elements are {} block{} of up to {}, and a key is the number of a block, from 0 to "
      "{}; there is no {}",
      table.name(), table.elements(), blocks, blocks == 1 ? "" : "s", table.width(), blocks - 1, key));
}

// Keys of a value of the training file, hashed as training hashes it, in every sparse table (or the one named).
absl::StatusOr<std::vector<Wanted>> ByValue(const CheckpointReader& reader, const InspectOptions& options) {
  if (options.paths.size() > 2)
    return InvalidArgument("with --column and --value give at most a table after CHECKPOINT");
  const auto keys = Schema(reader.manifest().job().config().data()).KeysOfValue(options.column, options.value);
  if (keys.empty()) {
    std::string columns;
    const DataConfig data = WithFormatDefaults(reader.manifest().job().config().data());
    if (IsLibsvm(data)) return InvalidArgument("libsvm data has indices only: wanted --column=libsvm --value=INDEX");
    for (const FeatureConfig& feature : data.feature()) {
      if (feature.kind() != FeatureConfig::CATEGORICAL) continue;
      columns += (columns.empty() ? "" : ", ") + feature.column();
    }
    return InvalidArgument(fmt::format("no categorical feature reads the column '{}'; those read are {}",
                                       options.column, columns.empty() ? "none" : columns));
  }
  std::vector<Wanted> wanted;
  for (const TableSpec& table : reader.manifest().job().table()) {
    if (table.kind() == TableSpec::DENSE) continue;
    if (options.paths.size() == 2 && table.name() != options.paths[1]) continue;
    for (const auto& [feature, key] : keys) wanted.push_back({&table, key, feature});
  }
  if (!wanted.empty()) return wanted;
  if (options.paths.size() < 2) return InvalidArgument("no table of this model has rows by key: all are dense");
  CAPSTAN_RETURN_IF_ERROR(NamedTable(reader, options.paths[1]).status());
  return InvalidArgument(fmt::format("table '{}' is dense: no value of the data has a row in it", options.paths[1]));
}

absl::StatusOr<std::vector<Wanted>> ByKey(const CheckpointReader& reader, const InspectOptions& options) {
  if (options.paths.size() < 3) {
    return InvalidArgument("wanted CHECKPOINT TABLE KEY…, or CHECKPOINT [TABLE] --column=NAME --value=RAW");
  }
  CAPSTAN_ASSIGN_OR_RETURN(const TableSpec* const table, NamedTable(reader, options.paths[1]));
  std::vector<Wanted> wanted;
  for (size_t i = 2; i < options.paths.size(); ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const Key key, ParseKey(options.paths[i]));
    CAPSTAN_RETURN_IF_ERROR(CheckBlock(*table, key));
    wanted.push_back({table, key, ""});
  }
  return wanted;
}

size_t ShardOf(const CheckpointReader& reader, PartitionId partition) {
  for (size_t shard = 0; shard < reader.shards(); ++shard) {
    for (const PartitionRun& run : reader.shard(shard).owned()) {
      if (partition >= run.first() && partition - run.first() < run.count()) return shard;
    }
  }
  return 0;
}

absl::StatusOr<Json> RowJson(const CheckpointReader& reader, const Wanted& wanted) {
  const TableSpec& table = *wanted.table;
  Json json;
  json["table"] = table.name();
  json["key"] = wanted.key;
  if (!wanted.feature.empty()) json["feature"] = wanted.feature;
  const PartitionId partition = PartitionOf(wanted.key, reader.partitions());
  json["partition"] = partition;
  json["shard"] = ShardOf(reader, partition);
  const auto fill = [&](const StoredRow& row) {
    json["weights"] = std::vector<float>(row.values, row.values + std::min(table.width(), row.floats));
    const uint32_t slots = row.floats - std::min(table.width(), row.floats);
    const float* begin = row.values + table.width();
    for (const NamedSlot& slot : SlotNames(table, slots)) {
      json[slot.name] = std::vector<float>(begin, begin + slot.floats);
      begin += slot.floats;
    }
    json["updates"] = row.updates;
    json["last_step"] = row.last_step;
  };
  CAPSTAN_ASSIGN_OR_RETURN(const bool there, reader.Get(static_cast<TableId>(table.id()), wanted.key, fill));
  json["stored"] = there;
  if (!there) json["weights"] = InitialRow(reader.manifest(), table, wanted.key);
  return json;
}

std::string RowText(const Json& json) {
  std::string text = fmt::format("{} {}", json["table"].get<std::string>(), json["key"].get<uint64_t>());
  if (json.contains("feature")) text += fmt::format(" (feature {})", json["feature"].get<std::string>());
  text += fmt::format(": partition {}, shard {}", json["partition"].get<uint32_t>(), json["shard"].get<size_t>());
  text += json["stored"].get<bool>() ? fmt::format(", {} updates, the last at step {}\n",
                                                   json["updates"].get<uint32_t>(), json["last_step"].get<uint32_t>())
                                     : ", not stored: no update ever reached it; these are its initial values\n";
  for (const auto& [name, values] : json.items()) {
    if (!values.is_array()) continue;
    // As many digits as tell any two floats apart.
    text += fmt::format("  {:<12}{:.9g}\n", name, fmt::join(values.get<std::vector<float>>(), " "));
  }
  return text;
}

}  // namespace

int InspectGet(const InspectOptions& options) {
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("get", reader.status());
  if (options.column.empty() && !options.value.empty()) {
    return InspectUsage("get", "--value wants the --column that it is a value of");
  }
  const auto wanted = options.by_value ? ByValue(**reader, options) : ByKey(**reader, options);
  if (!wanted.ok()) return InspectFailure("get", wanted.status());
  Json all = Json::array();
  std::string text;
  for (const Wanted& row : *wanted) {
    const absl::StatusOr<Json> json = RowJson(**reader, row);
    if (!json.ok()) return InspectFailure("get", WhileReading(**reader, json.status()));
    text += RowText(*json);
    all.push_back(*json);
  }
  return options.json ? SayJson("get", all) : Say("get", text);
}

}  // namespace capstan
