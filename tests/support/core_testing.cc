#include "tests/support/core_testing.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/core.h>

namespace capstan::testing {
namespace {

void AddSgdTable(EffectiveJob* job, const std::string& name, uint32_t width, TableSpec::Reduction reduction) {
  TableSpec* table = job->add_table();
  table->set_id(static_cast<uint32_t>(job->table_size() - 1));
  table->set_name(name);
  table->set_width(width);
  table->set_reduction(reduction);
  table->mutable_optimizer()->set_name("sgd");
  table->mutable_optimizer()->set_learning_rate(1);
}

}  // namespace

std::vector<Sent> RecordingOutbox::Take(MessageKind kind) {
  std::vector<Sent> all = Take(), chosen;
  for (Sent& sent : all) {
    if (sent.kind() == kind) chosen.push_back(std::move(sent));
  }
  return chosen;
}

size_t RecordingOutbox::bytes() const {
  size_t sum = 0;
  for (const Sent& sent : sent_) sum += sizeof(FrameHeader) + sent.message.body.size();
  return sum;
}

EffectiveJob SmallJob(const JobOptions& options) {
  EffectiveJob job;
  JobConfig& config = *job.mutable_config();
  config.set_seed(3);
  config.set_epochs(options.epochs);
  config.set_consistency(options.consistency);
  config.set_ranks(options.ranks);
  config.set_lease_batches(options.lease_batches);
  config.mutable_batch()->set_micro(options.batch);
  config.mutable_batch()->set_accumulation(1);
  ClusterConfig& cluster = *config.mutable_cluster();
  cluster.set_partitions(8);
  cluster.set_servers(options.servers);
  cluster.set_shards(options.shards);
  cluster.set_workers(options.workers);
  cluster.set_join_timeout_ms(60'000);
  cluster.set_stall_timeout_ms(60'000);
  cluster.set_shard_buffer_bytes(options.shard_buffer_bytes);
  AddSgdTable(&job, "sums", 1, TableSpec::SUM);
  AddSgdTable(&job, "means", 2, TableSpec::MEAN);
  uint64_t row = 0;
  for (const uint32_t rows : options.split_rows) {
    DataPlan::Split* split = job.mutable_plan()->add_split();
    split->set_rows(rows);
    split->set_first_row(row);
    row += rows;
  }
  job.mutable_plan()->set_rows(row);
  job.set_map_epoch(1);
  return job;
}

void AddShardEndpoints(const JobOptions& options, EffectiveJob* job) {
  for (uint32_t server = 0; server < options.servers; ++server) {
    for (uint32_t shard = 0; shard < options.shards; ++shard) {
      job->add_shard_endpoint(fmt::format("test://server-{}/shard-{}", server, shard));
    }
  }
}

FrameHeader DataHeader(MessageKind kind, Rank rank, Step step, uint64_t request) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = kJob;
  header.src_node = kWorkerNode;
  header.src_incarnation = kWorkerIncarnation;
  header.generation = 1;
  header.map_epoch = 1;
  header.rank = rank;
  header.rank_term = 1;
  header.step = step;
  header.done = step;
  header.request = request;
  return header;
}

FrameHeader OrderHeader(MessageKind kind, Incarnation to) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = kJob;
  header.src_node = kSchedulerNode;
  header.src_incarnation = kSchedulerIncarnation;
  header.dst_incarnation = to;
  header.generation = 1;
  header.map_epoch = 1;
  return header;
}

Message Sealed(Message message) {
  SealFrame(message);
  return message;
}

PushInfo Info(uint64_t examples, double weight, uint64_t optimizer_step) {
  PushInfo info;
  info.examples = examples;
  info.weight_sum = weight;
  info.optimizer_step = optimizer_step;
  info.lr_factor_bits = std::bit_cast<uint32_t>(1.0f);
  return info;
}

Message PullFrame(Rank rank, Step step, uint64_t request, const std::vector<TableRows>& tables) {
  BodyBuilder builder;
  for (const TableRows& rows : tables) {
    builder.Add(SectionKind::kKeys, rows.table, DType::kU64, static_cast<uint32_t>(rows.keys.size()), 1);
  }
  Message message{DataHeader(MessageKind::kPull, rank, step, request), builder.Allocate()};
  for (size_t i = 0; i < tables.size(); ++i) {
    std::copy(tables[i].keys.begin(), tables[i].keys.end(), builder.Section<Key>(i).begin());
  }
  message.header.sections = builder.sections();
  return Sealed(std::move(message));
}

Message PushFrame(Rank rank, Step step, uint64_t request, const PushInfo& info, const std::vector<TableRows>& tables) {
  BodyBuilder builder;
  builder.Add(SectionKind::kPushInfo, 0, DType::kBytes, 1, sizeof(PushInfo));
  for (const TableRows& rows : tables) {
    const auto n = static_cast<uint32_t>(rows.keys.size());
    builder.Add(SectionKind::kKeys, rows.table, DType::kU64, n, 1);
    builder.Add(SectionKind::kValues, rows.table, DType::kF32, n,
                n == 0 ? 1 : static_cast<uint32_t>(rows.values.size()) / n);
  }
  Message message{DataHeader(MessageKind::kPush, rank, step, request), builder.Allocate()};
  std::memcpy(builder.Section<std::byte>(0).data(), &info, sizeof info);
  for (size_t i = 0; i < tables.size(); ++i) {
    std::copy(tables[i].keys.begin(), tables[i].keys.end(), builder.Section<Key>(1 + 2 * i).begin());
    std::copy(tables[i].values.begin(), tables[i].values.end(), builder.Section<float>(2 + 2 * i).begin());
  }
  message.header.sections = builder.sections();
  return Sealed(std::move(message));
}

}  // namespace capstan::testing
