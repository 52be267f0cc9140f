#include "tools/job/plan_job.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

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

}  // namespace

absl::Status FillTables(EffectiveJob* job) {
  const JobConfig& config = job->config();
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           MakeModel(config.model(), ShapeOf(config.data())));
  job->clear_table();
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
