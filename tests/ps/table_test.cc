#include "ps/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/partition_map.h"
#include "proto/control.pb.h"
#include "ps/change_tracker.h"
#include "ps/optimizer.h"

namespace capstan {
namespace {

constexpr uint64_t kSeed = 42;

TableSpec SparseSpec() {
  TableSpec spec;
  spec.set_id(3);
  spec.set_name("user");
  spec.set_width(4);
  spec.set_init(TableSpec::UNIFORM);
  spec.set_scale(0.5f);
  spec.mutable_optimizer()->set_name("sgd");
  spec.mutable_optimizer()->set_learning_rate(0.5);
  return spec;
}

TableSpec DenseSpec(uint64_t elements, uint32_t width) {
  TableSpec spec = SparseSpec();
  spec.set_name("layer0");
  spec.set_kind(TableSpec::DENSE);
  spec.set_width(width);
  spec.set_elements(elements);
  return spec;
}

std::unique_ptr<Table> MustMake(const TableSpec& spec) {
  auto table = Table::Create(spec, kSeed);
  if (!table.ok()) throw std::runtime_error(std::string(table.status().message()));
  return std::move(table).value();
}

TEST(Table, ReadsItsShapeFromTheSpec) {
  const auto table = MustMake(DenseSpec(10, 4));
  EXPECT_EQ(table->shape().id, 3);
  EXPECT_EQ(table->shape().name, "layer0");
  EXPECT_TRUE(table->shape().dense);
  EXPECT_EQ(table->shape().blocks(), 3u);
  EXPECT_TRUE(table->shape().mean);
  EXPECT_EQ(table->layout().floats(), 4u);
}

TEST(Table, AGatherCreatesNothingAndReadsInitialValues) {
  const auto table = MustMake(SparseSpec());
  const std::vector<Key> keys = {0, 7, ~Key{0}};
  std::vector<float> out(12);
  table->Gather(keys, out.data());
  EXPECT_EQ(table->store().rows(), 0u);
  const InitialValue initial(kSeed, "user", 0.5f);
  for (size_t i = 0; i < keys.size(); ++i) {
    for (uint32_t j = 0; j < 4; ++j) EXPECT_EQ(out[4 * i + j], initial.At(keys[i], j));
  }
}

TEST(Table, AnUpdateStartsFromTheInitialValues) {
  const auto table = MustMake(SparseSpec());
  const std::vector<Key> keys = {7, 9};
  std::vector<float> before(8), after(8);
  table->Gather(keys, before.data());
  const std::vector<float> gradients = {1, 2, 3, 4, -1, -2, -3, -4};
  table->Apply(keys, gradients.data(), {.lr_factor = 1.0f, .step = 6});
  EXPECT_EQ(table->store().rows(), 2u);
  table->Gather(keys, after.data());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(after[i], before[i] - 0.5f * gradients[i]);
  RowRef row;
  table->store().Find(std::span(keys).first(1), &row);
  EXPECT_EQ(row.counters(table->layout())->last_step, 6u);
  EXPECT_EQ(row.counters(table->layout())->updates, 1u);
}

// Whether a row is new or old, alone or among many, its update has the same bits.
TEST(Table, ManyRowsAtOnceEqualOneAtATime) {
  TableSpec spec = SparseSpec();
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_initial_accumulator(0.25);
  const auto many = MustMake(spec), single = MustMake(spec);
  std::vector<Key> keys;
  std::vector<float> gradients;
  for (Key key = 0; key < 3000; ++key) {
    keys.push_back(key * key);
    for (int j = 0; j < 4; ++j) gradients.push_back(0.01f * static_cast<float>(key % 100 + j) - 0.3f);
  }
  for (const uint64_t step : {1, 2}) {
    const UpdateContext context{1.0f, step};
    many->Apply(keys, gradients.data(), context);
    for (size_t i = keys.size(); i-- > 0;) {
      single->Apply(std::span(keys).subspan(i, 1), gradients.data() + 4 * i, context);
    }
  }
  std::vector<float> a(gradients.size()), b(gradients.size());
  many->Gather(keys, a.data());
  single->Gather(keys, b.data());
  EXPECT_EQ(a, b);
}

TEST(Table, DenseInitialValuesDoNotDependOnTheBlockSize) {
  const InitialValue initial(kSeed, "layer0", 0.5f);
  for (const uint32_t width : {1u, 3u, 4u, 10u, 16u}) {
    SCOPED_TRACE(width);
    const auto table = MustMake(DenseSpec(10, width));
    table->CreateDense([](Key) { return true; });
    EXPECT_EQ(table->store().rows(), table->shape().blocks());
    std::vector<Key> keys;
    for (Key key = 0; key < table->shape().blocks(); ++key) keys.push_back(key);
    std::vector<float> out(keys.size() * width, -1);
    table->Gather(keys, out.data());
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i < 10 ? initial.At(0, i) : 0.0f) << i;
  }
}

TEST(Table, CreatesOnlyTheBlocksItOwns) {
  const auto table = MustMake(DenseSpec(1000, 2));
  table->CreateDense([](Key key) { return PartitionOf(key, 4) == 2; });
  const std::vector<Key> keys = table->store().SortedKeys(0, 4, 4);
  EXPECT_FALSE(keys.empty());
  for (const Key key : keys) EXPECT_EQ(PartitionOf(key, 4), 2u);
  EXPECT_EQ(table->store().SortedKeys(2, 3, 4).size(), keys.size());
  const auto sparse = MustMake(SparseSpec());
  sparse->CreateDense([](Key) { return true; });
  EXPECT_EQ(sparse->store().rows(), 0u);
}

TEST(Table, AKeyBeyondADenseTableReadsAsZero) {
  const auto table = MustMake(DenseSpec(10, 4));
  const std::vector<Key> keys = {3, ~Key{0}};
  std::vector<float> out(8, -1);
  table->Gather(keys, out.data());
  EXPECT_THAT(out, testing::Each(0.0f));
}

TEST(Table, VisitsEveryRowOnceByPartitionAndKey) {
  TableSpec spec = SparseSpec();
  spec.set_width(1);
  const auto table = MustMake(spec);
  std::vector<Key> keys;
  for (Key key = 0; key < 600'000; ++key) keys.push_back(key * 3);  // several visits' worth
  std::vector<float> gradients(keys.size(), 1);
  table->Apply(keys, gradients.data(), {});
  for (const uint32_t partitions : {1u, 8u, 4096u}) {
    std::vector<Key> seen;
    int64_t last = -1;
    const absl::Status status = table->ForEachPartition(
        0, partitions, partitions, [&](PartitionId partition, std::span<const KeyedRow> rows) {
          EXPECT_GT(static_cast<int64_t>(partition), last);
          last = partition;
          for (const KeyedRow& row : rows) seen.push_back(row.key);
          return absl::OkStatus();
        });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(seen, table->store().SortedKeys(0, partitions, partitions));
  }
}

TEST(Table, TheVisitEndsAtTheFirstError) {
  const auto table = MustMake(DenseSpec(1000, 1));
  table->CreateDense([](Key) { return true; });
  int calls = 0;
  const absl::Status status = table->ForEachPartition(0, 16, 16, [&](PartitionId, std::span<const KeyedRow>) {
    return ++calls == 2 ? Unavailable("disk full") : absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 2);
}

struct RefusedSpec {
  const char* why;
  void (*damage)(TableSpec& spec);
  const char* message;
};
const RefusedSpec kRefused[] = {
    {"no name", [](TableSpec& s) { s.clear_name(); }, "no name"},
    {"width 0", [](TableSpec& s) { s.set_width(0); }, "width is 0"},
    {"too wide", [](TableSpec& s) { s.set_width(kMaxTableWidth + 1); }, "width is 65537"},
    {"id too large", [](TableSpec& s) { s.set_id(65536); }, "id"},
    {"dense without elements", [](TableSpec& s) { s.set_kind(TableSpec::DENSE); }, "elements"},
    {"negative scale", [](TableSpec& s) { s.set_scale(-1); }, "scale"},
    {"NaN scale", [](TableSpec& s) { s.set_scale(std::numeric_limits<float>::quiet_NaN()); }, "scale"},
    {"optimizer", [](TableSpec& s) { s.mutable_optimizer()->set_name("sdg"); }, "sdg"},
    {"setting", [](TableSpec& s) { s.mutable_optimizer()->set_learning_rate(-1); }, "learning_rate"},
};

TEST(Table, RefusesASpecThatMakesNoSense) {
  for (const RefusedSpec& c : kRefused) {
    TableSpec spec = SparseSpec();
    c.damage(spec);
    const auto table = Table::Create(spec, kSeed);
    ASSERT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << c.why;
    EXPECT_THAT(std::string(table.status().message()), testing::HasSubstr(c.message)) << c.why;
    EXPECT_THAT(std::string(table.status().message()),
                testing::HasSubstr(spec.name().empty() ? "''" : "'user'"));
  }
}

TEST(Table, AnImportedRowIsTheExportedOne) {
  for (const std::string_view optimizer : OptimizerNames()) {
    SCOPED_TRACE(optimizer);
    TableSpec spec = SparseSpec();
    spec.mutable_optimizer()->set_name(std::string(optimizer));
    const auto from = MustMake(spec), to = MustMake(spec);
    from->Track(16, true);
    to->Track(16, true);
    const std::vector<Key> keys = {0, 7, ~Key{0}};
    const std::vector<float> gradients = {1, 2, 3, 4, -1, -2, -3, -4, 0.5f, 0, 0, 1};
    for (uint64_t step = 1; step <= 3; ++step) from->Apply(keys, gradients.data(), {1.0f, step});
    std::vector<RowRef> rows(keys.size()), imported(keys.size());
    from->store().Find(keys, rows.data());
    const RowLayout& layout = from->layout();
    for (size_t i = 0; i < keys.size(); ++i) {
      const RowCounters& counters = *rows[i].counters(layout);
      to->Import(keys[i], rows[i].weights(), rows[i].slots(layout), counters.last_step, counters.updates);
    }
    EXPECT_EQ(to->store().rows(), keys.size());
    EXPECT_EQ(to->tracker()->rows(), from->tracker()->rows());
    // Training goes on from either one alike.
    for (Table* table : {from.get(), to.get()}) table->Apply(keys, gradients.data(), {1.0f, 4});
    to->store().Find(keys, imported.data());
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(std::memcmp(rows[i].record(), imported[i].record(), layout.floats() * sizeof(float)), 0);
      EXPECT_EQ(imported[i].counters(layout)->updates, 4u);
      EXPECT_EQ(imported[i].counters(layout)->last_step, 4u);
    }
  }
}

TEST(Table, ImportedWeightsBeginLikeAFreshRow) {
  TableSpec spec = DenseSpec(8, 4);
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_initial_accumulator(0.25);
  const auto table = MustMake(spec);
  table->CreateDense([](Key) { return true; });
  const std::vector<Key> keys = {0, 1};
  const std::vector<float> gradients(8, 1.0f);
  table->Apply(keys, gradients.data(), {1.0f, 5});
  const float weights[] = {4, 3, 2, 1};
  table->ImportWeights(1, weights);
  EXPECT_EQ(table->store().rows(), 2u);
  RowRef row;
  table->store().Find(std::span(keys).last(1), &row);
  EXPECT_THAT(std::vector<float>(row.weights(), row.weights() + 4), testing::ElementsAre(4, 3, 2, 1));
  const float* const slots = row.slots(table->layout());
  EXPECT_THAT(std::vector<float>(slots, slots + 4), testing::Each(0.25f));
  EXPECT_EQ(row.counters(table->layout())->updates, 0u);
  EXPECT_EQ(row.counters(table->layout())->last_step, 0u);
}

TEST(Table, AFrozenTableStaysAsItIs) {
  TableSpec spec = SparseSpec();
  spec.set_frozen(true);
  const auto table = MustMake(spec);
  const float weights[] = {4, 3, 2, 1};
  table->ImportWeights(7, weights);
  const std::vector<Key> keys = {7, 8};
  const std::vector<float> gradients(8, 1.0f);
  table->Apply(keys, gradients.data(), {1.0f, 1});
  EXPECT_EQ(table->store().rows(), 1u);
  std::vector<float> out(4);
  table->Gather(std::span(keys).first(1), out.data());
  EXPECT_THAT(out, testing::ElementsAre(4, 3, 2, 1));
}

TEST(Table, AnErasedRowReadsAsItsInitialValues) {
  const auto table = MustMake(SparseSpec());
  const std::vector<Key> keys = {7};
  std::vector<float> before(4), after(4);
  table->Gather(keys, before.data());
  EXPECT_FALSE(table->Erase(7));
  table->Apply(keys, std::vector<float>(4, 1.0f).data(), {1.0f, 1});
  EXPECT_TRUE(table->Erase(7));
  table->Gather(keys, after.data());
  EXPECT_EQ(after, before);
  EXPECT_EQ(table->store().rows(), 0u);
}

}  // namespace
}  // namespace capstan
