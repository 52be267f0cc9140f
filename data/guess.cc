#include "data/guess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "data/csv.h"
#include "data/format.h"
#include "data/input_file.h"
#include "data/number.h"
#include "data/records.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr uint64_t kSampleRows = 20000;
constexpr uint64_t kDelimiterRows = 50;
constexpr size_t kFewValues = 100;
constexpr std::string_view kDelimiters = ",;\t|";
constexpr std::array<const char*, 7> kMissingTexts = {"?", "NA", "N/A", "NaN", "nan", "null", "NULL"};
constexpr std::array<std::string_view, 6> kYesTexts = {"yes", "true", "y", "t", "positive", "on"};

using TextRow = std::vector<std::string>;

// Up to `limit` records; stops early, without an error, at one that does not parse in this dialect.
absl::StatusOr<std::vector<TextRow>> SampleRows(const InputFile& input, const CsvDialect& dialect,
                                                uint64_t limit) {
  static const std::vector<std::string> unnamed;
  std::vector<TextRow> rows;
  RecordStream stream(input, dialect, unnamed, {input.first_byte(), 1});
  FieldSplitter splitter;
  while (rows.size() < limit) {
    const absl::StatusOr<bool> more = stream.Next();
    if (absl::IsInvalidArgument(more.status())) break;
    CAPSTAN_RETURN_IF_ERROR(more.status());
    if (!*more || splitter.Split(stream.record(), dialect) != FieldProblem::kNone) break;
    rows.emplace_back(splitter.fields().begin(), splitter.fields().end());
  }
  return rows;
}

// The delimiter that cuts most of the first records into the same number of columns, at least two; of
// several, the one that gives more columns.
absl::StatusOr<char> GuessDelimiter(const InputFile& input, CsvDialect dialect) {
  char best = ',';
  size_t best_score = 0;
  for (const char delimiter : kDelimiters) {
    dialect.delimiter = delimiter;
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<TextRow> rows, SampleRows(input, dialect, kDelimiterRows));
    if (rows.empty() || rows[0].size() < 2) continue;
    const size_t columns = rows[0].size();
    const auto alike = static_cast<size_t>(std::count_if(
        rows.begin(), rows.end(), [columns](const TextRow& row) { return row.size() == columns; }));
    const size_t score = alike * 1000 + std::min<size_t>(columns, 999);
    if (score > best_score) {
      best_score = score;
      best = delimiter;
    }
  }
  return best;
}

bool IsNumber(const std::string& text) {
  double value = 0;
  return ParseNumber(text, &value) == NumberProblem::kNone;
}

bool LooksLikeHeader(const std::vector<TextRow>& rows, const std::string& label) {
  const TextRow& first = rows[0];
  // A label that is a number may be the place of a column, and as such occur in the first row by chance.
  if (!IsNumber(label) && std::find(first.begin(), first.end(), label) != first.end()) return true;
  if (std::any_of(first.begin(), first.end(), IsNumber)) return false;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (std::any_of(rows[i].begin(), rows[i].end(), IsNumber)) return true;
  }
  return false;
}

struct ColumnFacts {
  uint64_t present = 0;
  uint64_t missing = 0;
  bool numeric = true;                     // all present values are numbers
  bool whole = true;                       // and whole ones
  std::map<std::string, uint64_t> values;  // with counts; no more than kFewValues + 1 of them
};

void Observe(const std::string& text, const std::set<std::string>& missing, ColumnFacts* facts) {
  if (text.empty() || missing.count(text) > 0) {
    ++facts->missing;
    return;
  }
  ++facts->present;
  double value = 0;
  facts->numeric = facts->numeric && ParseNumber(text, &value) == NumberProblem::kNone;
  facts->whole = facts->whole && facts->numeric && value == std::floor(value);
  const auto known = facts->values.find(text);
  if (known != facts->values.end()) {
    ++known->second;
  } else if (facts->values.size() <= kFewValues) {
    facts->values.emplace(text, 1);
  }
}

// True if `a` rather than `b` should mean 1.
bool MeansOne(const std::string& a, uint64_t a_count, const std::string& b, uint64_t b_count) {
  double a_number = 0, b_number = 0;
  if (ParseNumber(a, &a_number) == NumberProblem::kNone &&
      ParseNumber(b, &b_number) == NumberProblem::kNone) {
    return a_number > b_number;
  }
  const auto is_yes = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; });
    return std::find(kYesTexts.begin(), kYesTexts.end(), text) != kYesTexts.end();
  };
  if (is_yes(a) != is_yes(b)) return is_yes(a);
  return a_count < b_count;
}

absl::Status GuessLabel(const std::string& path, const std::string& column, const ColumnFacts& facts,
                        DataConfig* config, std::string* report) {
  LabelConfig* label = config->mutable_label();
  label->set_column(column);
  if (label->positive_size() > 0) return absl::OkStatus();
  if (facts.values.size() != 2) {
    std::vector<std::string> values;
    for (const auto& [value, count] : facts.values) values.push_back(value);
    const bool many = facts.values.size() > kFewValues;
    return InvalidArgument(fmt::format(
        "data.label.positive: column '{}' of '{}' has {}{} different values in its first "
        "rows ({}), and two are wanted; list those that mean 1",
        column, path, many ? "more than " : "", many ? kFewValues : values.size(), ListNames(values)));
  }
  const auto& first = *facts.values.begin();
  const auto& second = *facts.values.rbegin();
  const bool first_is_one = MeansOne(first.first, first.second, second.first, second.second);
  const auto& one = first_is_one ? first : second;
  const auto& zero = first_is_one ? second : first;
  label->add_positive(one.first);
  label->add_negative(zero.first);
  *report += fmt::format(
      "label '{}': '{}' means 1 ({:.1f} % of the {} rows looked at), '{}' means 0\n", column, one.first,
      100.0 * static_cast<double>(one.second) / static_cast<double>(one.second + zero.second),
      one.second + zero.second, zero.first);
  return absl::OkStatus();
}

void GuessFeatures(const std::vector<std::string>& columns, const std::vector<ColumnFacts>& facts,
                   DataConfig* config, std::string* report) {
  std::vector<std::string> numeric, categorical, both, left_out;
  for (size_t i = 0; i < columns.size(); ++i) {
    const std::string& column = columns[i];
    if (column == config->label().column() || column == config->weight_column()) continue;
    if (column.empty() || facts[i].present == 0 || std::count(columns.begin(), columns.end(), column) > 1) {
      left_out.push_back(column);
      continue;
    }
    FeatureConfig* feature = config->add_feature();
    feature->set_column(column);
    if (!facts[i].numeric) {
      feature->set_kind(FeatureConfig::CATEGORICAL);
      categorical.push_back(column);
      continue;
    }
    numeric.push_back(column);
    if (facts[i].missing > 0) feature->set_missing(FeatureConfig::MISSING_INDICATOR);
    if (!facts[i].whole || facts[i].values.size() > kFewValues) continue;
    FeatureConfig* id = config->add_feature();
    id->set_column(column);
    id->set_name(column + "#id");
    id->set_kind(FeatureConfig::CATEGORICAL);
    both.push_back(column);
  }
  const auto line = [report](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) *report += fmt::format("{}: {}\n", what, ListNames(names));
  };
  line("numeric", numeric);
  line("of these also categorical, having few different values", both);
  line("categorical", categorical);
  line("left out, being empty, unnamed or named twice", left_out);
}

// Format, delimiter and missing values, as far as the config leaves them open.
absl::Status GuessDialect(const InputFile& input, DataConfig* config) {
  const bool tsv = input.path().ends_with(".tsv") || input.path().ends_with(".tsv.gz");
  if (config->format() == DataConfig::AUTO && tsv) config->set_format(DataConfig::TSV);
  if (config->format() == DataConfig::AUTO) config->set_format(DataConfig::CSV);
  if (config->format() == DataConfig::CSV && !config->has_delimiter()) {
    CAPSTAN_ASSIGN_OR_RETURN(const char delimiter,
                             GuessDelimiter(input, DialectOf(*config, DataConfig::CSV)));
    config->set_delimiter(std::string(1, delimiter));
  }
  if (config->missing_value_size() > 0) return absl::OkStatus();
  for (const char* text : kMissingTexts) config->add_missing_value(text);
  return absl::OkStatus();
}

// Names for the columns; takes the header off `rows`.
std::vector<std::string> GuessColumns(const std::string& label, DataConfig* config,
                                      std::vector<TextRow>* rows) {
  if (config->header() == DataConfig::HEADER_AUTO && config->column_size() == 0) {
    config->set_header(LooksLikeHeader(*rows, label) ? DataConfig::HEADER_YES : DataConfig::HEADER_NO);
  }
  std::vector<std::string> columns(config->column().begin(), config->column().end());
  const size_t width = rows->front().size();
  if (HasHeader(*config)) {
    if (columns.empty()) columns = rows->front();
    rows->erase(rows->begin());
  }
  for (size_t i = columns.size(); i < width && config->column_size() == 0; ++i)
    columns.push_back(fmt::format("{}", i + 1));
  return columns;
}

}  // namespace

absl::StatusOr<std::string> GuessSchema(FileSystem& fs, const std::string& path,
                                        const std::string& label_column, DataConfig* config) {
  DataConfig named = *config;
  named.clear_train();
  named.add_train(path);
  if (IsLibsvm(named)) {
    config->set_format(DataConfig::LIBSVM);
    return std::string("libsvm: every index is a feature\n");
  }
  if (config->format() == DataConfig::CRITEO)
    return std::string("Criteo: label, I1 … I13 numeric, C1 … C26 categorical\n");
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> input, InputFile::Open(fs, path));
  CAPSTAN_RETURN_IF_ERROR(GuessDialect(*input, config));
  const CsvDialect dialect = DialectOf(*config, config->format());
  CAPSTAN_ASSIGN_OR_RETURN(std::vector<TextRow> rows, SampleRows(*input, dialect, kSampleRows));
  if (rows.empty()) return InvalidArgument(fmt::format("'{}' has no row that could be read", path));
  const std::vector<std::string> columns = GuessColumns(label_column, config, &rows);
  if (label_column.empty()) {
    return InvalidArgument(fmt::format("--label is missing: which column of '{}' is to be predicted? It has {}", path,
                                       ListNames(columns)));
  }
  const auto label = std::find(columns.begin(), columns.end(), label_column);
  if (label == columns.end()) {
    return InvalidArgument(fmt::format("data.label.column: '{}' is not in '{}'; its columns are {}{}{}",
                                       label_column, path, ListNames(columns),
                                       HasHeader(*config) ? "" : " (it seems to have no header)",
                                       DidYouMean(label_column, columns)));
  }
  const std::set<std::string> missing(config->missing_value().begin(), config->missing_value().end());
  std::vector<ColumnFacts> facts(columns.size());
  for (const TextRow& row : rows) {
    for (size_t i = 0; i < std::min(row.size(), columns.size()); ++i) Observe(row[i], missing, &facts[i]);
  }
  std::string report =
      fmt::format("'{}': {} columns, {}, delimiter {}\n", path, columns.size(),
                  HasHeader(*config) ? "with a header" : "no header",
                  dialect.delimiter == '\t' ? std::string("tab") : fmt::format("'{}'", dialect.delimiter));
  CAPSTAN_RETURN_IF_ERROR(
      GuessLabel(path, label_column, facts[static_cast<size_t>(label - columns.begin())], config, &report));
  if (config->feature_size() == 0) GuessFeatures(columns, facts, config, &report);
  if (config->feature_size() == 0) {
    return InvalidArgument(fmt::format(
        "'{}' has no column besides '{}' to learn from; is data.delimiter right?", path, label_column));
  }
  return report;
}

}  // namespace capstan
