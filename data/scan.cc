// ScanData: counts the rows of all files, cuts them into splits, then parses every split once.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "data/data_file.h"
#include "data/dataset.h"
#include "data/format.h"
#include "data/schema.h"
#include "proto/control.pb.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr uint64_t kMaxSplitBytes = uint64_t{2} << 30;  // a split is read into memory as a whole

// Count, mean and sum of squared differences from it, one value at a time (Welford 1962) and by parts (Chan,
// Golub, LeVeque 1979). Parts are merged in split order only, so the bits do not depend on who scanned what.
struct Moments {
  uint64_t count = 0;
  double mean = 0;
  double squares = 0;

  void Add(double x) {
    ++count;
    const double delta = x - mean;
    mean += delta / static_cast<double>(count);
    squares += delta * (x - mean);
  }
  void Merge(const Moments& other) {
    if (other.count == 0) return;
    const double mine = static_cast<double>(count), theirs = static_cast<double>(other.count);
    const double delta = other.mean - mean;
    count += other.count;
    mean += delta * theirs / (mine + theirs);
    squares += other.squares + delta * delta * mine * theirs / (mine + theirs);
  }
  double stddev() const { return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count)); }
};

struct ScanTotals {
  std::vector<Moments> moments;
  uint64_t bad_rows = 0;
  uint64_t positives = 0;
  std::string first_problem;
};

struct ScanFile {
  std::unique_ptr<DataFile> file;
  RecordIndex index;
};

absl::StatusOr<std::vector<ScanFile>> OpenAndCount(FileSystem& fs, const DataConfig& config,
                                                   const Schema& schema,
                                                   const std::vector<std::string>& paths, bool labels,
                                                   std::vector<std::string> known_columns) {
  std::vector<ScanFile> files;
  for (const std::string& path : paths) {
    ScanFile scan;
    CAPSTAN_ASSIGN_OR_RETURN(scan.file, DataFile::Open(fs, path, config, schema, known_columns));
    CAPSTAN_RETURN_IF_ERROR(scan.file->CheckBinding(labels));
    CAPSTAN_ASSIGN_OR_RETURN(scan.index, scan.file->BuildIndex());
    if (known_columns.empty()) known_columns = scan.file->columns();
    files.push_back(std::move(scan));
  }
  return files;
}

// Splits of a file differ by at most one row and never reach into the next file.
absl::Status CutFile(const ScanFile& scan, uint32_t file, uint64_t limit, DataPlan* plan) {
  const uint64_t rows = scan.index.rows();
  const uint64_t splits = (rows + limit - 1) / limit;
  for (uint64_t i = 0; i < splits; ++i) {
    const uint64_t first = rows * i / splits;
    const auto count = static_cast<uint32_t>(rows * (i + 1) / splits - first);
    CAPSTAN_ASSIGN_OR_RETURN(const DataFile::Range range, scan.file->RangeOf(scan.index, first, count));
    if (range.bytes > kMaxSplitBytes) {
      return InvalidArgument(
          fmt::format("data.split_rows: {} rows of '{}' from line {} on are {} bytes, and a split may "
                      "have {}; lower it",
                      count, scan.file->input().path(), range.from.line, range.bytes, kMaxSplitBytes));
    }
    DataPlan::Split* split = plan->add_split();
    split->set_file(file);
    split->set_offset(range.from.offset);
    split->set_bytes(range.bytes);
    split->set_first_row(plan->rows() + first);
    split->set_first_line(range.from.line);
    split->set_rows(count);
  }
  plan->set_rows(plan->rows() + rows);
  return absl::OkStatus();
}

absl::Status CutAll(const std::vector<ScanFile>& files, const DataConfig& config, const SplitRule& rule,
                    DataPlan* plan) {
  uint64_t total = 0;
  for (const ScanFile& scan : files) total += scan.index.rows();
  uint64_t limit = std::max<uint64_t>(1, total / (8 * uint64_t{std::max(1u, rule.ranks)}));
  limit = std::min({limit, uint64_t{std::max(1u, rule.max_rows)}, uint64_t{config.split_rows()}});
  plan->set_rows(0);
  for (size_t i = 0; i < files.size(); ++i) {
    const InputFile& input = files[i].file->input();
    DataPlan::File* file = plan->add_file();
    file->set_path(input.path());
    file->set_bytes(input.disk_bytes());
    file->set_fingerprint(input.fingerprint());
    CAPSTAN_RETURN_IF_ERROR(CutFile(files[i], static_cast<uint32_t>(i), limit, plan));
  }
  return absl::OkStatus();
}

absl::Status ParseSplit(const DataFile& file, const DataPlan::Split& split, bool labels, ScanTotals* totals) {
  std::vector<Moments> moments(totals->moments.size());
  const DataFile::Range range = {{split.offset(), split.first_line()}, split.bytes(), split.rows()};
  const auto add_row = [&](const RowValues& row, const std::string& problem) {
    if (!problem.empty()) {
      if (totals->bad_rows++ == 0) totals->first_problem = problem;
      return;
    }
    totals->positives += row.label > 0 ? 1 : 0;
    for (size_t i = 0; i < moments.size(); ++i) {
      if (!std::isnan(row.numeric[i])) moments[i].Add(row.numeric[i]);
    }
  };
  CAPSTAN_RETURN_IF_ERROR(file.ReadRows(range, labels, add_row));
  for (size_t i = 0; i < moments.size(); ++i) totals->moments[i].Merge(moments[i]);
  return absl::OkStatus();
}

absl::Status CheckTotals(const ScanTotals& totals, const DataConfig& config, const DataPlan& plan) {
  if (totals.bad_rows > config.max_bad_rows()) {
    return InvalidArgument(fmt::format(
        "{} (rows that are bad: {} of {}; data.max_bad_rows allows {}: mend them, or set "
        "data.max_bad_rows: {} to leave them out)",
        totals.first_problem, totals.bad_rows, plan.rows(), config.max_bad_rows(), totals.bad_rows));
  }
  if (totals.bad_rows == plan.rows()) {
    return InvalidArgument(fmt::format("{} (every row is bad)", totals.first_problem));
  }
  return absl::OkStatus();
}

void FillRecipe(const ScanTotals& totals, const Schema& schema, const std::vector<std::string>& columns,
                Recipe* recipe) {
  recipe->Clear();
  for (size_t i = 0; i < totals.moments.size(); ++i) {
    FeatureStats* stats = recipe->add_numeric();
    stats->set_name(schema.numeric_names()[i]);
    stats->set_count(totals.moments[i].count);
    stats->set_mean(totals.moments[i].mean);
    stats->set_stddev(totals.moments[i].stddev());
  }
  for (const std::string& column : columns) recipe->add_column(column);
}

}  // namespace

absl::Status ScanData(FileSystem& fs, const DataConfig& config, const std::vector<std::string>& files,
                      const SplitRule& rule, DataPlan* plan, Recipe* recipe) {
  CAPSTAN_RETURN_IF_ERROR(ValidateDataConfig(config));
  if (files.empty()) return InvalidArgument("data.train: names no file");
  const Schema schema(config);
  const bool fit = recipe->column_size() == 0;
  if (!fit) CAPSTAN_RETURN_IF_ERROR(InputMaker::Make(config, *recipe).status());
  const std::vector<std::string> known(recipe->column().begin(), recipe->column().end());
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<ScanFile> opened,
                           OpenAndCount(fs, config, schema, files, rule.labels, known));
  plan->Clear();
  CAPSTAN_RETURN_IF_ERROR(CutAll(opened, config, rule, plan));
  ScanTotals totals;
  if (fit) totals.moments.resize(schema.numeric_names().size());
  for (const DataPlan::Split& split : plan->split()) {
    CAPSTAN_RETURN_IF_ERROR(ParseSplit(*opened[split.file()].file, split, rule.labels, &totals));
  }
  CAPSTAN_RETURN_IF_ERROR(CheckTotals(totals, config, *plan));
  if (!fit) return absl::OkStatus();
  if (rule.labels && totals.positives == 0 && !schema.positive_labels().empty()) {
    return InvalidArgument(
        fmt::format("data.label.positive: no row of '{}' has a label among {}; compare them with the "
                    "column '{}'",
                    files[0], ListNames(schema.positive_labels()), schema.label_column()));
  }
  FillRecipe(totals, schema, opened[0].file->columns(), recipe);
  return absl::OkStatus();
}

}  // namespace capstan
