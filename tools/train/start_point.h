// Where training begins: from the initial values, from a checkpoint of the same job, or with another job's weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "scheduler/scheduler_core.h"
#include "storage/checkpoint_root.h"

namespace capstan {

class EffectiveJob;
class JobConfig;

struct StartPoint {
  SchedulerOptions::From from;   // no folder: from the initial values
  std::vector<JobId> lineage;
  std::string tables;            // of a warm start, as given
};

// A checkpoint that a job is resumed from, read once.
class ResumeSource {
 public:
  // path: of a run, its checkpoints, or one checkpoint; the newest good one is taken, and `notes` says why newer ones
  // were not. kNotFound: none is good. kFiles but for what was checked just now.
  static absl::StatusOr<std::unique_ptr<ResumeSource>> Open(FileSystem& fs, const std::string& path,
                                                            CheckpointCheck check, std::vector<std::string>* notes);
  ~ResumeSource();

  const std::string& folder() const;
  const EffectiveJob& job() const;       // that wrote it
  uint64_t examples() const;
  // Which batches there are depends on more than the model: files, splits, ranks, rows of a batch, leases, consistency.
  // Empty: `config` keeps them all. Else names what changes, with both values.
  std::string ChangedPlan(const JobConfig& config) const;
  // Which rows mean what must be as it was: kInvalidArgument names the settings of `data` that differ.
  absl::Status CheckData(const JobConfig& config) const;
  // What else differs from the checkpoint's job, a line each, for a person; empty: nothing.
  std::string ChangedSettings(const JobConfig& config) const;
  bool AtEpochStart() const;             // a changed plan may begin here
  uint32_t EpochsBegun() const;          // a run of so many epochs ends at the next epoch's start

  // The effective job of the run that goes on: schema, statistics and (where it is unchanged) plan are the
  // checkpoint's. Training files that changed are refused by the nodes that read them.
  absl::Status PlanJob(const JobConfig& config, EffectiveJob* job) const;
  absl::StatusOr<StartPoint> Start(const EffectiveJob& job) const;

 private:
  ResumeSource();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// path, check, notes: as ResumeSource::Open. tables: a regular expression over whole names; "": all.
absl::StatusOr<StartPoint> WarmStart(FileSystem& fs, const std::string& path, CheckpointCheck check,
                                     const std::string& tables, const EffectiveJob& job,
                                     std::vector<std::string>* notes);
// Marks the tables whose whole name matches as frozen. kInvalidArgument: none does.
absl::Status FreezeTables(const std::string& tables, EffectiveJob* job);

}  // namespace capstan
