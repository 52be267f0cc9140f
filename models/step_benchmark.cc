#include "models/step_benchmark.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "common/random.h"
#include "kernels/aligned_buffer.h"
#include "kernels/matmul_floor.h"
#include "models/batch_view.h"
#include "models/model.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

// Keys are ⌊vocabulary^u⌋ with u uniform: the density falls with 1/key, as popularity does.
Batch MakeBenchmarkBatch(const FeatureShape& shape, uint32_t rows) {
  constexpr double kVocabulary = 100000.0;
  SeededRandom random(1);
  Batch batch;
  batch.rows = rows;
  batch.numeric_width = shape.numeric_width;
  for (size_t i = 0; i < size_t{rows} * shape.numeric_width; ++i) {
    batch.numeric.push_back(static_cast<float>(2.0 * random.Unit() - 1.0));
  }
  for (size_t f = 0; f < shape.sparse_names.size(); ++f) {
    SparseColumn& column = batch.sparse.emplace_back();
    column.offsets.push_back(0);
    for (uint32_t i = 0; i < rows; ++i) {
      column.keys.push_back(Mix64(f) ^ static_cast<uint64_t>(std::pow(kVocabulary, random.Unit())));
      column.offsets.push_back(i + 1);
    }
  }
  for (uint32_t i = 0; i < rows; ++i) {
    batch.labels.push_back(random.Below(4) == 0 ? 1.0f : 0.0f);
    batch.weights.push_back(1.0f);
    batch.row_ids.push_back(i);
  }
  return batch;
}

// The pulled tables of one step.
class BenchmarkTables {
 public:
  BenchmarkTables(const Model& model, const Batch& batch) {
    std::vector<std::vector<uint64_t>> keys(model.tables().size());
    model.CollectKeys(batch, &keys);
    for (size_t t = 0; t < keys.size(); ++t) Add(model.tables()[t], keys[t]);
    for (Table& table : tables_) {
      weights.push_back({table.values.data(), table.index});
      gradients.push_back({table.sums.data(), table.touched.data()});
    }
  }

  void ClearGradients() {
    for (Table& table : tables_) {
      std::fill(table.touched.begin(), table.touched.end(), uint8_t{0});
      if (table.index.empty()) std::fill_n(table.sums.data(), table.sums.size(), 0.0f);
    }
  }

  std::vector<TableWeights> weights;
  std::vector<TableGradients> gradients;
  uint64_t unique_rows = 0;

 private:
  struct Table {
    std::vector<uint32_t> index;
    std::vector<uint8_t> touched;
    AlignedBuffer<float> values, sums;
  };

  void Add(const TableSpec& spec, const std::vector<uint64_t>& keys) {
    Table table;
    uint64_t elements = spec.elements();
    if (spec.kind() == TableSpec::SPARSE) {
      std::unordered_map<uint64_t, uint32_t> seen;
      for (const uint64_t key : keys) {
        table.index.push_back(seen.try_emplace(key, static_cast<uint32_t>(seen.size())).first->second);
      }
      table.touched.assign(seen.size(), 0);
      unique_rows += seen.size();
      elements = seen.size() * spec.width();
    }
    table.values.Resize(elements);
    table.sums.Resize(elements);
    for (uint64_t j = 0; j < elements; ++j) {
      table.values.data()[j] = UniformFromBits(Mix64(spec.id() + (j << 8))) * 0.05f;
    }
    tables_.push_back(std::move(table));
  }

  std::vector<Table> tables_;
};

std::vector<size_t> LayerWidths(const WideDeep& config, const FeatureShape& shape) {
  std::vector<size_t> widths = {shape.sparse_names.size() * config.embedding_dim() + shape.numeric_width};
  for (const uint32_t width : config.hidden()) widths.push_back(width);
  if (config.hidden().empty()) widths.insert(widths.end(), {256, 128, 64});
  widths.push_back(1);
  return widths;
}

}  // namespace

absl::StatusOr<StepTimes> MeasureStep(const ModelConfig& config, const FeatureShape& shape,
                                      uint32_t batch_rows, int repeats) {
  if (!config.has_wide_deep())
    return InvalidArgument("the step benchmark measures wide_deep; name it in model");
  if (batch_rows == 0 || repeats < 1) return InvalidArgument("the step benchmark needs rows and repeats");
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, MakeModel(config, shape));
  const Batch batch = MakeBenchmarkBatch(shape, batch_rows);
  BenchmarkTables tables(*model, batch);
  const std::vector<size_t> widths = LayerWidths(config.wide_deep(), shape);

  MatmulFloor floor(widths, widths[0] - shape.numeric_width, batch_rows, kBlockRows);
  StepTimes times;
  times.flop = floor.flop();
  times.unique_rows = tables.unique_rows;
  times.seconds = times.floor_seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {
    tables.ClearGradients();
    const double start = ThreadSeconds();
    model->ForwardBackward(batch, tables.weights, tables.gradients);
    const double step = ThreadSeconds() - start;
    const double products = floor.Run();
    if (i == 0) continue;  // compiles the products
    times.seconds = std::min(times.seconds, step);
    times.floor_seconds = std::min(times.floor_seconds, products);
  }
  return times;
}

}  // namespace capstan
