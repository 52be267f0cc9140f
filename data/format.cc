#include "data/format.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr int kCriteoCounts = 13;
constexpr int kCriteoCategories = 26;
constexpr size_t kListedNames = 20;

struct Ending {
  std::string_view text;
  DataConfig::Format format;
};
constexpr Ending kEndings[] = {
    {".csv", DataConfig::CSV},
    {".tsv", DataConfig::TSV},
    {".libsvm", DataConfig::LIBSVM},
    {".svm", DataConfig::LIBSVM},
};

DataConfig::Format FormatOfEnding(std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  for (const Ending& ending : kEndings) {
    if (path.ends_with(ending.text)) return ending.format;
  }
  return DataConfig::AUTO;
}

// Insertions, deletions and replacements that turn a into b (Levenshtein 1966), one row of the table at a
// time.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

}  // namespace

absl::StatusOr<DataConfig::Format> FormatOf(const DataConfig& config, const std::string& path) {
  if (config.format() != DataConfig::AUTO) return config.format();
  const DataConfig::Format format = FormatOfEnding(path);
  if (format != DataConfig::AUTO) return format;
  return InvalidArgument(
      fmt::format("data.format: the ending of '{}' does not tell its format (.csv, .tsv, .libsvm "
                  "and .svm do); set data.format to CSV, TSV, LIBSVM or CRITEO",
                  path));
}

bool IsLibsvm(const DataConfig& config) {
  if (config.format() != DataConfig::AUTO) return config.format() == DataConfig::LIBSVM;
  if (config.train_size() > 0) return FormatOfEnding(config.train(0)) == DataConfig::LIBSVM;
  return config.eval_size() > 0 && FormatOfEnding(config.eval(0)) == DataConfig::LIBSVM;
}

CsvDialect DialectOf(const DataConfig& config, DataConfig::Format format) {
  CsvDialect dialect;
  dialect.trim = config.trim();
  dialect.comment_prefix = config.comment_prefix();
  switch (format) {
    case DataConfig::TSV:
      dialect.delimiter = '\t';
      break;
    case DataConfig::CRITEO:
      dialect.delimiter = '\t';
      dialect.quotes = false;
      break;
    case DataConfig::LIBSVM:
      dialect.delimiter = ' ';
      dialect.quotes = false;
      if (dialect.comment_prefix.empty()) dialect.comment_prefix.assign(1, '#');
      break;
    default:
      if (!config.delimiter().empty()) dialect.delimiter = config.delimiter()[0];
  }
  return dialect;
}

std::vector<std::string> CriteoColumns() {
  std::vector<std::string> columns = {"label"};
  for (int i = 1; i <= kCriteoCounts; ++i) columns.push_back(fmt::format("I{}", i));
  for (int i = 1; i <= kCriteoCategories; ++i) columns.push_back(fmt::format("C{}", i));
  return columns;
}

DataConfig WithFormatDefaults(const DataConfig& config) {
  DataConfig full = config;
  if (config.format() != DataConfig::CRITEO) return full;
  const std::vector<std::string> columns = CriteoColumns();
  full.clear_column();
  for (const std::string& column : columns) full.add_column(column);
  full.set_header(DataConfig::HEADER_NO);
  if (full.label().column().empty()) full.mutable_label()->set_column(columns[0]);
  if (full.feature_size() > 0) return full;
  for (size_t i = 1; i < columns.size(); ++i) {
    FeatureConfig* feature = full.add_feature();
    feature->set_column(columns[i]);
    if (i > kCriteoCounts) {
      feature->set_kind(FeatureConfig::CATEGORICAL);
    } else {
      feature->set_normalize(FeatureConfig::LOG1P_STANDARDIZE);
      feature->set_missing(FeatureConfig::MISSING_INDICATOR);
    }
  }
  return full;
}

bool HasHeader(const DataConfig& config) {
  if (config.header() == DataConfig::HEADER_AUTO) return config.column_size() == 0;
  return config.header() == DataConfig::HEADER_YES;
}

const std::string& FeatureName(const FeatureConfig& feature) {
  return feature.name().empty() ? feature.column() : feature.name();
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t best_distance = 3;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance && distance < word.size()) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : fmt::format(", did you mean '{}'?", *best);
}

std::string ListNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kListedNames; ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i].substr(0, 60));
  }
  if (names.size() > kListedNames) text += fmt::format(" and {} more", names.size() - kListedNames);
  return text;
}

}  // namespace capstan
