// Two checkpoints, row by row. Tables are matched by name. Both are read by the same slices of the hashed keys, about
// 65536 rows at a time, or one partition where those are larger.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/row_stats.h"
#include "tools/inspect/schema_difference.h"

namespace capstan {
namespace {

struct HeldRow {
  Key key = 0;
  uint32_t last_step = 0;
  uint32_t updates = 0;
  size_t first = 0;  // of its floats
};

// Rows of a slice by key; all have the same number of floats.
struct Slice {
  std::vector<HeldRow> rows;
  std::vector<float> values;
  uint32_t floats = 0;
  const float* ValuesOf(const HeldRow& row) const { return values.data() + row.first; }
};

struct TableDiff {
  explicit TableDiff(size_t top) : top_rows(top) {}
  uint64_t only_a = 0, only_b = 0, same = 0;
  uint64_t changed = 0;        // in their weights
  uint64_t state_changed = 0;  // in their slots or counters alone
  uint64_t nonfinite = 0;      // weights whose change is not finite; the figures below are of the others
  double most = 0, sum = 0, squares = 0;
  uint64_t compared = 0;
  TopRows top_rows;
  bool differs() const { return only_a + only_b + changed + state_changed > 0; }
};

absl::StatusOr<Slice> ReadSlice(const CheckpointReader& reader, const TableSpec& table, PartitionId run,
                                PartitionId runs) {
  const PartitionId partitions = reader.partitions() / runs;  // both are powers of two
  Slice slice;
  CAPSTAN_RETURN_IF_ERROR(reader.ForEach(
      static_cast<TableId>(table.id()), run * partitions, (run + 1) * partitions, [&](const StoredRow& row) {
        if (row.floats < table.width()) {
          return DataLoss(fmt::format("{}: a row of table '{}' has {} floats, fewer than its width {}", reader.folder(),
                                      table.name(), row.floats, table.width()));
        }
        slice.floats = row.floats;
        slice.rows.push_back({row.key, row.last_step, row.updates, slice.values.size()});
        slice.values.insert(slice.values.end(), row.values, row.values + row.floats);
        return absl::OkStatus();
      }));
  std::sort(slice.rows.begin(), slice.rows.end(), [](const HeldRow& a, const HeldRow& b) { return a.key < b.key; });
  return slice;
}

void CompareRows(const Slice& in_a, const HeldRow& a, const Slice& in_b, const HeldRow& b, uint32_t width,
                 TableDiff* diff) {
  const float* const x = in_a.ValuesOf(a);
  const float* const y = in_b.ValuesOf(b);
  double squares = 0;
  uint64_t nonfinite = 0;
  for (uint32_t i = 0; i < width; ++i) {
    if (std::memcmp(x + i, y + i, sizeof(float)) == 0) continue;  // the same NaN is no change
    const double change = std::abs(static_cast<double>(x[i]) - y[i]);
    if (!std::isfinite(change)) {
      ++nonfinite;
      continue;
    }
    diff->most = std::max(diff->most, change);
    diff->sum += change;
    squares += change * change;
  }
  diff->nonfinite += nonfinite;
  diff->squares += squares;
  diff->compared += width - nonfinite;
  if (std::memcmp(x, y, width * sizeof(float)) != 0) {
    ++diff->changed;
    diff->top_rows.Add(a.key, nonfinite > 0 ? std::numeric_limits<double>::infinity() : std::sqrt(squares));
    return;
  }
  // Slots of two optimizers cannot be compared; TableDifference says that.
  const bool slots_differ =
      in_a.floats == in_b.floats && std::memcmp(x + width, y + width, (in_a.floats - width) * sizeof(float)) != 0;
  const bool state_differs = slots_differ || a.last_step != b.last_step || a.updates != b.updates;
  ++(state_differs ? diff->state_changed : diff->same);
}

void CompareSlices(const Slice& a, const Slice& b, uint32_t width, TableDiff* diff) {
  size_t i = 0, j = 0;
  while (i < a.rows.size() || j < b.rows.size()) {
    if (j == b.rows.size() || (i < a.rows.size() && a.rows[i].key < b.rows[j].key)) {
      ++diff->only_a;
      ++i;
    } else if (i == a.rows.size() || b.rows[j].key < a.rows[i].key) {
      ++diff->only_b;
      ++j;
    } else {
      CompareRows(a, a.rows[i++], b, b.rows[j++], width, diff);
    }
  }
}

absl::StatusOr<TableDiff> DiffTable(const CheckpointReader& a, const TableSpec& table_a, const CheckpointReader& b,
                                    const TableSpec& table_b, size_t top) {
  constexpr uint64_t kRowsAtATime = 1 << 16;
  TableDiff diff(top);
  const uint64_t rows =
      std::max(a.rows(static_cast<TableId>(table_a.id())), b.rows(static_cast<TableId>(table_b.id())));
  // A partition is what the top bits of a key's hash say, so equal parts of both hold the same keys.
  const uint64_t parts =
      std::min<uint64_t>(std::min(a.partitions(), b.partitions()), std::bit_ceil(rows / kRowsAtATime + 1));
  const auto runs = static_cast<PartitionId>(parts);
  for (PartitionId run = 0; run < runs; ++run) {
    CAPSTAN_ASSIGN_OR_RETURN(const Slice rows_a, ReadSlice(a, table_a, run, runs));
    CAPSTAN_ASSIGN_OR_RETURN(const Slice rows_b, ReadSlice(b, table_b, run, runs));
    CompareSlices(rows_a, rows_b, table_a.width(), &diff);
  }
  return diff;
}

Json DiffJson(const std::string& table, const TableDiff& diff) {
  Json json;
  json["table"] = table;
  json["only_a"] = diff.only_a;
  json["only_b"] = diff.only_b;
  json["changed"] = diff.changed;
  json["state_changed"] = diff.state_changed;
  json["same"] = diff.same;
  json["nonfinite"] = diff.nonfinite;
  json["max_change"] = diff.most;
  json["mean_change"] = diff.compared > 0 ? diff.sum / static_cast<double>(diff.compared) : 0;
  json["norm"] = std::sqrt(diff.squares);
  Json top = Json::array();
  for (const TopRow& row : diff.top_rows.Sorted()) top.push_back(Json{{"key", row.key}, {"norm", row.score}});
  json["top"] = top;
  return json;
}

std::string DiffText(const std::string& table, const TableDiff& diff) {
  std::string text =
      fmt::format("{}: {} rows only in A, {} only in B, {} changed, {} in slots or counters alone, {} the same", table,
                  diff.only_a, diff.only_b, diff.changed, diff.state_changed, diff.same);
  if (diff.changed > 0) {
    text += fmt::format("; largest change of a weight {:.6g}, mean {:.6g}, norm {:.6g}", diff.most,
                        diff.compared > 0 ? diff.sum / static_cast<double>(diff.compared) : 0, std::sqrt(diff.squares));
  }
  if (diff.nonfinite > 0) text += fmt::format("; {} changes are not finite", diff.nonfinite);
  text += "\n";
  for (const TopRow& row : diff.top_rows.Sorted()) text += fmt::format("  {:>20}  {:.6g}\n", row.key, row.score);
  return text;
}

// What differs about two tables as such. *comparable: their rows can be compared all the same.
std::string TableDifference(const TableSpec& a, const TableSpec* b, bool* comparable) {
  *comparable = false;
  if (b == nullptr) return "in A only";
  if (a.kind() != b->kind()) return "dense in one, sparse in the other";
  if (a.width() != b->width()) return fmt::format("width {} in A, {} in B", a.width(), b->width());
  if (a.elements() != b->elements()) return fmt::format("{} elements in A, {} in B", a.elements(), b->elements());
  *comparable = true;
  if (a.optimizer().name() == b->optimizer().name()) return "";
  return fmt::format("optimizer {} in A, {} in B", a.optimizer().name(), b->optimizer().name());
}

class Differ {
 public:
  Differ(const CheckpointReader& a, const CheckpointReader& b, const InspectOptions& options)
      : a_(a), b_(b), options_(options) {}

  absl::Status Run() {
    CAPSTAN_ASSIGN_OR_RETURN(const auto tables, ChooseTables(a_, options_.table));
    if (options_.table.empty()) {
      for (const std::string& line : SchemaDifferences(a_.manifest().job(), b_.manifest().job())) {
        schema_.push_back(line);
        Tell(line);
      }
    }
    for (const TableSpec* table : tables) CAPSTAN_RETURN_IF_ERROR(AddTable(*table));
    for (const TableSpec& table : b_.manifest().job().table()) {
      if (!options_.table.empty() || FindTable(a_, table.name()) != nullptr) continue;
      tables_.push_back(Json{{"table", table.name()}, {"differs", "in B only"}});
      Tell(table.name() + ": in B only");
    }
    return absl::OkStatus();
  }

  int Print() const {
    const int code = different_ ? kInspectDifferent : ToInt(ExitCode::kDone);
    if (!options_.json) return Say("diff", text_ + (different_ ? "different\n" : "equal\n"), code);
    return SayJson("diff", Json{{"different", different_}, {"schema", schema_}, {"tables", tables_}}, code);
  }

 private:
  void Tell(const std::string& line) {
    different_ = true;
    text_ += line + "\n";
  }

  absl::Status AddTable(const TableSpec& table) {
    const TableSpec* const other = FindTable(b_, table.name());
    bool comparable = false;
    const std::string difference = TableDifference(table, other, &comparable);
    if (!difference.empty()) Tell(table.name() + ": " + difference);
    if (!comparable) {
      tables_.push_back(Json{{"table", table.name()}, {"differs", difference}});
      return absl::OkStatus();
    }
    CAPSTAN_ASSIGN_OR_RETURN(const TableDiff diff, DiffTable(a_, table, b_, *other, options_.top));
    different_ |= diff.differs();
    tables_.push_back(DiffJson(table.name(), diff));
    if (!difference.empty()) tables_.back()["differs"] = difference;
    text_ += DiffText(table.name(), diff);
    return absl::OkStatus();
  }

  const CheckpointReader& a_;
  const CheckpointReader& b_;
  const InspectOptions& options_;
  bool different_ = false;
  std::string text_;
  Json schema_ = Json::array();
  Json tables_ = Json::array();
};

}  // namespace

int InspectDiff(const InspectOptions& options) {
  if (options.paths.size() != 2) return InspectUsage("diff", "wanted two checkpoints: A B");
  const auto a = OpenForInspection(options.paths[0]);
  if (!a.ok()) return InspectUnreadable("diff", a.status());
  const auto b = OpenForInspection(options.paths[1]);
  if (!b.ok()) return InspectUnreadable("diff", b.status());
  Differ differ(**a, **b, options);
  const absl::Status status = differ.Run();
  return status.ok() ? differ.Print() : InspectFailure("diff", WhileReading(**a, WhileReading(**b, status)));
}

}  // namespace capstan
