#include "worker/rank_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"

namespace capstan {
namespace {

BatchPlan PlanOf(const EffectiveJob& job) {
  std::vector<uint32_t> rows;
  for (const DataPlan::Split& split : job.plan().split()) rows.push_back(split.rows());
  const BatchConfig& batch = job.config().batch();
  return BatchPlan(job.config().seed(), std::move(rows), batch.micro() * batch.accumulation());
}

std::vector<PlannedTable> TablesOf(const EffectiveJob& job, const Model& model) {
  std::vector<PlannedTable> tables;
  for (int t = 0; t < job.table_size(); ++t) {
    const TableSpec& spec = job.table(t);
    PlannedTable table;
    table.width = spec.width();
    table.dense = spec.kind() == TableSpec::DENSE;
    if (table.dense) table.blocks = (spec.elements() + spec.width() - 1) / spec.width();
    table.like = table.dense ? static_cast<size_t>(t) : model.KeysLike(static_cast<size_t>(t));
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> RankTrainer::Make(const EffectiveJob& job, const Dataset& data,
                                                               const ShardMap& map) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                           MakeModel(job.config().model(), ShapeOf(job.config().data())));
  if (model->tables().size() != static_cast<size_t>(job.table_size())) {
    return Internal("the model has other tables than the job; all nodes must run one release");
  }
  return std::unique_ptr<RankTrainer>(new RankTrainer(job, data, map, std::move(model)));
}

RankTrainer::RankTrainer(const EffectiveJob& job, const Dataset& data, const ShardMap& map,
                         std::unique_ptr<Model> model)
    : data_(data),
      model_(std::move(model)),
      batch_plan_(PlanOf(job)),
      micro_rows_(job.config().batch().micro()),
      step_plan_(TablesOf(job, *model_), map, kTargetPartBytes) {
  for (const TableSpec& spec : job.table()) {
    widths_.push_back(spec.width());
    const uint64_t blocks = (spec.elements() + spec.width() - 1) / spec.width();
    dense_floats_.push_back(spec.kind() == TableSpec::DENSE ? blocks * spec.width() : 0);
  }
  weights_.resize(widths_.size());
  gradients_.resize(widths_.size());
  touched_.resize(widths_.size());
}

RankTrainer::~RankTrainer() {
  if (ahead_.valid()) ahead_.wait();
}

// ---- the batch ----------------------------------------------------------------------------------------------

absl::Status RankTrainer::LoadSplit(uint32_t split) {
  if (current_.rows != nullptr && current_.split == split) return absl::OkStatus();
  absl::StatusOr<ParsedSplit> parsed = ahead_.valid() && ahead_split_ == split ? ahead_.get() : data_.ReadSplit(split);
  if (!parsed.ok()) return parsed.status();
  current_ = {split, std::make_shared<const ParsedSplit>(std::move(*parsed))};
  return absl::OkStatus();
}

void RankTrainer::ReadAhead(const std::optional<BatchId>& upcoming) {
  if (!upcoming.has_value() || upcoming->split == current_.split || ahead_.valid()) return;
  ahead_split_ = upcoming->split;
  ahead_ = std::async(std::launch::async, [this, split = upcoming->split] { return data_.ReadSplit(split); });
}

void RankTrainer::CutMicroBatches(const BatchId& batch) {
  if (order_.rows.empty() || order_.epoch != batch.epoch || order_.split != batch.split) {
    order_ = {batch.epoch, batch.split, batch_plan_.RowOrder(batch.epoch, batch.split)};
  }
  const size_t begin = size_t{batch.index} * batch_plan_.batch_rows();
  const size_t end = begin + batch_plan_.RowsOfBatch(batch.split, batch.index);
  micro_.clear();
  for (size_t at = begin; at < end; at += micro_rows_) {
    const size_t count = std::min<size_t>(micro_rows_, end - at);
    micro_.push_back(GatherRows(current_.rows->rows, std::span(order_.rows).subspan(at, count), current_.rows->bad));
  }
}

void RankTrainer::CollectKeys() {
  keys_.resize(widths_.size());
  for (std::vector<uint64_t>& keys : keys_) keys.clear();
  begin_.clear();
  for (const Batch& batch : micro_) {
    std::vector<size_t> begin;
    for (const std::vector<uint64_t>& keys : keys_) begin.push_back(keys.size());
    begin_.push_back(std::move(begin));
    model_->CollectKeys(batch, &keys_);
  }
}

absl::StatusOr<ShardRequests> RankTrainer::Prepare(const StepTicket& ticket) {
  CAPSTAN_RETURN_IF_ERROR(LoadSplit(ticket.batch.split));
  CutMicroBatches(ticket.batch);
  ReadAhead(ticket.upcoming);
  CollectKeys();
  step_plan_.Build(keys_);
  return step_plan_.PullRequests();
}

// ---- the gradients ------------------------------------------------------------------------------------------

void RankTrainer::MakeRoom() {
  for (size_t t = 0; t < widths_.size(); ++t) {
    const size_t rows = step_plan_.keys(t).size();
    const size_t floats = dense_floats_[t] > 0 ? dense_floats_[t] : rows * widths_[t];
    weights_[t].resize(floats);
    gradients_[t].resize(floats);
    if (dense_floats_[t] > 0) {
      std::fill(gradients_[t].begin(), gradients_[t].end(), 0.0f);
    } else {
      touched_[t].assign(rows, 0);
    }
  }
}

absl::StatusOr<ShardRequests> RankTrainer::Compute(PushInfo info, const ShardReplies& replies) {
  MakeRoom();
  std::vector<float*> into;
  std::vector<const float*> from;
  for (size_t t = 0; t < widths_.size(); ++t) {
    into.push_back(weights_[t].data());
    from.push_back(gradients_[t].data());
  }
  CAPSTAN_RETURN_IF_ERROR(step_plan_.ReadReplies(replies, into));
  std::vector<TableWeights> weights(widths_.size());
  std::vector<TableGradients> gradients(widths_.size());
  for (size_t m = 0; m < micro_.size(); ++m) {
    for (size_t t = 0; t < widths_.size(); ++t) {
      weights[t].values = weights_[t].data();
      gradients[t].values = gradients_[t].data();
      if (dense_floats_[t] > 0) continue;
      const size_t end = m + 1 < micro_.size() ? begin_[m + 1][t] : keys_[t].size();
      weights[t].index = step_plan_.index(t).subspan(begin_[m][t], end - begin_[m][t]);
      gradients[t].touched = touched_[t].data();
    }
    const LossSums sums = model_->ForwardBackward(micro_[m], weights, gradients);
    info.examples += sums.examples;
    info.weight_sum += sums.weight;
    info.loss_sum += sums.loss;
    info.bad_rows += micro_[m].bad_rows;
  }
  if (!std::isfinite(info.loss_sum)) {
    return Internal(fmt::format("the loss of batch {} of split {} in epoch {} is not finite: training diverges; lower "
                                "optimizer.learning_rate, or look for extreme values in the data", info.index, info.split,
                                info.epoch));
  }
  // A batch without a good row adds nothing: only its name and its bad rows are told.
  if (info.examples == 0) return step_plan_.EmptyPush(info);
  for (size_t t = 0; t < widths_.size(); ++t) {
    for (size_t row = 0; row < touched_[t].size(); ++row) {
      if (touched_[t][row] != 0) continue;
      std::fill_n(gradients_[t].begin() + static_cast<ptrdiff_t>(row * widths_[t]), widths_[t], 0.0f);
    }
  }
  return step_plan_.PushRequests(info, from);
}

}  // namespace capstan
