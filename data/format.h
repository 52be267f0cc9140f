// Which format a file has, and what a format fixes by itself.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "data/csv.h"
#include "proto/job.pb.h"

namespace capstan {

// config.format, or for AUTO the one that the file's ending names (.csv .tsv .libsvm .svm, each also with
// .gz). kInvalidArgument, saying which key to set, if the ending names none.
absl::StatusOr<DataConfig::Format> FormatOf(const DataConfig& config, const std::string& path);

// True if the rows are libsvm: config.format, or for AUTO the ending of the first train (or else eval) file.
bool IsLibsvm(const DataConfig& config);

// How records of a file of `format` are cut up.
CsvDialect DialectOf(const DataConfig& config, DataConfig::Format format);

// Criteo's click logs: tab-separated, no header: label, 13 counts I1 … I13, 26 hexadecimal values C1 … C26.
std::vector<std::string> CriteoColumns();

// The config with what its format fixes filled in. CRITEO: columns, label, and, if it lists no feature, one
// for every column: counts as LOG1P_STANDARDIZE with an indicator where missing, the rest categorical.
// Others: as given.
DataConfig WithFormatDefaults(const DataConfig& config);

// Whether the first record of a file is a header.
bool HasHeader(const DataConfig& config);

// Name of a feature: its own, or else its column's.
const std::string& FeatureName(const FeatureConfig& feature);

// ", did you mean 'age'?" if one of `known` is within two typing errors of `word`, else "".
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

// "'a', 'b', 'c'", at most 20 of them.
std::string ListNames(const std::vector<std::string>& names);

}  // namespace capstan
