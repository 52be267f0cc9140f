#include "tools/eval/model_scorer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/core.h>

#include "common/initial_value.h"
#include "data/dataset.h"
#include "kernels/compute_thread.h"
#include "models/model.h"
#include "proto/checkpoint.pb.h"
#include "storage/saved_model.h"

namespace capstan {
// (Not in the anonymous namespace: members of types that have linkage.)
// What a scorer needs of one table.
struct ScoredTable {
  bool dense = false;
  uint32_t width = 0;
  InitialValue initial{0, "", 0};
  std::vector<float> values;  // dense: all elements
};

namespace {

float ScaleOf(const TableSpec& spec) { return spec.init() == TableSpec::UNIFORM ? spec.scale() : 0.0f; }

// Rows of the table that nobody has pushed to are not saved: they have their initial values.
std::vector<float> DenseValues(const SavedModel& model, const TableSpec& spec, const InitialValue& initial) {
  std::vector<float> values(spec.elements());
  const size_t width = spec.width();
  for (size_t first = 0; first < values.size(); first += width) {
    const size_t n = std::min(width, values.size() - first);
    if (const float* row = model.Find(static_cast<TableId>(spec.id()), first / width); row != nullptr) {
      std::memcpy(values.data() + first, row, n * sizeof(float));
    } else {
      for (size_t i = first; i < first + n; ++i) values[i] = initial.At(0, i);
    }
  }
  return values;
}

absl::Status CheckTable(const EffectiveJob& job, const TableSpec& wanted, size_t id) {
  const bool there = id < static_cast<size_t>(job.table_size());
  const TableSpec& saved = there ? job.table(static_cast<int>(id)) : TableSpec::default_instance();
  if (there && saved.id() == id && saved.name() == wanted.name() && saved.kind() == wanted.kind() &&
      saved.width() == wanted.width() && saved.elements() == wanted.elements()) {
    return absl::OkStatus();
  }
  return DataLoss(fmt::format(
      "the saved model's table {} is '{}' of width {}, its own job wants '{}' of width {}; it was "
      "written by another release",
      id, saved.name(), saved.width(), wanted.name(), wanted.width()));
}

}  // namespace

struct ScorerTables::Impl {
  const SavedModel* model = nullptr;
  FeatureShape shape;
  std::vector<ScoredTable> tables;  // by wire id
};

ScorerTables::ScorerTables() : impl_(std::make_unique<Impl>()) {}
ScorerTables::~ScorerTables() = default;

absl::StatusOr<std::unique_ptr<ScorerTables>> ScorerTables::Make(const SavedModel& saved) {
  std::unique_ptr<ScorerTables> result(new ScorerTables);
  Impl& impl = *result->impl_;
  impl.model = &saved;
  const EffectiveJob& job = saved.manifest().job();
  impl.shape = ShapeOf(job.config().data());
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, MakeModel(job.config().model(), impl.shape));
  for (size_t id = 0; id < model->tables().size(); ++id) {
    CAPSTAN_RETURN_IF_ERROR(CheckTable(job, model->tables()[id], id));
    const TableSpec& spec = job.table(static_cast<int>(id));
    ScoredTable table;
    table.dense = spec.kind() == TableSpec::DENSE;
    table.width = spec.width();
    table.initial = InitialValue(job.config().seed(), spec.name(), ScaleOf(spec));
    if (table.dense) table.values = DenseValues(saved, spec, table.initial);
    impl.tables.push_back(std::move(table));
  }
  return result;
}

struct ModelScorer::Impl {
  const ScorerTables::Impl* shared = nullptr;
  std::unique_ptr<Model> model;
  std::vector<std::vector<uint64_t>> keys;  // by table
  std::vector<std::vector<float>> rows;     // by table: one row per lookup
  std::vector<uint32_t> places;             // 0, 1, 2, …

  void Gather();
  void PredictBatch(const Batch& batch, std::span<float> scores);
};

// Looks every lookup's row up, repeated keys included: to find out which keys repeat costs as much.
void ModelScorer::Impl::Gather() {
  for (size_t id = 0; id < shared->tables.size(); ++id) {
    const ScoredTable& table = shared->tables[id];
    if (table.dense) continue;
    const std::vector<uint64_t>& wanted = keys[id];
    rows[id].resize(wanted.size() * table.width);
    float* out = rows[id].data();
    for (const uint64_t key : wanted) {
      if (const float* row = shared->model->Find(static_cast<TableId>(id), key); row != nullptr) {
        std::memcpy(out, row, table.width * sizeof(float));
      } else {
        for (uint32_t i = 0; i < table.width; ++i) out[i] = table.initial.At(key, i);
      }
      out += table.width;
    }
    if (wanted.size() > places.size()) {
      const size_t known = places.size();
      places.resize(wanted.size());
      std::iota(places.begin() + static_cast<ptrdiff_t>(known), places.end(), static_cast<uint32_t>(known));
    }
  }
}

void ModelScorer::Impl::PredictBatch(const Batch& batch, std::span<float> scores) {
  for (std::vector<uint64_t>& list : keys) list.clear();
  model->CollectKeys(batch, &keys);
  Gather();
  std::vector<TableWeights> weights(shared->tables.size());
  for (size_t id = 0; id < weights.size(); ++id) {
    const ScoredTable& table = shared->tables[id];
    weights[id].values = table.dense ? table.values.data() : rows[id].data();
    if (!table.dense) weights[id].index = std::span(places).first(keys[id].size());
  }
  model->Predict(batch, weights, scores);
}

ModelScorer::ModelScorer() : impl_(std::make_unique<Impl>()) {}
ModelScorer::~ModelScorer() = default;

absl::StatusOr<std::unique_ptr<ModelScorer>> ModelScorer::Make(const ScorerTables& tables) {
  SetFloatMode();
  SetThreadsOfThisThread(1);
  std::unique_ptr<ModelScorer> scorer(new ModelScorer);
  Impl& impl = *scorer->impl_;
  impl.shared = tables.impl_.get();
  const JobConfig& config = impl.shared->model->manifest().job().config();
  CAPSTAN_ASSIGN_OR_RETURN(impl.model, MakeModel(config.model(), impl.shared->shape));
  impl.keys.resize(impl.shared->tables.size());
  impl.rows.resize(impl.shared->tables.size());
  return scorer;
}

void ModelScorer::Score(const Batch& rows, std::span<const uint32_t> bad, std::vector<float>* scores) {
  scores->assign(rows.rows, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint32_t> chosen;
  std::vector<float> batch_scores(kScoreBatchRows);
  for (uint32_t first = 0; first < rows.rows; first += kScoreBatchRows) {
    chosen.clear();
    const uint32_t end = std::min(rows.rows, first + kScoreBatchRows);
    for (uint32_t row = first; row < end; ++row) {
      if (!std::binary_search(bad.begin(), bad.end(), row)) chosen.push_back(row);
    }
    if (chosen.empty()) continue;
    const size_t good = chosen.size();
    chosen.resize(kScoreBatchRows, chosen[0]);
    impl_->PredictBatch(GatherRows(rows, chosen, {}), batch_scores);
    for (size_t i = 0; i < good; ++i) (*scores)[chosen[i]] = batch_scores[i];
  }
}

}  // namespace capstan
