#include <algorithm>

#include <fmt/core.h>

#include "common/consistency.h"
#include "data/format.h"
#include "tools/inspect/opened.h"

namespace capstan {
namespace {

Json TablesOf(const CheckpointReader& reader) {
  Json tables = Json::array();
  for (const TableSpec& spec : reader.manifest().job().table()) {
    const auto id = static_cast<TableId>(spec.id());
    Json table;
    table["name"] = spec.name();
    table["kind"] = spec.kind() == TableSpec::DENSE ? "dense" : "sparse";
    table["width"] = spec.width();
    if (spec.kind() == TableSpec::DENSE) table["elements"] = spec.elements();
    table["optimizer"] = spec.optimizer().name();
    table["frozen"] = spec.frozen();
    const uint32_t floats = reader.floats(id);
    table["slots"] = floats > spec.width() ? floats - spec.width() : 0;
    table["rows"] = reader.rows(id);
    const uint64_t bytes = floats == 0 ? 0 : kStoredKeyBytes + StoredValueBytes(floats);
    table["bytes_per_row"] = bytes;
    table["bytes"] = bytes * reader.rows(id);
    tables.push_back(table);
  }
  return tables;
}

Json PositionOf(const CheckpointManifest& m) {
  Json position;
  position["epoch"] = m.epoch();
  position["epochs"] = m.job().config().epochs();
  position["examples"] = m.examples();
  const absl::StatusOr<Consistency> consistency = ParseConsistency(m.job().config().consistency());
  if (consistency.ok() && consistency->sync()) {
    position["steps_into_epoch"] = m.version() - m.epoch_first();
  } else {
    position["leases_closed_below"] = m.leases().closed_below();
    position["leases_closed_above"] = m.leases().closed_size();
    position["leases_open"] = m.leases().granted_size();
  }
  position["job_done"] = m.job_done();
  return position;
}

Json SchemaOf(const EffectiveJob& job) {
  Json features = Json::array();
  const DataConfig data = WithFormatDefaults(job.config().data());  // Criteo's need not be listed in the job
  for (const FeatureConfig& feature : data.feature()) {
    Json json;
    json["name"] = FeatureName(feature);
    json["column"] = feature.column();
    const bool numeric = feature.kind() == FeatureConfig::NUMERIC;
    json["kind"] = numeric ? "numeric" : "categorical";
    if (!numeric) json["salt"] = feature.salt();
    if (numeric) json["normalize"] = FeatureConfig::Normalize_Name(feature.normalize());
    if (numeric) json["missing"] = FeatureConfig::Missing_Name(feature.missing());
    for (const FeatureStats& stats : job.recipe().numeric()) {
      if (!numeric || stats.name() != FeatureName(feature)) continue;
      json["count"] = stats.count();
      json["mean"] = stats.mean();
      json["stddev"] = stats.stddev();
    }
    features.push_back(json);
  }
  return features;
}

Json ShowOf(const CheckpointReader& reader) {
  const CheckpointManifest& m = reader.manifest();
  const JobConfig& config = m.job().config();
  Json json;
  json["checkpoint"] = reader.folder();
  json["id"] = m.id();
  json["kind"] = m.kind() == CheckpointManifest::FULL ? "full" : "incremental";
  if (m.has_parent()) json["parent"] = m.parent();
  json["created"] = When(m.created());
  json["reason"] = m.reason();
  json["written_by"] = m.written_by();
  json["job"] = config.name();
  json["job_id"] = fmt::format("{:016x}", m.job().job_id());
  Json lineage = Json::array();
  for (const uint64_t job : m.lineage()) lineage.push_back(fmt::format("{:016x}", job));
  json["lineage"] = lineage;
  json["seed"] = config.seed();
  json["consistency"] = config.consistency();
  json["ranks"] = config.ranks();
  json["cpu_isa"] = m.job().cpu_isa();
  json["step"] = m.version();
  json["position"] = PositionOf(m);
  json["rows"] = m.rows();
  json["model_sha256"] = m.model_sha256();
  if (m.has_metric()) json["metric"] = m.metric();
  json["tables"] = TablesOf(reader);
  json["features"] = SchemaOf(m.job());
  json["partitions"] = reader.partitions();
  Json shards = Json::array();
  for (size_t i = 0; i < reader.shards(); ++i) {
    Json shard;
    shard["layers"] = reader.shard(i).layer_size();
    uint64_t bytes = 0;
    Json files = Json::array();
    for (const StoredLayer& layer : reader.shard(i).layer()) {
      for (const StoredFile& file : layer.file()) {
        files.push_back(Json{{"name", file.name()}, {"bytes", file.bytes()}, {"written_by", layer.checkpoint()}});
        bytes += file.bytes();
      }
    }
    shard["bytes"] = bytes;
    shard["files"] = files;
    shards.push_back(shard);
  }
  json["shards"] = shards;
  return json;
}

std::string Plain(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string PositionText(const Json& position) {
  std::string text;
  for (const auto& [key, value] : position.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, Plain(value));
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

// The same for a person: one fact a line, tables and features as rows.
std::string TextOfShow(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    if (key == "tables" || key == "features" || key == "shards") continue;
    text += fmt::format("{:<14}{}\n", key, key == "position" ? PositionText(value) : Plain(value));
  }
  text += "tables\n";
  for (const Json& t : json["tables"]) {
    text += fmt::format("  {:<28} {:<7} width {:>5}  {:<8} {:>5} slots  {:>12} rows  {:>6} B/row  {:>9}{}\n",
                        Plain(t["name"]), Plain(t["kind"]), Plain(t["width"]), Plain(t["optimizer"]), Plain(t["slots"]),
                        Plain(t["rows"]), Plain(t["bytes_per_row"]), Bytes(t["bytes"].get<uint64_t>()),
                        t["frozen"].get<bool>() ? "  frozen" : "");
  }
  text += "features\n";
  for (const Json& f : json["features"]) {
    text += fmt::format("  {:<28} {:<11} column {}", Plain(f["name"]), Plain(f["kind"]), Plain(f["column"]));
    if (f.contains("mean")) {
      text += fmt::format("  {}: mean {:.6g}, stddev {:.6g} of {} values", Plain(f["normalize"]),
                          f["mean"].get<double>(), f["stddev"].get<double>(), Plain(f["count"]));
    }
    text += "\n";
  }
  text += fmt::format("{} shard{}\n", json["shards"].size(), json["shards"].size() == 1 ? "" : "s");
  for (const Json& s : json["shards"]) {
    text += fmt::format("  {} layers in {} files, {}\n", Plain(s["layers"]), s["files"].size(),
                        Bytes(s["bytes"].get<uint64_t>()));
    for (const Json& file : s["files"]) {
      text += fmt::format("    {:<36} {:>9}  of C{:06}\n", Plain(file["name"]), Bytes(file["bytes"].get<uint64_t>()),
                          file["written_by"].get<uint64_t>());
    }
  }
  return text;
}

}  // namespace

int InspectShow(const InspectOptions& options) {
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("show", reader.status());
  const Json json = ShowOf(**reader);
  return options.json ? SayJson("show", json) : Say("show", TextOfShow(json));
}

}  // namespace capstan
