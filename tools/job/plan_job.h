// From a complete job to the effective job that all nodes get: the data is scanned, the tables are known.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

class EffectiveJob;
class JobConfig;

// An effective job travels to every node in one control message, and frames have at most a MiB.
inline constexpr size_t kMaxEffectiveJobBytes = 900'000;

// Reads the training files once (splits, statistics of the features), makes the model for its tables, and
// gives each table its wire id and optimizer: its own if the model set one, else that of the first table_rule
// that matches, else the job's. Everything but job id, instruction set and endpoints is filled in.
//   config  from JobFile::Finish
// kInvalidArgument names file, line and column (data) or the key (all else): a rule that matches no table, a
// plan that is too large to send. Cost: one pass over the training data; memory of a few splits.
absl::Status PlanJob(FileSystem& fs, const JobConfig& config, EffectiveJob* job);

// The second half of PlanJob: tables of a job whose config, plan and recipe are set.
absl::Status FillTables(EffectiveJob* job);

// kInvalidArgument, naming data.split_rows and a value that would do, if the job is larger than `limit`.
absl::Status CheckJobSize(const EffectiveJob& job, size_t limit = kMaxEffectiveJobBytes);

}  // namespace capstan
