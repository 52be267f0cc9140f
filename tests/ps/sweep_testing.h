// A sink that keeps what it gets and refuses at random, and tables that training changes at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/partition_map.h"
#include "common/random.h"
#include "proto/checkpoint.pb.h"
#include "proto/control.pb.h"
#include "ps/change_tracker.h"
#include "ps/snapshot_sink.h"
#include "ps/snapshot_sweep.h"
#include "ps/table.h"

namespace capstan {

using StoredRows = std::map<StoredKey, std::string>;  // values as stored

inline std::string StoredValueOf(const Table& table, RowRef row) {
  const size_t bytes = table.layout().floats() * sizeof(float);
  const RowCounters& counters = *row.counters(table.layout());
  const uint32_t last[2] = {counters.last_step, counters.updates};
  return std::string(reinterpret_cast<const char*>(row.weights()), bytes) +
         std::string(reinterpret_cast<const char*>(last), sizeof(last));
}

// Read from the row stores, whatever the trackers think.
inline StoredRows RowsOf(const std::vector<Table*>& tables, uint32_t partitions) {
  StoredRows rows;
  for (const Table* table : tables) {
    table->store().ForEach([&](Key key, RowRef row) {
      rows[{table->shape().id, PartitionOf(key, partitions), key}] = StoredValueOf(*table, row);
    });
  }
  return rows;
}

// Checks the order and the sums of what it gets.
class FakeSink final : public SnapshotSink {
 public:
  FakeSink(uint32_t partitions, uint64_t seed) : partitions_(partitions), rng_(seed) {}

  uint32_t refuse_percent = 0;
  bool refuse_all = false;
  std::optional<absl::Status> fail;  // the next Poll says so

  StoredRows puts;
  std::set<StoredKey> deleted;
  SnapshotOrder order;
  ShardRecord record;
  bool begun = false;
  bool finished = false;
  int aborts = 0;
  size_t chunks = 0;
  size_t largest_chunk = 0;

  void Begin(const SnapshotOrder& new_order) override {
    ASSERT_FALSE(begun);
    order = new_order;
    puts.clear();
    deleted.clear();
    begun = true;
    finished = false;
    chunks = largest_chunk = 0;
    before_.reset();
    open_ = false;
    fail.reset();
  }
  bool Offer(const SnapshotChunk& chunk) override {
    EXPECT_TRUE(begun && !finished);
    if (Refuses()) return false;
    const std::pair<TableId, PartitionId> place = {chunk.table, chunk.partition};
    if (open_) {
      EXPECT_EQ(place, *before_);
    } else {
      EXPECT_TRUE(!before_.has_value() || *before_ < place) << "partitions must rise";
      digest_ = ContentDigest();
      rows_ = 0;
    }
    const size_t record_bytes = sizeof(Key) + StoredValueBytes(chunk.floats);
    const size_t bytes = chunk.rows.size() + chunk.deleted.size_bytes();
    EXPECT_TRUE(bytes <= kMaxChunkBytes || (chunk.rows.size() == record_bytes && chunk.deleted.empty())) << bytes;
    EXPECT_EQ(chunk.rows.size() % record_bytes, 0u);
    for (size_t at = 0; at < chunk.rows.size(); at += record_bytes) {
      const std::byte* const stored = chunk.rows.data() + at;
      Key key;
      std::memcpy(&key, stored, sizeof(key));
      EXPECT_EQ(PartitionOf(key, partitions_), chunk.partition);
      const bool fresh =
          puts.try_emplace({chunk.table, chunk.partition, key}, reinterpret_cast<const char*>(stored + sizeof(key)),
                           record_bytes - sizeof(key))
              .second;
      EXPECT_TRUE(fresh) << "key " << key << " twice";
      digest_.AddRow(chunk.table, key, stored + sizeof(key), record_bytes - sizeof(key));
      ++rows_;
    }
    for (const Key key : chunk.deleted) {
      EXPECT_TRUE(deleted.insert({chunk.table, chunk.partition, key}).second);
    }
    if (chunk.last) {
      EXPECT_EQ(chunk.partition_rows, rows_);
      EXPECT_TRUE(chunk.digest == digest_);
    }
    before_ = place;
    open_ = !chunk.last;
    ++chunks;
    largest_chunk = std::max(largest_chunk, bytes);
    return true;
  }
  bool Finish(const ShardRecord& new_record) override {
    EXPECT_TRUE(begun && !finished && !open_);
    if (Refuses()) return false;
    record = new_record;
    finished = true;
    return true;
  }
  void Abort() override {
    EXPECT_TRUE(begun);
    begun = false;
    ++aborts;
  }
  std::optional<SnapshotResult> Poll() override {
    EXPECT_TRUE(begun);
    SnapshotResult result;
    result.id = order.id;
    if (fail.has_value()) {
      result.status = *std::exchange(fail, std::nullopt);
    } else if (!finished || Refuses()) {
      return std::nullopt;
    }
    begun = false;
    return result;
  }

 private:
  bool Refuses() { return refuse_all || rng_.Below(100) < refuse_percent; }

  const uint32_t partitions_;
  SeededRandom rng_;
  std::optional<std::pair<TableId, PartitionId>> before_;
  bool open_ = false;
  ContentDigest digest_;
  uint64_t rows_ = 0;
};

struct SweepTables {
  std::vector<std::unique_ptr<Table>> owned;
  std::vector<Table*> all;

  Table& Add(TableSpec spec) {
    spec.set_id(static_cast<uint32_t>(owned.size()));
    auto table = Table::Create(spec, 42);
    if (!table.ok()) throw std::runtime_error(std::string(table.status().message()));
    owned.push_back(std::move(table).value());
    all.push_back(owned.back().get());
    return *all.back();
  }
  void Track(uint32_t partitions, bool increments) {
    for (Table* table : all) table->Track(partitions, increments);
  }
};

inline TableSpec SweepSpec(const std::string& name, uint32_t width, std::string_view optimizer) {
  TableSpec spec;
  spec.set_name(name);
  spec.set_width(width);
  spec.set_init(TableSpec::UNIFORM);
  spec.set_scale(0.5f);
  spec.mutable_optimizer()->set_name(std::string(optimizer));
  spec.mutable_optimizer()->set_learning_rate(0.1);
  return spec;
}

}  // namespace capstan
