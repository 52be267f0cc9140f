// Checkpoints of a ShardHarness: orders, steps of both ranks, what was stored.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/checkpoint.pb.h"
#include "shard_harness.h"
#include "storage/checkpoint_reader.h"

namespace capstan::testing {

inline std::string CutFolder(uint64_t id) { return "cuts/" + CheckpointFolderName(id); }
inline std::string PartOf(uint64_t id, ShardId shard = 0) { return CutFolder(id) + "/" + ShardFolderName(shard); }

inline Cut OrderOf(uint64_t id, ShardId shard = 0) {
  Cut order;
  order.set_id(id);
  order.set_folder(PartOf(id, shard));
  return order;
}
inline Cut AtStep(uint64_t id, uint64_t step) {
  Cut order = OrderOf(id);
  order.set_step(step);
  return order;
}
inline Cut Now(uint64_t id, ShardId shard = 0) {
  Cut order = OrderOf(id, shard);
  order.set_now(true);
  return order;
}

// One step of both ranks, committed by their pulls of the next one. Rank 0 has the gradients.
inline void TrainRows(ShardHarness& shard, Step step, const std::vector<TableRows>& rows) {
  for (const Rank rank : {0u, 1u}) {
    const std::vector<TableRows> own = rank == 0 ? rows : std::vector<TableRows>{};
    shard.FromWorker(PushFrame(rank, step, 10 * step + 1, Info(1, 1, step + 1), own));
  }
  for (const Rank rank : {0u, 1u}) shard.FromWorker(PullFrame(rank, step + 1, 10 * step + 2, {}));
  ASSERT_EQ(shard.core().state()->version(), step + 1);
}
// Adds `amount` to key 5 of "sums".
inline void Train(ShardHarness& shard, Step step, float amount = 1) { TrainRows(shard, step, {{0, {5}, {-amount}}}); }

// The step with which both ranks close an epoch.
inline void EndEpoch(ShardHarness& shard, Step step) {
  const uint32_t epoch = shard.core().state()->epoch();
  for (const Rank rank : {0u, 1u}) {
    Message end = PushFrame(rank, step, 10 * step + 1, Info(0, 0), {});
    end.header.flags = kFlagEnd;
    shard.FromWorker(Sealed(std::move(end)));
  }
  for (const Rank rank : {0u, 1u}) shard.FromWorker(PullFrame(rank, step + 1, 10 * step + 2, {}));
  ASSERT_EQ(shard.core().state()->epoch(), epoch + 1);
}

struct RowThere {
  std::vector<float> values;
  uint32_t last_step = 0, updates = 0;
  bool operator==(const RowThere&) const = default;
};
// Whole rows of all parts of a cut; of one table.
inline std::map<Key, RowThere> WholeRowsOf(FileSystem& disk, uint64_t id, TableId table) {
  std::map<Key, RowThere> rows;
  const auto source = FakeRowSources(disk)(CutFolder(id));
  EXPECT_TRUE(source.ok()) << source.status();
  if (!source.ok()) return rows;
  EXPECT_EQ((*source)->ForEach(table, 0, 8, [&rows](const StoredRow& row) {
    rows[row.key] = {{row.values, row.values + row.floats}, row.last_step, row.updates};
    return absl::OkStatus();
  }), absl::OkStatus());
  return rows;
}
// The first weight of the rows of "sums".
inline std::map<Key, float> RowsOf(ShardHarness& shard, uint64_t id, ShardRecord* record = nullptr) {
  std::map<Key, float> rows;
  for (const auto& [key, row] : WholeRowsOf(shard.disk(), id, 0)) rows[key] = row.values[0];
  if (record == nullptr) return rows;
  const auto source = FakeRowSources(shard.disk())(CutFolder(id));
  if (source.ok()) *record = *(*source)->records()[0];
  return rows;
}

}  // namespace capstan::testing
