#include "tools/train/start_point.h"

#include <algorithm>
#include <optional>
#include <regex>
#include <sstream>
#include <utility>

#include <fmt/core.h>
#include <google/protobuf/util/message_differencer.h>

#include "common/consistency.h"
#include "proto/checkpoint.pb.h"
#include "scheduler/restore_plan.h"
#include "storage/checkpoint_records.h"
#include "storage/checkpoint_root.h"
#include "tools/job/plan_job.h"

namespace capstan {
namespace {

absl::StatusOr<std::string> Find(FileSystem& fs, const std::string& path, CheckpointCheck check,
                                 std::vector<std::string>* notes) {
  std::vector<std::string> skipped;
  absl::StatusOr<std::string> folder = FindCheckpoint(fs, path, check, &skipped);
  for (const std::string& line : skipped) notes->push_back("not used: " + line);
  return folder;
}

absl::StatusOr<std::regex> PatternOf(const std::string& flag, const std::string& text) {
  try {
    return std::regex(text.empty() ? ".*" : text);
  } catch (const std::regex_error& error) {
    return InvalidArgument(fmt::format("--{}={} is no regular expression: {}", flag, text, error.what()));
  }
}

BatchPlan BatchesOf(const EffectiveJob& job) {
  std::vector<uint32_t> rows;
  for (const DataPlan::Split& split : job.plan().split()) rows.push_back(split.rows());
  const BatchConfig& batch = job.config().batch();
  return BatchPlan(job.config().seed(), std::move(rows), std::max(1u, batch.micro() * batch.accumulation()));
}

// "modified: optimizer.beta1: 0.9 -> 0.8\n" and so on.
std::string DifferencesOf(const google::protobuf::Message& before, const google::protobuf::Message& now,
                          const std::vector<std::string>& ignored_fields) {
  google::protobuf::util::MessageDifferencer differencer;
  for (const std::string& name : ignored_fields) {
    differencer.IgnoreField(before.GetDescriptor()->FindFieldByName(name));
  }
  differencer.set_message_field_comparison(google::protobuf::util::MessageDifferencer::EQUIVALENT);
  std::string text;
  differencer.ReportDifferencesToString(&text);
  if (differencer.Compare(before, now)) return "";
  std::string told;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("ignored:")) told += line + "\n";
  }
  return told;
}

bool IsSync(const JobConfig& config) {
  const absl::StatusOr<Consistency> consistency = ParseConsistency(config.consistency());
  return consistency.ok() && consistency->sync();
}

}  // namespace

struct ResumeSource::Impl {
  FileSystem* fs = nullptr;
  std::string folder;
  CheckpointRecords records;
  std::vector<const ShardRecord*> shards;

  const CheckpointManifest& manifest() const { return records.manifest; }
  const EffectiveJob& job() const { return manifest().job(); }
  LeaseTable Leases() const {
    const JobConfig& config = job().config();
    const uint32_t per_lease = std::max(1u, config.lease_batches());
    // As many epochs as there may have been begun: all of the job's.
    return LeaseTable(BatchesOf(job()), config.epochs(), per_lease,
                      ClosedLeases(shards, BatchesOf(job()), config.epochs(), per_lease, job().first_epoch(),
                                   job().first_lease()));
  }
};

ResumeSource::ResumeSource() : impl_(std::make_unique<Impl>()) {}
ResumeSource::~ResumeSource() = default;

absl::StatusOr<std::unique_ptr<ResumeSource>> ResumeSource::Open(FileSystem& fs, const std::string& path,
                                                                 CheckpointCheck check,
                                                                 std::vector<std::string>* notes) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string folder, Find(fs, path, check, notes));
  std::unique_ptr<ResumeSource> source(new ResumeSource);
  source->impl_->fs = &fs;
  source->impl_->folder = folder;
  CAPSTAN_ASSIGN_OR_RETURN(source->impl_->records, CheckpointRecords::Load(fs, folder));
  for (const ShardRecord& shard : source->impl_->records.shards) source->impl_->shards.push_back(&shard);
  return source;
}

const std::string& ResumeSource::folder() const { return impl_->folder; }
const EffectiveJob& ResumeSource::job() const { return impl_->job(); }
uint64_t ResumeSource::examples() const { return impl_->manifest().examples(); }

std::string ResumeSource::ChangedPlan(const JobConfig& config) const {
  const JobConfig& before = job().config();
  const auto differs = [](const char* what, const auto& there, const auto& here) {
    return fmt::format("{} was {} and is {} now", what, there, here);
  };
  if (before.consistency() != config.consistency() && IsSync(before) != IsSync(config)) {
    return differs("consistency", before.consistency(), config.consistency());
  }
  if (before.ranks() != config.ranks()) return differs("ranks", before.ranks(), config.ranks());
  const uint32_t rows_before = before.batch().micro() * before.batch().accumulation();
  const uint32_t rows = config.batch().micro() * config.batch().accumulation();
  if (rows_before != rows) return differs("rows of a rank's batch", rows_before, rows);
  if (!IsSync(config) && before.lease_batches() != config.lease_batches()) {
    return differs("lease_batches", before.lease_batches(), config.lease_batches());
  }
  if (before.data().split_rows() != config.data().split_rows()) {
    return differs("data.split_rows", before.data().split_rows(), config.data().split_rows());
  }
  const std::vector<std::string> files_before(before.data().train().begin(), before.data().train().end());
  const std::vector<std::string> files(config.data().train().begin(), config.data().train().end());
  return files_before == files ? "" : "data.train names other files";
}

absl::Status ResumeSource::CheckData(const JobConfig& config) const {
  DataConfig before = job().config().data(), now = config.data();
  for (DataConfig* const data : {&before, &now}) {
    data->clear_train();         // see ChangedPlan
    data->clear_eval();
    data->clear_split_rows();
    data->clear_max_bad_rows();
    data->clear_feature();       // PlanResume names them
  }
  const std::string differences = DifferencesOf(before, now, {});
  if (differences.empty()) return absl::OkStatus();
  return InvalidArgument(fmt::format("the data section differs from that of the checkpoint {}:\n{}a resume reads its rows "
                                     "as before; --warm_start begins a new job with its weights", folder(), differences));
}

std::string ResumeSource::ChangedSettings(const JobConfig& config) const {
  return DifferencesOf(job().config(), config, {"name", "epochs", "data", "cluster", "metrics_seconds", "checkpoint"});
}

bool ResumeSource::AtEpochStart() const {
  const CheckpointManifest& manifest = impl_->manifest();
  if (IsSync(job().config())) return manifest.version() == manifest.epoch_first();
  return impl_->Leases().AtEpochStart();
}

uint32_t ResumeSource::EpochsBegun() const {
  if (IsSync(job().config())) return impl_->manifest().epoch() + (AtEpochStart() ? 0 : 1);
  const LeaseTable leases = impl_->Leases();
  return AtEpochStart() ? leases.closed_epochs()
                        : std::max(leases.closed_epochs() + 1, EpochsTouched(impl_->shards, BatchesOf(job()), job()));
}

absl::Status ResumeSource::PlanJob(const JobConfig& config, EffectiveJob* job) const {
  const CheckpointManifest& manifest = impl_->manifest();
  if (const std::string changed = ChangedPlan(config); !changed.empty()) {
    if (!AtEpochStart()) {
      return InvalidArgument(fmt::format("{}: that can begin with an epoch only, and {} is inside one", changed,
                                         folder()));
    }
    CAPSTAN_RETURN_IF_ERROR(capstan::PlanJob(*impl_->fs, config, job));
    *job->mutable_recipe() = manifest.job().recipe();  // fitted once
    job->set_first_epoch(EpochsBegun());
    job->set_first_lease(IsSync(this->job().config()) ? 1 : impl_->Leases().closed_below());
    return absl::OkStatus();
  }
  job->Clear();
  *job->mutable_config() = config;
  job->set_map_epoch(1);
  *job->mutable_plan() = manifest.job().plan();
  *job->mutable_recipe() = manifest.job().recipe();
  job->set_first_epoch(manifest.job().first_epoch());
  job->set_first_lease(manifest.job().first_lease());
  CAPSTAN_RETURN_IF_ERROR(FillTables(job));
  for (TableSpec& table : *job->mutable_table()) {
    for (const TableSpec& before : manifest.job().table()) {
      if (before.name() == table.name()) table.set_frozen(before.frozen());
    }
  }
  return CheckJobSize(*job);
}

absl::StatusOr<StartPoint> ResumeSource::Start(const EffectiveJob& job) const {
  StartPoint start;
  CAPSTAN_ASSIGN_OR_RETURN(start.from, PlanResume(folder(), impl_->manifest(), impl_->shards, job));
  start.lineage = LineageOf(impl_->manifest());
  return start;
}

absl::StatusOr<StartPoint> WarmStart(FileSystem& fs, const std::string& path, CheckpointCheck check,
                                     const std::string& tables, const EffectiveJob& job,
                                     std::vector<std::string>* notes) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::regex pattern, PatternOf("tables", tables));
  CAPSTAN_ASSIGN_OR_RETURN(const std::string folder, Find(fs, path, check, notes));
  CAPSTAN_ASSIGN_OR_RETURN(const CheckpointRecords records, CheckpointRecords::Load(fs, folder));
  StartPoint start;
  start.tables = tables;
  CAPSTAN_ASSIGN_OR_RETURN(start.from, PlanWarmStart(folder, records.manifest, job, [&](const std::string& table) {
                             return std::regex_match(table, pattern);
                           }));
  return start;
}

absl::Status FreezeTables(const std::string& tables, EffectiveJob* job) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::regex pattern, PatternOf("freeze", tables));
  std::string names;
  bool any = false;
  for (TableSpec& table : *job->mutable_table()) {
    names += (names.empty() ? "" : ", ") + table.name();
    if (!std::regex_match(table.name(), pattern)) continue;
    table.set_frozen(true);
    any = true;
  }
  if (any) return absl::OkStatus();
  return InvalidArgument(fmt::format("--freeze={} matches no table; the model has {}", tables, names));
}

}  // namespace capstan
