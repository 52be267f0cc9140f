// ValidateDataConfig and ShapeOf: what can be said of a config without its files.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "data/dataset.h"
#include "data/format.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr const char* kLibsvmName = "libsvm";

absl::Status ValidateDialect(const DataConfig& config) {
  const std::string& delimiter = config.delimiter();
  if (delimiter.size() != 1 || std::string_view("\"\n\r\0", 4).find(delimiter[0]) != std::string_view::npos) {
    return InvalidArgument(
        fmt::format("data.delimiter: '{}' is {} bytes long; it must be one byte, and not a quote "
                    "or a line end (\"\\t\" is a tab)",
                    delimiter, delimiter.size()));
  }
  const bool tabs = config.format() == DataConfig::TSV || config.format() == DataConfig::CRITEO;
  if (tabs && delimiter != "," && delimiter != "\t") {  // ',' is the default, which these formats do not use
    return InvalidArgument(
        fmt::format("data.delimiter: '{}' contradicts data.format: {}, whose delimiter is a tab; "
                    "use data.format: CSV",
                    delimiter, DataConfig::Format_Name(config.format())));
  }
  if (config.comment_prefix().find_first_of("\r\n") != std::string::npos) {
    return InvalidArgument(
        "data.comment_prefix: holds a line end; give the bytes that a comment line starts with");
  }
  if (config.split_rows() == 0) return InvalidArgument("data.split_rows: 0; it must be at least 1");
  return absl::OkStatus();
}

absl::Status ValidateColumns(const DataConfig& config) {
  if (config.format() == DataConfig::CRITEO && config.column_size() > 0) {
    const std::vector<std::string> fixed = CriteoColumns();
    if (!std::equal(fixed.begin(), fixed.end(), config.column().begin(), config.column().end())) {
      return InvalidArgument(
          "data.column: data.format: CRITEO fixes the columns (label, I1 … I13, C1 … C26); leave "
          "it out, or use data.format: TSV");
    }
  }
  std::set<std::string> seen;
  for (int i = 0; i < config.column_size(); ++i) {
    if (config.column(i).empty()) return InvalidArgument(fmt::format("data.column[{}]: is empty", i));
    if (!seen.insert(config.column(i)).second) {
      return InvalidArgument(fmt::format("data.column[{}]: '{}' is there twice", i, config.column(i)));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLabel(const LabelConfig& label, bool libsvm) {
  if (libsvm && !label.column().empty()) {
    return InvalidArgument(
        "data.label.column: libsvm rows have no columns, their label comes first; leave it out");
  }
  if (!libsvm && label.column().empty()) {
    return InvalidArgument(
        "data.label.column: is missing; name the column that holds what is to be predicted");
  }
  if (label.negative_size() > 0 && label.positive_size() == 0) {
    return InvalidArgument("data.label.negative: needs data.label.positive, the values that mean 1");
  }
  const std::set<std::string> positive(label.positive().begin(), label.positive().end());
  for (const std::string& value : label.negative()) {
    if (positive.count(value) > 0) {
      return InvalidArgument(fmt::format("data.label.negative: '{}' is in data.label.positive too", value));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateFeature(const DataConfig& config, const FeatureConfig& feature, int index) {
  const auto at = [index](const char* key) { return fmt::format("data.feature[{}].{}", index, key); };
  if (feature.column().empty()) {
    return InvalidArgument(
        fmt::format("{}: is missing; name the column that the feature reads", at("column")));
  }
  if (feature.column() == config.label().column()) {
    return InvalidArgument(
        fmt::format("{}: '{}' is the label; a model must not see it", at("column"), feature.column()));
  }
  if (feature.kind() == FeatureConfig::NUMERIC) {
    if (!feature.salt().empty() && feature.salt() != FeatureName(feature)) {
      return InvalidArgument(
          fmt::format("{}: is for CATEGORICAL features; '{}' is NUMERIC", at("salt"), FeatureName(feature)));
    }
    return absl::OkStatus();
  }
  if (feature.normalize() != FeatureConfig::STANDARDIZE) {  // the default, which a written-out job repeats
    return InvalidArgument(fmt::format("{}: is for NUMERIC features; '{}' is CATEGORICAL", at("normalize"),
                                       FeatureName(feature)));
  }
  if (feature.missing() != FeatureConfig::MISSING_MEAN && feature.missing() != FeatureConfig::MISSING_ERROR) {
    return InvalidArgument(
        fmt::format("{}: '{}' is CATEGORICAL, where a missing value is a category of its own; leave "
                    "it out, or use MISSING_ERROR",
                    at("missing"), FeatureName(feature)));
  }
  return absl::OkStatus();
}

absl::Status ValidateFeatures(const DataConfig& config) {
  if (config.feature_size() == 0) {
    return InvalidArgument(
        "data.feature: there is none; list the columns that the model may use, each as data.feature "
        "{ column: … kind: NUMERIC or CATEGORICAL }");
  }
  std::set<std::string> names;
  for (int i = 0; i < config.feature_size(); ++i) {
    CAPSTAN_RETURN_IF_ERROR(ValidateFeature(config, config.feature(i), i));
    if (!names.insert(FeatureName(config.feature(i))).second) {
      return InvalidArgument(
          fmt::format("data.feature[{}].name: '{}' is the name of an earlier feature too; give each "
                      "feature of a column its own name",
                      i, FeatureName(config.feature(i))));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateDataConfig(const DataConfig& given) {
  CAPSTAN_RETURN_IF_ERROR(ValidateColumns(given));
  const DataConfig config = WithFormatDefaults(given);
  CAPSTAN_RETURN_IF_ERROR(ValidateDialect(config));
  const bool libsvm = IsLibsvm(config);
  CAPSTAN_RETURN_IF_ERROR(ValidateLabel(config.label(), libsvm));
  for (const std::string& path : config.train()) {
    CAPSTAN_ASSIGN_OR_RETURN(const DataConfig::Format format, FormatOf(config, path));
    if ((format == DataConfig::LIBSVM) != libsvm) {
      return InvalidArgument(
          fmt::format("data.train: '{}' and '{}' have different formats", config.train(0), path));
    }
  }
  if (!libsvm) return ValidateFeatures(config);
  if (config.feature_size() > 0) {
    return InvalidArgument(
        "data.feature: libsvm rows have no columns, every index is a feature; leave it out");
  }
  if (!config.weight_column().empty()) {
    return InvalidArgument("data.weight_column: libsvm rows have no columns; leave it out");
  }
  return absl::OkStatus();
}

FeatureShape ShapeOf(const DataConfig& given) {
  FeatureShape shape;
  if (IsLibsvm(given)) {
    shape.sparse_names.push_back(kLibsvmName);
    return shape;
  }
  const DataConfig config = WithFormatDefaults(given);
  for (const FeatureConfig& feature : config.feature()) {
    if (feature.kind() == FeatureConfig::CATEGORICAL) {
      shape.sparse_names.push_back(FeatureName(feature));
    } else {
      shape.numeric_width += feature.missing() == FeatureConfig::MISSING_INDICATOR ? 2 : 1;
    }
  }
  return shape;
}

}  // namespace capstan
