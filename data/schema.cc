#include "data/schema.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "common/hash.h"
#include "data/dataset.h"
#include "data/format.h"
#include "data/number.h"
#include "proto/control.pb.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

constexpr size_t kShownText = 60;
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kLibsvmSalt = "libsvm";
// A missing value hashes this text under a seed of its own, so no text of a file has the same input.
constexpr std::string_view kMissingText = "missing";

uint64_t LibsvmKey(uint64_t index) {
  static const uint64_t salt = HashBytes(kLibsvmSalt);
  return Mix64(index ^ salt);
}

bool ParseIndex(std::string_view text, uint64_t* index) {
  const char* const end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, *index);
  return result.ec == std::errc() && result.ptr == end && !text.empty();
}

std::string Quoted(std::string_view text) {
  const bool cut = text.size() > kShownText;
  return fmt::format("'{}{}'", text.substr(0, kShownText), cut ? "…" : "");
}

bool Contains(const std::vector<std::string>& values, std::string_view text) {
  return std::any_of(values.begin(), values.end(),
                     [text](const std::string& value) { return value == text; });
}

absl::StatusOr<uint32_t> FindColumn(const std::string& path, const std::vector<std::string>& columns,
                                    const std::string& name, std::string_view key) {
  const auto first = std::find(columns.begin(), columns.end(), name);
  if (first == columns.end()) {
    std::string hint = DidYouMean(name, columns);
    if (hint.empty() && columns.size() == 1) hint = "; is data.delimiter right?";
    return InvalidArgument(fmt::format("{}: '{}' is not in '{}'; its columns are {}{}", key, name, path,
                                       ListNames(columns), hint));
  }
  const auto second = std::find(first + 1, columns.end(), name);
  const auto at = static_cast<uint32_t>(first - columns.begin());
  if (second != columns.end()) {
    return InvalidArgument(fmt::format("{}: '{}' has two columns '{}', the {}. and the {}.; rename one", key,
                                       path, name, at + 1, second - columns.begin() + 1));
  }
  return at;
}

}  // namespace

Schema::Schema(const DataConfig& given) {
  const DataConfig config = WithFormatDefaults(given);
  libsvm_ = IsLibsvm(config);
  for (int i = 0; i < config.feature_size() && !libsvm_; ++i) {
    const FeatureConfig& feature = config.feature(i);
    const bool refuse = feature.missing() == FeatureConfig::MISSING_ERROR;
    if (feature.kind() == FeatureConfig::NUMERIC) {
      numeric_.push_back({feature.normalize() == FeatureConfig::LOG1P_STANDARDIZE, refuse});
      numeric_names_.push_back(FeatureName(feature));
      numeric_columns_.push_back(feature.column());
      numeric_index_.push_back(i);
    } else {
      const uint64_t seed = HashBytes(feature.salt().empty() ? FeatureName(feature) : feature.salt());
      categorical_.push_back({seed, HashBytes(kMissingText, Mix64(seed)), refuse});
      sparse_columns_.push_back(feature.column());
      sparse_names_.push_back(FeatureName(feature));
      sparse_index_.push_back(i);
    }
  }
  label_column_ = config.label().column();
  weight_column_ = config.weight_column();
  positive_.assign(config.label().positive().begin(), config.label().positive().end());
  negative_.assign(config.label().negative().begin(), config.label().negative().end());
  missing_.assign(config.missing_value().begin(), config.missing_value().end());
}

absl::StatusOr<Binding> Schema::Bind(const std::string& path, std::vector<std::string> columns,
                                     bool labels) const {
  Binding binding;
  for (size_t i = 0; i < numeric_.size(); ++i) {
    const std::string key = fmt::format("data.feature[{}].column", numeric_index_[i]);
    CAPSTAN_ASSIGN_OR_RETURN(const uint32_t field, FindColumn(path, columns, numeric_columns_[i], key));
    binding.numeric_field.push_back(field);
  }
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const std::string key = fmt::format("data.feature[{}].column", sparse_index_[i]);
    CAPSTAN_ASSIGN_OR_RETURN(const uint32_t field, FindColumn(path, columns, sparse_columns_[i], key));
    binding.sparse_field.push_back(field);
  }
  if (labels) {
    CAPSTAN_ASSIGN_OR_RETURN(binding.label_field,
                             FindColumn(path, columns, label_column_, "data.label.column"));
    if (!weight_column_.empty()) {
      CAPSTAN_ASSIGN_OR_RETURN(binding.weight_field,
                               FindColumn(path, columns, weight_column_, "data.weight_column"));
    }
  }
  binding.columns = std::move(columns);
  return binding;
}

std::vector<std::pair<std::string, uint64_t>> Schema::KeysOfValue(const std::string& column,
                                                                  std::string_view raw) const {
  std::vector<std::pair<std::string, uint64_t>> keys;
  if (uint64_t index = 0; libsvm_ && column == kLibsvmSalt && ParseIndex(raw, &index)) {
    keys.emplace_back(kLibsvmSalt, LibsvmKey(index));
  }
  for (size_t i = 0; i < categorical_.size(); ++i) {
    if (sparse_columns_[i] != column) continue;
    keys.emplace_back(sparse_names_[i],
                      IsMissing(raw) ? categorical_[i].missing_key : HashBytes(raw, categorical_[i].seed));
  }
  return keys;
}

bool Schema::IsMissing(std::string_view text) const { return text.empty() || Contains(missing_, text); }

bool Schema::ParseLabel(std::string_view text, float* label, std::string* problem) const {
  if (IsMissing(text)) {
    *problem = "the label is missing";
    return false;
  }
  if (positive_.empty()) {
    double number = 0;
    if (const NumberProblem bad = ParseNumber(text, &number); bad != NumberProblem::kNone) {
      *problem = fmt::format("{} {}; list the values that mean 1 under data.label.positive", Quoted(text),
                             Describe(bad));
      return false;
    }
    *label = number > 0 ? 1.0f : 0.0f;
    return true;
  }
  const bool positive = Contains(positive_, text);
  if (!positive && !negative_.empty() && !Contains(negative_, text)) {
    *problem = fmt::format("{} is neither in data.label.positive ({}) nor in data.label.negative ({})",
                           Quoted(text), ListNames(positive_), ListNames(negative_));
    return false;
  }
  *label = positive ? 1.0f : 0.0f;
  return true;
}

bool Schema::ParseWeight(std::string_view text, float* weight, std::string* problem) const {
  double number = 0;
  if (IsMissing(text)) {
    *problem = "the weight is missing";
    return false;
  }
  if (const NumberProblem bad = ParseNumber(text, &number); bad != NumberProblem::kNone) {
    *problem = fmt::format("{} {}", Quoted(text), Describe(bad));
    return false;
  }
  if (number < 0) {
    *problem = fmt::format("{} is negative, and weights must not be", Quoted(text));
    return false;
  }
  *weight = static_cast<float>(number);
  return true;
}

bool Schema::ParseNumeric(const Numeric& feature, std::string_view text, double* value,
                          std::string* problem) const {
  if (IsMissing(text)) {
    *value = kMissing;
    if (!feature.refuse_missing) return true;
    *problem = "the value is missing";
    return false;
  }
  const NumberProblem bad = ParseNumber(text, value);
  if (bad == NumberProblem::kNone) {
    if (feature.log1p) *value = std::copysign(std::log1p(std::fabs(*value)), *value);
    return true;
  }
  *problem = fmt::format("{} {}", Quoted(text), Describe(bad));
  return false;
}

bool Schema::ParseRow(std::span<const std::string_view> fields, const Binding& binding, RowValues* row,
                      std::string* problem) const {
  const auto bad = [&](uint32_t field) {
    *problem = fmt::format("column '{}': {}", binding.columns[field], *problem);
    return false;
  };
  row->numeric.resize(numeric_.size());
  row->keys.resize(categorical_.size());
  row->label = 0;
  row->weight = 1;
  if (binding.label_field != Binding::kAbsent &&
      !ParseLabel(fields[binding.label_field], &row->label, problem)) {
    return bad(binding.label_field);
  }
  if (binding.weight_field != Binding::kAbsent &&
      !ParseWeight(fields[binding.weight_field], &row->weight, problem)) {
    return bad(binding.weight_field);
  }
  for (size_t i = 0; i < numeric_.size(); ++i) {
    const uint32_t field = binding.numeric_field[i];
    if (!ParseNumeric(numeric_[i], fields[field], &row->numeric[i], problem)) return bad(field);
  }
  for (size_t i = 0; i < categorical_.size(); ++i) {
    const uint32_t field = binding.sparse_field[i];
    const Categorical& feature = categorical_[i];
    const bool missing = IsMissing(fields[field]);
    if (missing && feature.refuse_missing) {
      *problem = "the value is missing";
      return bad(field);
    }
    row->keys[i] = missing ? feature.missing_key : HashBytes(fields[field], feature.seed);
  }
  return true;
}

bool Schema::ParseRow(const LibsvmRow& fields, bool labels, RowValues* row, std::string* problem) const {
  row->label = 0;
  row->weight = 1;
  if (labels && !ParseLabel(fields.label, &row->label, problem)) {
    *problem = fmt::format("label: {}", *problem);
    return false;
  }
  row->keys.resize(fields.indices.size());
  for (size_t i = 0; i < fields.indices.size(); ++i) row->keys[i] = LibsvmKey(fields.indices[i]);
  row->values = fields.values;
  return true;
}

absl::StatusOr<InputMaker> InputMaker::Make(const DataConfig& given, const Recipe& recipe) {
  const DataConfig config = WithFormatDefaults(given);
  InputMaker maker;
  maker.libsvm_ = IsLibsvm(config);
  maker.sparse_ = static_cast<uint32_t>(ShapeOf(config).sparse_names.size());
  maker.width_ = ShapeOf(config).numeric_width;
  int next = 0;
  for (const FeatureConfig& feature : config.feature()) {
    if (feature.kind() != FeatureConfig::NUMERIC) continue;
    if (next >= recipe.numeric_size() || recipe.numeric(next).name() != FeatureName(feature)) {
      return InvalidArgument(
          fmt::format("data.feature: '{}' has no fitted statistics in the recipe; the model was "
                      "trained with other features",
                      FeatureName(feature)));
    }
    const FeatureStats& stats = recipe.numeric(next++);
    Input input = {};
    const bool raw = feature.normalize() == FeatureConfig::NONE;
    input.mean = raw ? 0 : stats.mean();
    input.scale = raw || !(stats.stddev() > 0) ? 1 : stats.stddev();
    input.if_missing = raw && feature.missing() != FeatureConfig::MISSING_ZERO ? stats.mean() : 0;
    input.indicator = feature.missing() == FeatureConfig::MISSING_INDICATOR;
    maker.inputs_.push_back(input);
  }
  if (next != recipe.numeric_size()) {
    return InvalidArgument(
        fmt::format("data.feature: the recipe has statistics of {} numeric features, the config {}; "
                    "the model was trained with other features",
                    recipe.numeric_size(), next));
  }
  return maker;
}

Batch InputMaker::NewBatch(uint32_t rows) const {
  Batch batch;
  batch.numeric_width = width_;
  batch.numeric.reserve(size_t{rows} * width_);
  batch.sparse.resize(sparse_);
  for (SparseColumn& column : batch.sparse) {
    column.offsets.reserve(rows + 1);
    column.offsets.push_back(0);
    column.keys.reserve(rows);
  }
  batch.labels.reserve(rows);
  batch.weights.reserve(rows);
  batch.row_ids.reserve(rows);
  return batch;
}

void InputMaker::Append(const RowValues& row, uint64_t row_id, Batch* batch) const {
  constexpr double kLargest = static_cast<double>(FLT_MAX);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Input& input = inputs_[i];
    const bool missing = std::isnan(row.numeric[i]);
    const double value = missing ? input.if_missing : (row.numeric[i] - input.mean) / input.scale;
    batch->numeric.push_back(static_cast<float>(std::clamp(value, -kLargest, kLargest)));
    if (input.indicator) batch->numeric.push_back(missing ? 1.0f : 0.0f);
  }
  if (libsvm_) {
    SparseColumn& column = batch->sparse[0];
    column.keys.insert(column.keys.end(), row.keys.begin(), row.keys.end());
    column.values.insert(column.values.end(), row.values.begin(), row.values.end());
    column.offsets.push_back(static_cast<uint32_t>(column.keys.size()));
  } else {
    for (size_t i = 0; i < batch->sparse.size(); ++i) {
      batch->sparse[i].keys.push_back(row.keys[i]);
      batch->sparse[i].offsets.push_back(static_cast<uint32_t>(batch->sparse[i].keys.size()));
    }
  }
  batch->labels.push_back(row.label);
  batch->weights.push_back(row.weight);
  batch->row_ids.push_back(row_id);
  ++batch->rows;
}

void InputMaker::AppendBad(uint64_t row_id, Batch* batch) const {
  batch->numeric.resize(batch->numeric.size() + width_, 0.0f);
  for (SparseColumn& column : batch->sparse) column.offsets.push_back(column.offsets.back());
  batch->labels.push_back(0.0f);
  batch->weights.push_back(0.0f);
  batch->row_ids.push_back(row_id);
  ++batch->rows;
}

void InputMaker::Finish(Batch* batch) const {
  for (SparseColumn& column : batch->sparse) {
    const bool all_ones =
        std::all_of(column.values.begin(), column.values.end(), [](float v) { return v == 1.0f; });
    if (all_ones) column.values.clear();  // an empty list says the same in less
  }
}

}  // namespace capstan
