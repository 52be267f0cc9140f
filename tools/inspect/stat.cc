#include <cmath>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/row_stats.h"

namespace capstan {
namespace {

Json HistogramJson(const LogHistogram& histogram) {
  Json bins = Json::array();
  for (const LogHistogram::Bin& bin : histogram.bins()) {
    Json json;
    json["from"] = bin.low;
    json["below"] = bin.high;
    json["rows"] = bin.count;
    bins.push_back(json);
  }
  return bins;
}

std::string HistogramText(const char* title, const LogHistogram& histogram) {
  constexpr double kBarWidth = 40;
  std::string text = fmt::format("  {}\n", title);
  uint64_t most = 1;
  for (const LogHistogram::Bin& bin : histogram.bins()) most = std::max(most, bin.count);
  for (const LogHistogram::Bin& bin : histogram.bins()) {
    const auto bar =
        static_cast<size_t>(std::ceil(kBarWidth * static_cast<double>(bin.count) / static_cast<double>(most)));
    const std::string range = bin.high == 0 ? "0" : fmt::format("{:.4g} … {:.4g}", bin.low, bin.high);
    text += fmt::format("    {:>24}  {:>12}  {}\n", range, bin.count, std::string(bar, '#'));
  }
  return text;
}

Json StatJson(const TableSpec& table, const TableStats& stats, const std::string& by) {
  Json json;
  json["table"] = table.name();
  json["rows"] = stats.rows;
  json["zero_rows"] = stats.zero_rows;
  json["nonfinite_values"] = stats.nonfinite_values;
  json["nonfinite_rows"] = stats.nonfinite_rows;
  const bool some = stats.weights > 0;
  const auto weights = static_cast<double>(stats.weights);
  json["min"] = some ? Json(stats.least) : Json();
  json["mean"] = some ? Json(stats.sum / weights) : Json();
  json["max"] = some ? Json(stats.most) : Json();
  json["rms"] = some ? Json(std::sqrt(stats.squares / weights)) : Json();
  json["updates"] = stats.updates;
  json["norms"] = HistogramJson(stats.norms);
  json["update_counts"] = HistogramJson(stats.counts);
  json["ages"] = HistogramJson(stats.ages);
  Json top = Json::array();
  for (const TopRow& row : stats.top_rows.Sorted()) {
    Json entry;
    entry["key"] = row.key;
    entry[by] = row.score;
    top.push_back(entry);
  }
  json["top"] = top;
  return json;
}

std::string StatText(const TableSpec& table, const TableStats& stats, const std::string& by) {
  std::string text =
      fmt::format("{}: {} rows, {} of them zero, {} values not finite (in {} rows), {} updates\n", table.name(),
                  stats.rows, stats.zero_rows, stats.nonfinite_values, stats.nonfinite_rows, stats.updates);
  if (stats.rows == 0) return text;
  if (stats.weights > 0) {
    text += fmt::format("  weights from {:.6g} to {:.6g}, mean {:.6g}\n", stats.least, stats.most,
                        stats.sum / static_cast<double>(stats.weights));
  }
  text += HistogramText("norm of a row's weights (from … below): rows", stats.norms);
  text += HistogramText("updates of a row (from … below): rows", stats.counts);
  text += HistogramText("steps since a row's last update (from … below): rows", stats.ages);
  text += fmt::format("  top rows by {}\n", by);
  for (const TopRow& row : stats.top_rows.Sorted()) text += fmt::format("    {:>20}  {:.6g}\n", row.key, row.score);
  return text;
}

}  // namespace

int InspectStat(const InspectOptions& options) {
  const absl::StatusOr<RowMeasure> by = ParseMeasure(options.by);
  if (!by.ok()) return InspectUsage("stat", "--by=" + std::string(by.status().message()));
  const auto reader = OpenForInspection(options.paths[0]);
  if (!reader.ok()) return InspectUnreadable("stat", reader.status());
  const auto tables = ChooseTables(**reader, options.table);
  if (!tables.ok()) return InspectFailure("stat", tables.status());
  const uint64_t clock = UpdateClockOf(**reader);
  Json all = Json::array();
  std::string text;
  for (const TableSpec* table : *tables) {
    TableStats stats(options.top);
    const absl::Status read =
        (*reader)->ForEach(static_cast<TableId>(table->id()), 0, (*reader)->partitions(), [&](const StoredRow& row) {
          stats.Add(row, table->width(), clock, *by);
          return absl::OkStatus();
        });
    if (!read.ok()) return InspectFailure("stat", WhileReading(**reader, read));
    all.push_back(StatJson(*table, stats, options.by));
    text += StatText(*table, stats, options.by);
  }
  return options.json ? SayJson("stat", all) : Say("stat", text);
}

}  // namespace capstan
