#include "tools/job/plan_job.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "common/batch_plan.h"
#include "data/dataset.h"
#include "models/model.h"
#include "proto/control.pb.h"
#include "tools/nearest_name.h"

namespace capstan {
namespace {

bool Matches(const TableRule& rule, const std::string& table) {
  const std::string& pattern = rule.table();
  if (!pattern.ends_with('*')) return pattern == table;
  return table.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
}

absl::Status CheckRulesMatch(const EffectiveJob& job) {
  std::vector<std::string> names;
  for (const TableSpec& table : job.table()) names.push_back(table.name());
  for (int i = 0; i < job.config().table_rule_size(); ++i) {
    const TableRule& rule = job.config().table_rule(i);
    bool matches = false;
    for (const std::string& name : names) matches |= Matches(rule, name);
    if (matches) continue;
    return InvalidArgument(fmt::format("table_rule[{}].table: '{}' matches no table; the model has {}", i,
                                       rule.table(), JoinText(names, ", ")));
  }
  return absl::OkStatus();
}

// The optimizer steps of the whole run, from its first epoch: later ones deal the splits out otherwise, and may differ by
// a few. In async and ssp it is what a rank does on average, for its clock is what a schedule follows there.
uint64_t StepsOfRun(const EffectiveJob& job) {
  const JobConfig& config = job.config();
  const uint64_t rows = uint64_t{std::max(1u, config.batch().micro())} * std::max(1u, config.batch().accumulation());
  std::vector<uint32_t> split_rows;
  for (const DataPlan::Split& split : job.plan().split()) split_rows.push_back(split.rows());
  const BatchPlan plan(config.seed(), split_rows, static_cast<uint32_t>(std::min<uint64_t>(rows, UINT32_MAX)));
  const uint32_t ranks = std::max(1u, config.ranks());
  const std::vector<uint32_t> order = plan.SplitOrder(0);
  std::vector<uint64_t> batches(ranks);
  for (size_t i = 0; i < order.size(); ++i) batches[i % ranks] += plan.BatchesOfSplit(order[i]);
  uint64_t of_epoch = *std::max_element(batches.begin(), batches.end());
  if (config.consistency() != "sync") {
    of_epoch = (std::accumulate(batches.begin(), batches.end(), uint64_t{0}) + ranks - 1) / ranks;
  }
  return of_epoch * config.epochs();
}

// A schedule without a length takes what is left of the run behind its warm-up.
void FillSchedule(uint64_t steps_of_run, ScheduleConfig* schedule) {
  static constexpr std::string_view kWholeRun[] = {"linear", "cosine", "polynomial", "one_cycle"};
  const bool whole = std::find(std::begin(kWholeRun), std::end(kWholeRun), schedule->kind()) != std::end(kWholeRun);
  if (!whole || schedule->steps() != 0) return;
  const uint64_t before = std::max<uint64_t>(schedule->warmup_steps(), 1) - 1;
  schedule->set_steps(steps_of_run > before ? steps_of_run - before : 1);
}

}  // namespace

absl::Status FillTables(EffectiveJob* job) {
  const JobConfig& config = job->config();
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           MakeModel(config.model(), ShapeOf(config.data())));
  job->clear_table();
  const uint64_t steps_of_run = StepsOfRun(*job);
  for (const TableSpec& spec : model->tables()) {
    TableSpec* table = job->add_table();
    *table = spec;
    table->set_id(static_cast<uint32_t>(job->table_size() - 1));
    if (table->has_optimizer()) continue;
    *table->mutable_optimizer() = config.optimizer();
    for (const TableRule& rule : config.table_rule()) {
      if (!Matches(rule, table->name())) continue;
      *table->mutable_optimizer() = rule.optimizer();
      break;
    }
    FillSchedule(steps_of_run, table->mutable_optimizer()->mutable_schedule());
  }
  return CheckRulesMatch(*job);
}

absl::Status CheckJobSize(const EffectiveJob& job, size_t limit) {
  const size_t bytes = job.ByteSizeLong();
  if (bytes <= limit) return absl::OkStatus();
  const uint64_t factor = bytes / limit + 1;
  return InvalidArgument(
      fmt::format("data.split_rows: with {} the plan of {} rows has {} splits and {} bytes, and all "
                  "nodes get it in one message of at most {}; {} would fit",
                  job.config().data().split_rows(), job.plan().rows(), job.plan().split_size(), bytes, limit,
                  factor * job.config().data().split_rows()));
}

absl::Status PlanJob(FileSystem& fs, const JobConfig& config, EffectiveJob* job) {
  job->Clear();
  *job->mutable_config() = config;
  job->set_map_epoch(1);
  const std::vector<std::string> files(config.data().train().begin(), config.data().train().end());
  const SplitRule rule = {.ranks = config.ranks(), .max_rows = config.data().split_rows()};
  CAPSTAN_RETURN_IF_ERROR(
      ScanData(fs, config.data(), files, rule, job->mutable_plan(), job->mutable_recipe()));
  CAPSTAN_RETURN_IF_ERROR(FillTables(job));
  return CheckJobSize(*job);
}

}  // namespace capstan
