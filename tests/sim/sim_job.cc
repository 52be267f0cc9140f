#include "sim_job.h"

#include <utility>

#include "proto/control.pb.h"

namespace capstan::sim {
namespace {

constexpr uint32_t kBitsWidth = 3;
constexpr uint32_t kPartitions = 64;
constexpr uint64_t kSeed = 7;

void AddTable(EffectiveJob* job, const std::string& name, uint32_t width, bool mean, const std::string& optimizer,
              double rate) {
  TableSpec* table = job->add_table();
  table->set_id(static_cast<uint32_t>(job->table_size() - 1));
  table->set_name(name);
  table->set_width(width);
  table->set_reduction(mean ? TableSpec::MEAN : TableSpec::SUM);
  table->set_init(mean ? TableSpec::UNIFORM : TableSpec::ZERO);
  table->set_scale(mean ? 0.5f : 0.0f);
  table->mutable_optimizer()->set_name(optimizer);
  table->mutable_optimizer()->set_learning_rate(rate);
}

}  // namespace

EffectiveJob MakeJob(const JobShape& shape) {
  EffectiveJob job;
  JobConfig& config = *job.mutable_config();
  config.set_seed(kSeed);
  config.set_epochs(shape.epochs);
  config.set_consistency(shape.consistency);
  config.set_ranks(shape.ranks);
  config.set_lease_batches(shape.lease_batches);
  config.mutable_batch()->set_micro(shape.batch);
  config.mutable_batch()->set_accumulation(shape.accumulation);
  ClusterConfig& cluster = *config.mutable_cluster();
  cluster.set_partitions(kPartitions);
  cluster.set_servers(shape.servers);
  cluster.set_shards(shape.shards);
  cluster.set_workers(shape.workers);
  cluster.set_request_timeout_ms(200);
  cluster.set_join_timeout_ms(60000);
  cluster.set_stall_timeout_ms(60000);
  cluster.set_inflight_bytes(shape.inflight_bytes);
  CheckpointConfig& checkpoint = *config.mutable_checkpoint();
  checkpoint.set_steps(shape.checkpoint_steps);
  checkpoint.set_epoch_end(shape.checkpoint_epochs);
  checkpoint.set_full_every(shape.checkpoint_full_every);
  checkpoint.set_timeout_ms(20000);
  AddTable(&job, "census", 1, false, "sgd", 1.0);
  AddTable(&job, "sums", 2, false, "sgd", 1.0);
  AddTable(&job, "bits", kBitsWidth, true, shape.optimizer, 0.05);
  ScheduleConfig& schedule = *job.mutable_table(2)->mutable_optimizer()->mutable_schedule();
  schedule.set_kind("cosine");
  schedule.set_warmup_steps(3);
  schedule.set_steps(4);
  schedule.set_restart_growth(2);
  schedule.set_end_factor(0.25);
  uint64_t row = 0;
  for (const uint32_t rows : shape.split_rows) {
    DataPlan::Split* split = job.mutable_plan()->add_split();
    split->set_rows(rows);
    split->set_first_row(row);
    row += rows;
  }
  job.mutable_plan()->set_rows(row);
  return job;
}

int64_t SumOfRow(uint64_t row) { return static_cast<int64_t>(Mix64(row) % 100) - 50; }
Key SumKeyOfRow(uint64_t row) { return Mix64(row ^ 0xabcd) % kSumKeys == 0 ? ~uint64_t{0} : Mix64(row ^ 0xabcd) % kSumKeys; }

std::map<Key, int64_t> ExpectedSums(const JobShape& shape) {
  std::map<Key, int64_t> sums;
  uint64_t rows = 0;
  for (const uint32_t n : shape.split_rows) rows += n;
  for (uint64_t row = 0; row < rows; ++row) sums[SumKeyOfRow(row)] += SumOfRow(row) * shape.epochs;
  return sums;
}

absl::Status SimDriver::OnStart(const EffectiveJob& job, uint32_t shards) {
  CAPSTAN_ASSIGN_OR_RETURN(map_, ShardMap::Even(job.config().cluster().partitions(), shards));
  plan_ = BatchPlan(job.config().seed(), shape_.split_rows, shape_.batch * shape_.accumulation);
  for (const DataPlan::Split& split : job.plan().split()) first_row_.push_back(split.first_row());
  return absl::OkStatus();
}

std::vector<uint64_t> SimDriver::RowsOf(const BatchId& batch) const {
  const std::vector<uint32_t> order = plan_.RowOrder(batch.epoch, batch.split);
  std::vector<uint64_t> rows;
  for (uint32_t i = 0; i < plan_.RowsOfBatch(batch.split, batch.index); ++i) {
    rows.push_back(first_row_[batch.split] + order[batch.index * plan_.batch_rows() + i]);
  }
  return rows;
}

StepPlan& SimDriver::PlanOf(Rank rank) {
  std::unique_ptr<StepPlan>& plan = plans_[rank];
  if (plan == nullptr) {
    plan = std::make_unique<StepPlan>(
        std::vector<PlannedTable>{{1, false, 0, 0}, {2, false, 0, 1}, {kBitsWidth, false, 0, 1}}, map_,
        shape_.part_bytes);
  }
  return *plan;
}

Duration SimDriver::Effort(Rank rank) {
  const auto base = static_cast<double>(shape_.compute.count()) * (0.5 + network_.random().Unit());
  return Duration(static_cast<int64_t>(base * (static_cast<int>(rank) == shape_.slow_rank ? 30 : 1)));
}

void SimDriver::Prepare(const StepTicket& ticket) {
  network_.After(Effort(ticket.rank), [this, ticket] {
    std::vector<std::vector<uint64_t>> keys(3);
    for (const uint64_t row : RowsOf(ticket.batch)) {
      keys[0].push_back(row);
      keys[1].push_back(SumKeyOfRow(row));
    }
    StepPlan& plan = PlanOf(ticket.rank);
    plan.Build(keys);
    core_->Prepared(ticket.rank, ticket.step, plan.PullRequests());
  });
}

void SimDriver::Compute(const StepTicket& ticket, const PushInfo& proto, ShardReplies replies) {
  observer_.OnCompute(ticket.rank, ticket.step);
  network_.After(Effort(ticket.rank), [this, ticket, info = proto, replies = std::move(replies)]() mutable {
    StepPlan& plan = PlanOf(ticket.rank);
    const uint32_t widths[] = {1, 2, kBitsWidth};
    std::vector<std::vector<float>> weights(3), gradients(3);
    std::vector<float*> to;
    std::vector<const float*> from;
    for (size_t t = 0; t < 3; ++t) {
      weights[t].resize(plan.keys(t).size() * widths[t]);
      gradients[t].resize(weights[t].size(), 0.0f);
      to.push_back(weights[t].data());
      from.push_back(gradients[t].data());
    }
    const absl::Status read = plan.ReadReplies(replies, to);
    if (!read.ok()) return core_->Computed(ticket.rank, ticket.step, read);
    const std::vector<uint64_t> rows = RowsOf(ticket.batch);
    for (size_t i = 0; i < rows.size(); ++i) {
      gradients[0][plan.index(0)[i]] -= 1.0f;
      const uint32_t place = plan.index(1)[i];
      gradients[1][place * 2] -= static_cast<float>(SumOfRow(rows[i]));
      gradients[1][place * 2 + 1] -= static_cast<float>(2 * SumOfRow(rows[i]));
      for (uint32_t j = 0; j < kBitsWidth; ++j) {
        const float w = weights[2][place * kBitsWidth + j];
        const float x = UniformFromBits(Mix64(rows[i] * 31 + j));
        gradients[2][place * kBitsWidth + j] += x * 0.7f + w * 0.3f + 0.1f;
      }
    }
    info.examples = rows.size();
    info.weight_sum = static_cast<double>(rows.size());
    core_->Computed(ticket.rank, ticket.step, plan.PushRequests(info, from));
  });
}

}  // namespace capstan::sim
