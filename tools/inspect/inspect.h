// capstan-inspect: looks into checkpoints. Reads only; every command returns its exit code and prints what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace capstan {

struct InspectOptions {
  std::vector<std::string> paths;  // what stands after the sub-command
  bool json = false;
  std::string table;               // regular expression over whole names; "" is all
  uint32_t top = 10;
  std::string by = "norm";         // norm | count
  std::string column, value;       // get: a value of the training file instead of a key
  bool by_value = false;           // --column was given; no value is a missing one
  std::string format;              // export: npz | safetensors | csv
  std::string out;
  bool slots = false;
  uint32_t shards = 0;
  bool shards_given = false;
  std::string what = "norm";       // plot: norm | count | age
};

// Exit codes: 0; diff: 1 if the checkpoints differ; 2 usage; 4 a checkpoint cannot be read, or a file not be written.
int InspectWithoutPath(const char* command);  // says that CHECKPOINT is missing
int InspectLs(const InspectOptions& options);
int InspectShow(const InspectOptions& options);
int InspectStat(const InspectOptions& options);
int InspectGet(const InspectOptions& options);
int InspectDiff(const InspectOptions& options);
int InspectVerify(const InspectOptions& options);
int InspectExport(const InspectOptions& options);
int InspectMerge(const InspectOptions& options);
int InspectReshard(const InspectOptions& options);
int InspectPlot(const InspectOptions& options);

}  // namespace capstan
