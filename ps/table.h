// One table on one shard: rows, update rule and initial values. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/initial_value.h"
#include "common/status.h"
#include "common/types.h"
#include "ps/change_tracker.h"
#include "ps/gradient_rules.h"
#include "ps/optimizer.h"
#include "ps/rate_schedule.h"
#include "ps/row_store.h"

namespace capstan {

class TableSpec;

inline constexpr uint32_t kMaxTableWidth = 1u << 16;

// What a table needs of its TableSpec (proto/control.proto).
struct TableShape {
  TableId id = 0;
  std::string name;
  bool dense = false;     // rows are blocks of one tensor, key = block number
  uint32_t width = 0;     // floats per row, 1 … kMaxTableWidth
  uint64_t elements = 0;  // dense: length of the tensor
  float init_scale = 0;   // initial values are uniform in (-init_scale, init_scale)
  bool mean = true;       // the summed gradient is divided by the sum of weights
  bool frozen = false;    // no update changes it
  uint64_t blocks() const { return dense ? (elements + width - 1) / width : 0; }
};

class Table {
 public:
  // kInvalidArgument names the table and the setting that is out of range. `seed` is the job's.
  static absl::StatusOr<std::unique_ptr<Table>> Create(const TableSpec& spec, uint64_t seed);
  Table(TableShape shape, std::unique_ptr<Optimizer> optimizer, RateSchedule schedule, GradientRules rules, uint64_t seed);

  const TableShape& shape() const { return shape_; }
  const RowLayout& layout() const { return store_.layout(); }
  RowStore& store() { return store_; }
  const RowStore& store() const { return store_; }

  // The weights of keys [n] to out [n, width]. An absent row reads as its initial values and is not created.
  // Keys in any order.
  void Gather(std::span<const Key> keys, float* out) const;

  // One optimizer update of each key with its row of gradients [n, width]. Absent rows are created first.
  // Keys occur once each; gradients are finite (gradient_merge.h sees to both). A frozen table stays as it is.
  void Apply(std::span<const Key> keys, const float* gradients, const UpdateContext& context);

  // Forgets a row: from then on it reads as its initial values. False: it was not there.
  bool Erase(Key key);

  // A row as a checkpoint had it: weights [width], slots [layout().slot_floats]. Made if it is absent. For the time
  // before the first cut: an increment would not notice rows made like this.
  void Import(Key key, const float* weights, const float* slots, uint32_t last_step, uint32_t updates);
  // Weights alone: slots and counters are those of a row never updated.
  void ImportWeights(Key key, const float* weights);

  // From now on the table knows which rows changed since a cut (change_tracker.h), and can be swept. increments: a
  // cut may consist of the changes alone. Cost: a visit to all rows that there are.
  void Track(uint32_t partitions, bool increments);
  ChangeTracker* tracker() const { return tracker_.get(); }  // nullptr: not tracked

  // Creates the blocks of a dense table for which owned(key) holds; nothing for a sparse one.
  void CreateDense(const std::function<bool(Key key)>& owned);

  // Weights of a row as they are before its first update, to out [width]. Elements of a dense table beyond
  // its end are 0.
  void InitialWeights(Key key, float* out) const;

  // For saving: visits the partitions [first, last) of `partitions` that have rows, in order; rows are sorted
  // by key, and layout().floats() floats of each (weights, slots) are what is saved. Takes memory for about a
  // quarter of a million rows at a time, 16 bytes each. No change to the table during the visit. Ends at the
  // first error.
  absl::Status ForEachPartition(
      PartitionId first, PartitionId last, uint32_t partitions,
      const std::function<absl::Status(PartitionId partition, std::span<const KeyedRow> rows)>& visit) const;

 private:
  RowStore::Init InitRow() const;
  RowRef MakeForImport(Key key);

  TableShape shape_;
  std::unique_ptr<Optimizer> optimizer_;
  RateSchedule schedule_;
  GradientRules rules_;
  InitialValue initial_;
  RowStore store_;
  std::unique_ptr<ChangeTracker> tracker_;
};

}  // namespace capstan
