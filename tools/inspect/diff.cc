// Two checkpoints, row by row. Tables are matched by name; rows of both come in (partition, key) order, a few partitions
// of each in memory at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/row_stats.h"

namespace capstan {
namespace {

struct HeldRow {
  Key key;
  std::vector<float> weights;
};

struct TableDiff {
  explicit TableDiff(size_t top) : top_rows(top) {}
  uint64_t only_a = 0, only_b = 0, changed = 0, same = 0;
  double most = 0, sum = 0, squares = 0;
  uint64_t compared = 0;
  TopRows top_rows;
  bool differs() const { return only_a + only_b + changed > 0; }
};

absl::StatusOr<std::vector<HeldRow>> RowsOfRun(const CheckpointReader& reader, const TableSpec& table, PartitionId first,
                                               PartitionId last) {
  std::vector<HeldRow> rows;
  CAPSTAN_RETURN_IF_ERROR(reader.ForEach(static_cast<TableId>(table.id()), first, last, [&](const StoredRow& row) {
    rows.push_back({row.key, {row.values, row.values + std::min(row.floats, table.width())}});
    return absl::OkStatus();
  }));
  std::sort(rows.begin(), rows.end(), [](const HeldRow& a, const HeldRow& b) { return a.key < b.key; });
  return rows;
}

void CompareRows(const HeldRow& a, const HeldRow& b, TableDiff* diff) {
  double squares = 0;
  bool same_bits = true;
  for (size_t i = 0; i < a.weights.size(); ++i) {
    same_bits &= std::memcmp(&a.weights[i], &b.weights[i], sizeof(float)) == 0;
    const double change = std::abs(static_cast<double>(a.weights[i]) - b.weights[i]);
    if (!std::isfinite(change)) continue;
    diff->most = std::max(diff->most, change);
    diff->sum += change;
    squares += change * change;
    ++diff->compared;
  }
  diff->squares += squares;
  if (same_bits) {
    ++diff->same;
    return;
  }
  ++diff->changed;
  diff->top_rows.Add(a.key, std::sqrt(squares));
}

absl::StatusOr<TableDiff> DiffTable(const CheckpointReader& a, const TableSpec& table_a, const CheckpointReader& b,
                                    const TableSpec& table_b, size_t top) {
  constexpr uint64_t kRowsAtATime = 1 << 16;
  TableDiff diff(top);
  const uint64_t rows = std::max(a.rows(static_cast<TableId>(table_a.id())), b.rows(static_cast<TableId>(table_b.id())));
  const auto runs = static_cast<PartitionId>(std::min<uint64_t>(a.partitions(), rows / kRowsAtATime + 1));
  for (PartitionId run = 0; run < runs; ++run) {
    const auto first = static_cast<PartitionId>(uint64_t{a.partitions()} * run / runs);
    const auto last = static_cast<PartitionId>(uint64_t{a.partitions()} * (run + 1) / runs);
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<HeldRow> rows_a, RowsOfRun(a, table_a, first, last));
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<HeldRow> rows_b, RowsOfRun(b, table_b, first, last));
    size_t i = 0, j = 0;
    while (i < rows_a.size() || j < rows_b.size()) {
      if (j == rows_b.size() || (i < rows_a.size() && rows_a[i].key < rows_b[j].key)) {
        ++diff.only_a;
        ++i;
      } else if (i == rows_a.size() || rows_b[j].key < rows_a[i].key) {
        ++diff.only_b;
        ++j;
      } else {
        CompareRows(rows_a[i++], rows_b[j++], &diff);
      }
    }
  }
  return diff;
}

Json DiffJson(const std::string& table, const TableDiff& diff) {
  Json json;
  json["table"] = table;
  json["only_a"] = diff.only_a;
  json["only_b"] = diff.only_b;
  json["changed"] = diff.changed;
  json["same"] = diff.same;
  json["max_change"] = diff.most;
  json["mean_change"] = diff.compared > 0 ? diff.sum / static_cast<double>(diff.compared) : 0;
  json["norm"] = std::sqrt(diff.squares);
  Json top = Json::array();
  for (const TopRow& row : diff.top_rows.Sorted()) top.push_back(Json{{"key", row.key}, {"norm", row.score}});
  json["top"] = top;
  return json;
}

std::string DiffText(const Json& json) {
  std::string text = fmt::format(
      "{}: {} rows only in A, {} only in B, {} changed, {} the same; largest change {:.6g}, mean {:.6g}, norm {:.6g}\n",
      json["table"].get<std::string>(), json["only_a"].get<uint64_t>(), json["only_b"].get<uint64_t>(),
      json["changed"].get<uint64_t>(), json["same"].get<uint64_t>(), json["max_change"].get<double>(),
      json["mean_change"].get<double>(), json["norm"].get<double>());
  for (const Json& row : json["top"]) {
    text += fmt::format("  {:>20}  {:.6g}\n", row["key"].get<uint64_t>(), row["norm"].get<double>());
  }
  return text;
}

// What keeps two tables from being compared; empty: nothing.
std::string ShapeDifference(const TableSpec& a, const TableSpec* b) {
  if (b == nullptr) return "it is in A only";
  if (a.kind() != b->kind()) return "dense in one, sparse in the other";
  if (a.width() != b->width()) return fmt::format("width {} in A, {} in B", a.width(), b->width());
  if (a.elements() != b->elements()) return fmt::format("{} elements in A, {} in B", a.elements(), b->elements());
  return "";
}

}  // namespace

int InspectDiff(const InspectOptions& options) {
  if (options.paths.size() != 2) return InspectUsage("diff", "wanted two checkpoints: A B");
  const auto a = OpenForInspection(options.paths[0]);
  if (!a.ok()) return InspectFailure("diff", a.status());
  const auto b = OpenForInspection(options.paths[1]);
  if (!b.ok()) return InspectFailure("diff", b.status());
  if ((*a)->partitions() != (*b)->partitions()) {
    return InspectUsage("diff", fmt::format("A has {} partitions, B {}: their rows come in other orders",
                                            (*a)->partitions(), (*b)->partitions()));
  }
  const auto tables = ChooseTables(**a, options.table);
  if (!tables.ok()) return InspectFailure("diff", tables.status());
  Json all = Json::array();
  std::string text;
  bool different = false;
  for (const TableSpec* table : *tables) {
    const TableSpec* const other = FindTable(**b, table->name());
    if (const std::string why = ShapeDifference(*table, other); !why.empty()) {
      different = true;
      all.push_back(Json{{"table", table->name()}, {"not_comparable", why}});
      text += fmt::format("{}: {}\n", table->name(), why);
      continue;
    }
    const absl::StatusOr<TableDiff> diff = DiffTable(**a, *table, **b, *other, options.top);
    if (!diff.ok()) return InspectFailure("diff", diff.status());
    different |= diff->differs();
    all.push_back(DiffJson(table->name(), *diff));
    text += DiffText(all.back());
  }
  for (const TableSpec& table : (*b)->manifest().job().table()) {
    if (!options.table.empty() || FindTable(**a, table.name()) != nullptr) continue;
    different = true;
    all.push_back(Json{{"table", table.name()}, {"not_comparable", "it is in B only"}});
    text += fmt::format("{}: it is in B only\n", table.name());
  }
  const int code = different ? kInspectDifferent : ToInt(ExitCode::kDone);
  return options.json ? SayJson("diff", all, code) : Say("diff", text, code);
}

}  // namespace capstan
