#include "ps/snapshot_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ps/optimizer.h"
#include "tests/ps/sweep_testing.h"

namespace capstan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPlenty = uint64_t{1} << 30;

// Training, cuts and accidents in random order. Every cut that ends well equals what was read from the row stores at
// the moment of the cut, increments laid over the cuts before them.
class RandomRun {
 public:
  RandomRun(std::string_view optimizer, uint64_t seed)
      : rng_(seed), partitions_(uint32_t{1} << (rng_.Below(4) * 3)), sink_(partitions_, seed) {
    tables_.Add(SweepSpec("a", 3, optimizer));
    TableSpec dense = SweepSpec("b", 4, optimizer);
    dense.set_kind(TableSpec::DENSE);
    dense.set_elements(50);
    tables_.Add(dense).CreateDense([](Key) { return true; });
    TableSpec frozen = SweepSpec("c", 2, optimizer);
    frozen.set_frozen(true);
    Table& c = tables_.Add(frozen);
    tables_.Add(SweepSpec("d", 1, optimizer));
    tables_.Track(partitions_, true);
    const float weights[] = {0.5f, -0.5f};
    for (Key key = 0; key < 20; ++key) c.ImportWeights(key * key, weights);
    sweep_.emplace(tables_.all);
    sink_.refuse_percent = static_cast<uint32_t>(rng_.Below(60));
  }

  void Go(int actions) {
    for (int i = 0; i < actions && !::testing::Test::HasFailure(); ++i) {
      Train();
      if (sweep_->state() == SnapshotSweep::State::kIdle && rng_.Below(3) == 0) Cut();
      if (rng_.Below(40) == 0) sweep_->Abandon();
      if (rng_.Below(60) == 0 && sweep_->state() == SnapshotSweep::State::kSweeping) {
        sink_.fail = Unavailable("the disk is full");
      }
      for (uint64_t n = rng_.Below(12); n > 0; --n) sweep_->Step();
      Look();
    }
    sink_.refuse_percent = 0;
    for (int i = 0; i < 1000; ++i) sweep_->Step();
    Look();
    EXPECT_EQ(sweep_->state(), SnapshotSweep::State::kIdle);
    EXPECT_EQ(sweep_->copy_bytes(), 0u);
  }
  int full() const { return full_; }
  int increments() const { return increments_; }
  int over_limit() const { return over_limit_; }

 private:
  Key SomeKey(const Table& table) {
    if (table.shape().dense) return rng_.Below(table.shape().blocks());
    switch (rng_.Below(20)) {
      case 0:
        return 0;
      case 1:
        return ~Key{0};
      default:
        return rng_.Below(700) * 0x123456789ull;
    }
  }
  void Train() {
    for (Table* table : tables_.all) {
      std::set<Key> keys;
      for (uint64_t n = rng_.Below(60); n > 0; --n) keys.insert(SomeKey(*table));
      std::vector<float> gradients((keys.size() + 1) * table->shape().width);
      for (float& g : gradients) g = static_cast<float>(rng_.Unit()) - 0.5f;
      const std::vector<Key> list(keys.begin(), keys.end());
      table->Apply(list, gradients.data(), {1.0f, ++step_});
      if (table->shape().dense) continue;
      for (uint64_t n = rng_.Below(10); n > 0; --n) {
        const Key key = SomeKey(*table);
        table->Erase(key);
        if (rng_.Below(3) == 0 && !table->shape().frozen) table->Apply({&key, 1}, gradients.data(), {1.0f, step_});
      }
    }
  }
  void Cut() {
    full_cut_ = sweep_->NeedsFull() || rng_.Below(4) == 0;
    SnapshotOrder order;
    order.id = ++id_;
    oracle_ = RowsOf(tables_.all, partitions_);
    ShardRecord record;
    record.set_version(id_);
    sink_.begun = false;  // it may have been left alone after a failure
    const uint64_t limit = rng_.Below(5) == 0 ? 1 << 10 : kPlenty;
    ASSERT_TRUE(sweep_->Begin(order, record, full_cut_, &sink_, limit).ok());
  }
  void Look() {
    const std::optional<SnapshotResult> result = sweep_->TakeResult();
    if (!result.has_value()) return;
    EXPECT_EQ(result->id, id_);
    if (!result->status.ok()) {
      EXPECT_TRUE(sweep_->NeedsFull());
      EXPECT_TRUE(absl::IsResourceExhausted(result->status) || absl::IsUnavailable(result->status)) << result->status;
      over_limit_ += absl::IsResourceExhausted(result->status);
      return;
    }
    EXPECT_EQ(sweep_->base(), id_);
    EXPECT_EQ(sink_.record.version(), id_);
    ++(full_cut_ ? full_ : increments_);
    if (full_cut_) {
      EXPECT_TRUE(sink_.deleted.empty());
      state_.clear();
    }
    for (const StoredKey& key : sink_.deleted) state_.erase(key);
    for (const auto& [key, value] : sink_.puts) state_[key] = value;
    ASSERT_EQ(state_.size(), oracle_.size()) << "cut " << id_;
    ASSERT_TRUE(state_ == oracle_) << "cut " << id_;
    std::map<std::pair<TableId, PartitionId>, uint64_t> counts, wanted;
    for (const auto& [key, value] : oracle_) ++wanted[{key.table, key.partition}];
    for (const PartitionRows& rows : sink_.record.rows()) {
      counts[{static_cast<TableId>(rows.table()), rows.partition()}] = rows.rows();
    }
    EXPECT_EQ(counts, wanted);
  }

  SeededRandom rng_;
  const uint32_t partitions_;
  SweepTables tables_;
  FakeSink sink_;
  std::optional<SnapshotSweep> sweep_;
  uint64_t step_ = 0;
  uint64_t id_ = 0;
  bool full_cut_ = false;
  StoredRows oracle_;  // at the newest cut
  StoredRows state_;   // the cuts so far, one over the other
  int full_ = 0;
  int increments_ = 0;
  int over_limit_ = 0;
};

TEST(SnapshotSweep, CutsEqualTheRowsOfTheirMomentWhateverHappensBetween) {
  for (const std::string_view optimizer : OptimizerNames()) {
    int full = 0, increments = 0, over_limit = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(testing::Message() << optimizer << ", seed " << seed);
      RandomRun run(optimizer, seed);
      run.Go(400);
      full += run.full();
      increments += run.increments();
      over_limit += run.over_limit();
      if (HasFailure()) return;
    }
    EXPECT_GT(full, 50);
    EXPECT_GT(increments, 50);
    EXPECT_GT(over_limit, 5);
  }
}

// A table with `rows` rows, all of them touched, and what it takes to sweep it.
struct OneTable {
  OneTable(uint64_t rows, uint32_t width, uint32_t parts, bool increments = true, const char* optimizer = "sgd")
      : partitions(parts), sink(parts, 1) {
    tables.Add(SweepSpec("t", width, optimizer));
    tables.Track(partitions, increments);
    for (Key key = 0; key < rows; ++key) keys.push_back(key * 7);
    Touch(keys);
    sweep.emplace(tables.all);
  }
  Table& table() { return *tables.all[0]; }
  void Touch(const std::vector<Key>& some) {
    const std::vector<float> gradients(some.size() * table().shape().width, 0.25f);
    table().Apply(some, gradients.data(), {1.0f, ++step});
  }
  void Begin(bool full, uint64_t limit = kPlenty) {
    SnapshotOrder order;
    order.id = ++id;
    oracle = RowsOf(tables.all, partitions);
    ASSERT_TRUE(sweep->Begin(order, ShardRecord(), full, &sink, limit).ok());
  }
  absl::Status Finish() {
    for (int i = 0; i < 1'000'000; ++i) {
      sweep->Step();
      if (std::optional<SnapshotResult> result = sweep->TakeResult()) return result->status;
    }
    return DeadlineExceeded("no result after a million steps");
  }
  void Settle() {
    while (sweep->state() != SnapshotSweep::State::kIdle || sweep->Step()) sweep->Step();
  }

  uint32_t partitions;
  SweepTables tables;
  FakeSink sink;
  std::optional<SnapshotSweep> sweep;
  std::vector<Key> keys;
  StoredRows oracle;
  uint64_t step = 0;
  uint64_t id = 0;
};

TEST(SnapshotSweep, HandsOverLargeAndManyPartitions) {
  for (const uint32_t parts : {1u, 2u, 64u, 4096u, 1u << 17}) {
    SCOPED_TRACE(parts);
    OneTable one(60'000, 1, parts);
    one.Begin(true);
    ASSERT_TRUE(one.Finish().ok());
    EXPECT_TRUE(one.sink.puts == one.oracle);
    one.Touch({0, 7, 14});
    one.Begin(false);
    ASSERT_TRUE(one.Finish().ok());
    EXPECT_EQ(one.sink.puts.size(), 3u);
  }
}

TEST(SnapshotSweep, ASliceIsSmall) {
  for (const uint32_t parts : {1u, 4096u}) {
    SCOPED_TRACE(parts);
    OneTable one(20'000, 4, parts);
    const auto waiting = [&] {
      uint64_t rows = 0;
      const uint32_t seen = one.sweep->state() == SnapshotSweep::State::kIdle ? 0 : 1;
      one.table().store().ForEach([&](Key, RowRef row) { rows += row.counters(one.table().layout())->seen != seen; });
      return rows;
    };
    one.Begin(true);
    uint64_t before = waiting();
    ASSERT_EQ(before, 20'000u);
    int slices = 0;
    while (one.sweep->state() == SnapshotSweep::State::kSweeping) {
      one.sweep->Step();
      ++slices;
      const uint64_t after = waiting();
      EXPECT_LE(before - after, 2048u);
      before = after;
      ASSERT_LT(slices, 10'000);
    }
    EXPECT_EQ(before, 0u);
    EXPECT_GE(slices, 20'000 / 2048);
  }
}

TEST(SnapshotSweep, ARefusingSinkLosesNothing) {
  OneTable one(5'000, 4, 16);
  one.Begin(true);
  one.sink.refuse_all = true;
  for (int i = 0; i < 10; ++i) one.sweep->Step();
  EXPECT_FALSE(one.sweep->Step());
  EXPECT_EQ(one.sweep->state(), SnapshotSweep::State::kSweeping);
  one.Touch(one.keys);
  one.sink.refuse_all = false;
  ASSERT_TRUE(one.Finish().ok());
  EXPECT_TRUE(one.sink.puts == one.oracle);
}

TEST(SnapshotSweep, CopiesOverTheLimitEndTheCutAndNotTheTraining) {
  constexpr uint64_t kLimit = 256 << 10;
  OneTable one(20'000, 16, 64);
  one.Begin(true, kLimit);
  one.Touch(one.keys);  // 20'000 copies of 88 bytes
  EXPECT_LE(one.sweep->peak_copy_bytes(), kLimit);
  const absl::Status status = one.Finish();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("checkpoint 1"), HasSubstr("262144 bytes"), HasSubstr("raise checkpoint.copy_bytes")));
  EXPECT_EQ(one.sink.aborts, 1);
  EXPECT_TRUE(one.sweep->NeedsFull());
  one.Settle();
  EXPECT_EQ(one.sweep->copy_bytes(), 0u);
  one.Begin(true);
  one.Touch(one.keys);
  const uint64_t copies = one.keys.size() * (one.table().layout().bytes() + 16);
  EXPECT_GE(one.sweep->copy_bytes(), copies);
  EXPECT_LE(one.sweep->copy_bytes(), copies + 2 * kHugePage);
  ASSERT_TRUE(one.Finish().ok());
  EXPECT_TRUE(one.sink.puts == one.oracle);
  one.Settle();
  EXPECT_EQ(one.sweep->copy_bytes(), 0u);
}

TEST(SnapshotSweep, CopiesHandedOverMakeRoomForOthers) {
  OneTable one(5'000, 4, 16);
  one.Begin(true);
  one.Touch(one.keys);
  EXPECT_EQ(one.sweep->free_copy_bytes(), 0u);
  uint64_t free = 0;
  while (one.sweep->state() == SnapshotSweep::State::kSweeping) {
    one.sweep->Step();
    if (one.sweep->state() != SnapshotSweep::State::kSweeping) break;
    EXPECT_GE(one.sweep->free_copy_bytes(), free);
    EXPECT_LE(one.sweep->free_copy_bytes(), one.sweep->copy_bytes());
    free = one.sweep->free_copy_bytes();
  }
  EXPECT_GT(free, 0u);
  ASSERT_TRUE(one.Finish().ok());
  one.Settle();
  EXPECT_EQ(one.sweep->free_copy_bytes(), 0u);
}

TEST(SnapshotSweep, SaysWhatItCannotBegin) {
  OneTable one(10, 1, 4);
  SnapshotOrder order;
  order.id = 5;
  EXPECT_TRUE(absl::IsInvalidArgument(one.sweep->Begin(order, ShardRecord(), false, &one.sink, kPlenty)));
  one.Begin(true);
  EXPECT_TRUE(absl::IsUnavailable(one.sweep->Begin(order, ShardRecord(), true, &one.sink, kPlenty)));
  ASSERT_TRUE(one.Finish().ok());
  EXPECT_EQ(one.sweep->base(), 1u);
  one.sweep->Abandon();
  EXPECT_TRUE(one.sweep->NeedsFull());
  EXPECT_TRUE(absl::IsInvalidArgument(one.sweep->Begin(order, ShardRecord(), false, &one.sink, kPlenty)));
}

TEST(SnapshotSweep, WithoutIncrementsEveryCutIsFull) {
  OneTable one(3'000, 2, 8, false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(one.sweep->NeedsFull());
    one.Begin(true);
    one.sweep->Step();
    one.Touch({0, 7, 700, 5'000'000'000});
    one.table().Erase(14);
    ASSERT_TRUE(one.Finish().ok());
    EXPECT_TRUE(one.sink.puts == one.oracle);
    one.Touch({14});
  }
}

TEST(SnapshotSweep, ManyErasedKeysTakeSeveralChunks) {
  OneTable one(100'000, 1, 1);
  one.Begin(true);
  ASSERT_TRUE(one.Finish().ok());
  for (const Key key : one.keys) ASSERT_TRUE(one.table().Erase(key));
  one.Touch({7});
  one.Begin(false);
  ASSERT_TRUE(one.Finish().ok());
  EXPECT_EQ(one.sink.deleted.size(), 100'000u);
  EXPECT_EQ(one.sink.puts.size(), 1u);
  EXPECT_GE(one.sink.chunks, 2u);
}

TEST(SnapshotSweep, ARowLargerThanAChunkTravelsAlone) {
  OneTable one(3, kMaxTableWidth, 1, true, "adam");
  one.Begin(true);
  one.Touch({0, 7});
  ASSERT_TRUE(one.Finish().ok());
  EXPECT_TRUE(one.sink.puts == one.oracle);
  EXPECT_EQ(one.sink.chunks, 3u);
  EXPECT_GT(one.sink.largest_chunk, SnapshotSink::kMaxChunkBytes);
}

TEST(SnapshotSweep, AnEmptyShardMakesAnEmptyCut) {
  SnapshotSweep sweep({});
  FakeSink sink(4, 1);
  SnapshotOrder order;
  order.id = 1;
  ASSERT_TRUE(sweep.Begin(order, ShardRecord(), true, &sink, 0).ok());
  for (int i = 0; i < 4; ++i) sweep.Step();
  const std::optional<SnapshotResult> result = sweep.TakeResult();
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(result->status.ok());
  EXPECT_EQ(sink.chunks, 0u);
}

}  // namespace
}  // namespace capstan
