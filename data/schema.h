// The compiled form of a DataConfig: turns the fields of a row into numbers and keys, and those into model
// inputs. The same code serves fitting, training, evaluation and prediction, which is why their features have
// equal bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "data/batch.h"
#include "data/libsvm.h"

namespace capstan {

class DataConfig;
class Recipe;

// One parsed row, before normalisation.
struct RowValues {
  std::vector<double> numeric;  // one per NUMERIC feature, after log1p; NaN = missing
  std::vector<uint64_t> keys;   // one per CATEGORICAL feature; libsvm: one per index
  std::vector<float> values;    // libsvm: one per key; else empty
  float label = 0;
  float weight = 1;
};

// Where in the records of one file the columns are.
struct Binding {
  static constexpr uint32_t kAbsent = UINT32_MAX;
  std::vector<std::string> columns;     // in file order
  std::vector<uint32_t> numeric_field;  // one per NUMERIC feature
  std::vector<uint32_t> sparse_field;   // one per CATEGORICAL feature
  uint32_t label_field = kAbsent;       // kAbsent: labels are not read
  uint32_t weight_field = kAbsent;      // kAbsent: every row weighs 1
};

// Immutable once built: thread-safe.
class Schema {
 public:
  // The config must be valid (ValidateDataConfig).
  explicit Schema(const DataConfig& config);

  bool libsvm() const { return libsvm_; }
  const std::vector<std::string>& numeric_names() const { return numeric_names_; }

  // kInvalidArgument, naming the key and the columns there are: a column that is needed is not among the
  // `columns` of the file, or is there twice. `labels`: bind the label and weight columns too.
  absl::StatusOr<Binding> Bind(const std::string& path, std::vector<std::string> columns, bool labels) const;

  // False: the row is bad, and *problem says why, as "column 'age': 'abc' is not a number". *row is reused.
  bool ParseRow(std::span<const std::string_view> fields, const Binding& binding, RowValues* row,
                std::string* problem) const;
  bool ParseRow(const LibsvmRow& fields, bool labels, RowValues* row, std::string* problem) const;

  // The keys that a value of a column has, one for each categorical feature that reads the column: (feature's name,
  // key). raw: as it stands in the file, trimmed. Empty: no categorical feature reads it.
  // libsvm data: the column is "libsvm", a value is an index.
  std::vector<std::pair<std::string, uint64_t>> KeysOfValue(const std::string& column, std::string_view raw) const;

  const std::string& label_column() const { return label_column_; }
  const std::vector<std::string>& positive_labels() const { return positive_; }

 private:
  struct Numeric {
    bool log1p;
    bool refuse_missing;
  };
  struct Categorical {
    uint64_t seed;
    uint64_t missing_key;
    bool refuse_missing;
  };

  bool IsMissing(std::string_view text) const;
  bool ParseLabel(std::string_view text, float* label, std::string* problem) const;
  bool ParseWeight(std::string_view text, float* weight, std::string* problem) const;
  bool ParseNumeric(const Numeric& feature, std::string_view text, double* value, std::string* problem) const;

  bool libsvm_ = false;
  std::vector<Numeric> numeric_;
  std::vector<Categorical> categorical_;
  std::vector<std::string> numeric_names_;
  std::vector<std::string> numeric_columns_;
  std::vector<std::string> sparse_columns_;
  std::vector<std::string> sparse_names_;
  std::vector<int> numeric_index_;  // place in data.feature, for messages
  std::vector<int> sparse_index_;
  std::string label_column_;
  std::string weight_column_;
  std::vector<std::string> positive_;
  std::vector<std::string> negative_;
  std::vector<std::string> missing_;
};

// Turns rows into model inputs with the statistics of a recipe. Immutable: thread-safe.
//   present value x     (x - mean) / stddev, or x itself with NONE; never beyond ±FLT_MAX
//   MISSING_MEAN        0, or with NONE the fitted mean
//   MISSING_ZERO        0 in the unit of the input, after normalisation
//   MISSING_INDICATOR   as MEAN, and the next input is 1; it is 0 where the value is present
class InputMaker {
 public:
  // kInvalidArgument if the recipe was fitted for other features.
  static absl::StatusOr<InputMaker> Make(const DataConfig& config, const Recipe& recipe);

  Batch NewBatch(uint32_t rows) const;  // with room for `rows`, none in it yet
  void Append(const RowValues& row, uint64_t row_id, Batch* batch) const;
  // A placeholder: no keys, zeros, label 0 and weight 0.
  void AppendBad(uint64_t row_id, Batch* batch) const;
  // Once all rows are in.
  void Finish(Batch* batch) const;

 private:
  struct Input {
    double mean;
    double scale;  // what to divide by
    double if_missing;
    bool indicator;
  };
  InputMaker() = default;

  std::vector<Input> inputs_;
  uint32_t width_ = 0;
  uint32_t sparse_ = 0;
  bool libsvm_ = false;
};

}  // namespace capstan
