// The training or evaluation files as splits of rows: one scan that cuts and fits, then reads by split.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "data/batch.h"

namespace capstan {

class DataConfig;
class DataPlan;
class Recipe;

// Shape of what the features of a job produce; models are built from it.
struct FeatureShape {
  uint32_t numeric_width = 0;
  std::vector<std::string> sparse_names;  // categorical features in order; libsvm: one, "libsvm"
};
FeatureShape ShapeOf(const DataConfig& config);

// kInvalidArgument, naming the key: no label, no feature, a feature without a column, twice the same name,
// bad delimiter, … What can be checked without the files.
absl::Status ValidateDataConfig(const DataConfig& config);

struct SplitRule {
  uint32_t ranks = 1;  // splits have at most rows / (8·ranks) rows, so that no rank stays empty
  uint32_t max_rows = 16384;
  bool labels = true;  // false: rows to predict; a label or weight column need not be there
};

// Reads every row of `files` once: counts, cuts splits, checks labels and numbers, and (if `recipe` has no
// columns yet) fits the statistics, one partial per split merged in split order. On bad rows beyond
// config.max_bad_rows fails with kInvalidArgument naming file, line, column and value of the first.
absl::Status ScanData(FileSystem& fs, const DataConfig& config, const std::vector<std::string>& files,
                      const SplitRule& rule, DataPlan* plan, Recipe* recipe);

// One split in file order. Bad rows are present with weight 0 and listed.
struct ParsedSplit {
  Batch rows;
  std::vector<uint32_t> bad;  // row numbers within the split, sorted
};

// Thread-safe. Reading a split depends on nothing but the file, the config and the recipe: train, eval and
// predict get bit-equal features.
class Dataset {
 public:
  virtual ~Dataset() = default;
  // Opens the files of `plan`; a file whose size or fingerprint changed since the scan is refused by name.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(FileSystem& fs, const DataConfig& config,
                                                       const DataPlan& plan, const Recipe& recipe);
  virtual absl::StatusOr<ParsedSplit> ReadSplit(uint32_t split) const = 0;
  // True while labels are read. predict works on files without a label column.
  virtual void SetLabelsRequired(bool required) = 0;
};

}  // namespace capstan
