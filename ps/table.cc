#include "ps/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "common/partition_map.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

constexpr uint64_t kRowsPerVisit = 1 << 18;  // how many rows are sorted at a time for a save

absl::StatusOr<TableShape> ShapeOf(const TableSpec& spec) {
  const auto refuse = [&spec](std::string_view what) {
    return InvalidArgument(fmt::format("table '{}' (id {}): {}", spec.name(), spec.id(), what));
  };
  if (spec.name().empty()) return refuse("has no name; its initial values depend on it");
  if (spec.id() > std::numeric_limits<TableId>::max()) return refuse("id is above 65535");
  if (spec.width() < 1 || spec.width() > kMaxTableWidth) {
    return refuse(fmt::format("width is {}, want 1 to {}", spec.width(), kMaxTableWidth));
  }
  const bool dense = spec.kind() == TableSpec::DENSE;
  if (dense && spec.elements() == 0) return refuse("a dense table needs elements >= 1");
  const bool uniform = spec.init() == TableSpec::UNIFORM;
  if (uniform && !(spec.scale() >= 0 && spec.scale() < 1e30f)) {
    return refuse(fmt::format("scale of the initial values is {}, want 0 <= scale < 1e30", spec.scale()));
  }
  TableShape shape;
  shape.id = static_cast<TableId>(spec.id());
  shape.name = spec.name();
  shape.dense = dense;
  shape.width = spec.width();
  shape.elements = dense ? spec.elements() : 0;
  shape.init_scale = uniform ? spec.scale() : 0;
  shape.mean = spec.reduction() == TableSpec::MEAN;
  shape.frozen = spec.frozen();
  return shape;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Table>> Table::Create(const TableSpec& spec, uint64_t seed) {
  CAPSTAN_ASSIGN_OR_RETURN(TableShape shape, ShapeOf(spec));
  const std::string while_making = fmt::format("table '{}'", shape.name);
  auto optimizer = MakeOptimizer(spec.optimizer());
  if (!optimizer.ok()) return While(while_making, optimizer.status());
  auto schedule = RateSchedule::Make(spec.optimizer().schedule());
  if (!schedule.ok()) return While(while_making, schedule.status());
  auto rules = GradientRules::Make(spec.optimizer(), (*optimizer)->HasOwnPenalty());
  if (!rules.ok()) return While(while_making, rules.status());
  return std::make_unique<Table>(std::move(shape), std::move(optimizer).value(), std::move(schedule).value(),
                                 std::move(rules).value(), seed);
}

Table::Table(TableShape shape, std::unique_ptr<Optimizer> optimizer, RateSchedule schedule, GradientRules rules,
             uint64_t seed)
    : shape_(std::move(shape)),
      optimizer_(std::move(optimizer)),
      schedule_(std::move(schedule)),
      rules_(std::move(rules)),
      initial_(seed, shape_.name, shape_.init_scale),
      store_(RowLayout{shape_.width, optimizer_->SlotFloats(shape_.width)}) {}

void Table::InitialWeights(Key key, float* out) const {
  const uint32_t width = shape_.width;
  if (shape_.init_scale == 0) {
    std::fill(out, out + width, 0.0f);
    return;
  }
  if (!shape_.dense) {
    for (uint32_t i = 0; i < width; ++i) out[i] = initial_.At(key, i);
    return;
  }
  const uint64_t first = key < shape_.blocks() ? key * width : shape_.elements;
  const uint32_t inside = static_cast<uint32_t>(std::min<uint64_t>(width, shape_.elements - first));
  for (uint32_t i = 0; i < inside; ++i) out[i] = initial_.At(0, first + i);
  std::fill(out + inside, out + width, 0.0f);
}

RowStore::Init Table::InitRow() const {
  return [this](Key key, RowRef row) {
    InitialWeights(key, row.weights());
    optimizer_->InitSlots(row.slots(layout()), shape_.width);
    if (tracker_ != nullptr) tracker_->AfterCreate(key, row);
  };
}

void Table::Gather(std::span<const Key> keys, float* out) const {
  store_.GatherWeights(keys, out,
                       [this, keys](size_t i, float* out_row) { InitialWeights(keys[i], out_row); });
}

void Table::Apply(std::span<const Key> keys, const float* gradients, const UpdateContext& context) {
  if (shape_.frozen) return;
  UpdateContext scheduled = context;
  scheduled.lr_factor *= schedule_.Factor(context.step);
  const StepScalars scalars = optimizer_->Prepare(scheduled);
  store_.FindOrCreate(keys, InitRow(), [&](size_t first, const RowRef* rows, size_t n) {
    if (tracker_ != nullptr) tracker_->BeforeUpdate(keys.data() + first, rows, n);
    const float* const given = gradients + first * shape_.width;
    if (rules_.idle()) return optimizer_->Update(layout(), rows, given, n, scalars);
    optimizer_->Update(layout(), rows, rules_.Before(rows, given, n, shape_.width), n, scalars);
    rules_.After(rows, n, shape_.width, scalars.learning_rate);
  });
}

bool Table::Erase(Key key) {
  if (tracker_ != nullptr) {
    RowRef row;
    store_.Find(std::span(&key, 1), &row);
    if (!row.found()) return false;
    tracker_->BeforeErase(key, row);
  }
  return store_.Erase(key);
}

RowRef Table::MakeForImport(Key key) {
  const auto init = [this](Key made, RowRef row) {
    if (tracker_ != nullptr) tracker_->AfterCreate(made, row);
  };
  RowRef row;
  store_.FindOrCreate(std::span(&key, 1), &row, init);
  // One that was there (a block of a dense table) may already belong to a cut.
  if (tracker_ != nullptr) tracker_->BeforeUpdate(&key, &row, 1);
  return row;
}

void Table::Import(Key key, const float* weights, const float* slots, uint32_t last_step, uint32_t updates) {
  const RowRef row = MakeForImport(key);
  std::copy(weights, weights + shape_.width, row.weights());
  std::copy(slots, slots + layout().slot_floats, row.slots(layout()));
  RowCounters* const counters = row.counters(layout());
  counters->last_step = last_step;
  counters->updates = std::min(updates, RowCounters::kMaxUpdates) & RowCounters::kMaxUpdates;
}

void Table::ImportWeights(Key key, const float* weights) {
  const RowRef row = MakeForImport(key);
  std::copy(weights, weights + shape_.width, row.weights());
  float* const slots = row.slots(layout());
  std::fill(slots, slots + layout().slot_floats, 0.0f);  // InitSlots is made for new records
  optimizer_->InitSlots(slots, shape_.width);
  RowCounters* const counters = row.counters(layout());
  counters->last_step = 0;
  counters->updates = 0;
}

void Table::Track(uint32_t partitions, bool increments) {
  tracker_ = std::make_unique<ChangeTracker>(layout(), partitions, increments);
  store_.ForEach([this](Key key, RowRef row) { tracker_->AfterCreate(key, row); });
}

void Table::CreateDense(const std::function<bool(Key key)>& owned) {
  std::vector<Key> keys;
  for (Key key = 0; key < shape_.blocks(); ++key) {
    if (owned(key)) keys.push_back(key);
  }
  std::vector<RowRef> rows(keys.size());
  store_.FindOrCreate(keys, rows.data(), InitRow());
}

absl::Status Table::ForEachPartition(
    PartitionId first, PartitionId last, uint32_t partitions,
    const std::function<absl::Status(PartitionId partition, std::span<const KeyedRow> rows)>& visit) const {
  // Hashes are spread evenly, so a run of partitions has about its share of the rows.
  const uint64_t runs = store_.rows() / kRowsPerVisit + 1;
  const PartitionId step = static_cast<PartitionId>(std::max<uint64_t>((last - first) / runs, 1));
  for (PartitionId begin = first; begin < last; begin += std::min(step, last - begin)) {
    const std::vector<KeyedRow> rows =
        store_.SortedRows(begin, begin + std::min(step, last - begin), partitions);
    for (size_t i = 0; i < rows.size();) {
      const PartitionId partition = PartitionOf(rows[i].key, partitions);
      size_t end = i + 1;
      while (end < rows.size() && PartitionOf(rows[end].key, partitions) == partition) ++end;
      CAPSTAN_RETURN_IF_ERROR(visit(partition, std::span(rows).subspan(i, end - i)));
      i = end;
    }
  }
  return absl::OkStatus();
}

}  // namespace capstan
