// Sixteen ranks push asynchronously, +1 to the same keys of two tables, while checkpoints are taken at moments that
// differ from shard to shard. What each checkpoint holds is what its own record of applied batches says, the two tables
// agree, and a restore onto another number of shards ends with exact totals.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/random.h"
#include "proto/checkpoint.pb.h"
#include "ps/shard_cut.h"
#include "ps/shard_state.h"
#include "ps/table.h"
#include "scheduler/restore_plan.h"
#include "storage/checkpoint_reader.h"
#include "tests/support/core_testing.h"
#include "tests/support/fake_snapshot.h"

namespace capstan {
namespace {

constexpr uint32_t kRanks = 16, kEpochs = 2, kLeaseBatches = 3, kBatchRows = 1;
constexpr uint64_t kKeys = 50;

EffectiveJob PushersJob() {
  testing::JobOptions options;
  options.consistency = "async";
  options.ranks = kRanks;
  options.epochs = kEpochs;
  options.batch = kBatchRows;
  options.lease_batches = kLeaseBatches;
  options.split_rows = {40, 70, 25, 60};
  EffectiveJob job = testing::SmallJob(options);
  job.mutable_table(1)->set_width(1);
  job.mutable_table(1)->set_reduction(TableSpec::SUM);
  job.mutable_config()->mutable_checkpoint()->set_full_every(3);
  return job;
}

BatchPlan PushersPlan(const EffectiveJob& job) {
  std::vector<uint32_t> rows;
  for (const DataPlan::Split& split : job.plan().split()) rows.push_back(split.rows());
  return BatchPlan(job.config().seed(), std::move(rows), kBatchRows);
}

// The keys that a batch adds 1 to: the same in every epoch's repeat of it, and in both tables.
std::set<Key> KeysOfBatch(uint32_t split, uint32_t index) {
  std::set<Key> keys;
  for (uint64_t i = 0; i < 6; ++i) keys.insert(CounterHash(5, split, index, i) % kKeys);
  return keys;
}

class Pushers {
 public:
  // An origin that is not the default: what a checkpoint has done already.
  Pushers(uint64_t seed, FileSystem& disk, uint32_t shards, const std::string& from)
      : random_(seed), disk_(disk), job_(PushersJob()), map_(*ShardMap::Even(8, shards)) {
    LeaseTable::Origin origin;
    std::unique_ptr<RowSource> source;
    if (!from.empty()) {
      source = *testing::FakeRowSources(disk)(from);
      const std::vector<const ShardRecord*> records = source->records();
      origin = ClosedLeases(records, PushersPlan(job_), kEpochs, kLeaseBatches, 0, 1);
    }
    leases_ = std::make_unique<LeaseTable>(PushersPlan(job_), kEpochs, kLeaseBatches, origin);
    for (ShardId i = 0; i < shards; ++i) AddShard(i, source.get());
    ranks_.resize(kRanks);
  }

  // Returns the folders of the checkpoints that became whole. stop_after: pushes, 0: until all is done.
  std::vector<std::string> Run(uint64_t stop_after, uint64_t* next_id) {
    std::vector<std::string> whole;
    for (uint64_t turn = 0; stop_after == 0 || turn < stop_after; ++turn) {
      if (leases_->AllClosed()) break;
      PushOne();
      if (random_.Below(40) == 0) CloseLeases();
      if (cut_ == 0 && random_.Below(60) == 0) BeginCut((*next_id)++);
      if (cut_ != 0) GoOnCutting(&whole);
    }
    return whole;
  }

  std::map<Key, float> Totals(TableId table) {
    std::map<Key, float> totals;
    for (const auto& shard : shards_) {
      shard->state->tables().table(table).store().ForEach([&](Key key, RowRef row) { totals[key] += row.weights()[0]; });
    }
    return totals;
  }
  uint64_t Examples() const { return shards_[0]->state->totals().examples; }

 private:
  struct Shard {
    std::unique_ptr<ShardState> state;
    std::unique_ptr<testing::FakeSnapshotSink> sink;
    std::unique_ptr<ShardCut> cut;
    bool ordered = false;
  };
  struct RankAtWork {
    Lease lease;
    uint32_t next = 0;
    std::vector<ShardId> missing;  // shards that lack the batch under way
    uint64_t sequence = 0;
    bool idle = true, over = false;
  };

  void AddShard(ShardId id, RowSource* source) {
    auto shard = std::make_unique<Shard>();
    ShardSettings settings;
    settings.consistency = *ParseConsistency("async");
    settings.ranks = kRanks;
    settings.epochs = kEpochs;
    settings.lease_batches = kLeaseBatches;
    settings.home = id == 0;
    settings.terms.assign(kRanks, 1);
    settings.map = map_;
    settings.shard = id;
    shard->state = std::make_unique<ShardState>(std::move(settings), *ShardTables::Make(job_, map_, id));
    if (source != nullptr) {
      Restore order;
      for (const uint32_t table : {0u, 1u}) {
        order.add_import()->set_from(table);
        order.mutable_import(static_cast<int>(table))->set_to(table);
      }
      EXPECT_EQ(shard->state->mutable_tables().Import(order, *source, nullptr), absl::OkStatus());
      EXPECT_EQ(shard->state->Restore(source->records(), 0), absl::OkStatus());
    }
    shard->state->mutable_tables().Track(/*increments=*/true);
    testing::FakeSnapshotOptions options;
    options.seed = random_.Next();
    options.refuse = 0.3;
    options.delay_polls = 2;
    shard->sink = std::make_unique<testing::FakeSnapshotSink>(disk_, options);
    shard->cut = std::make_unique<ShardCut>(fmt::format("shard-{}", id), shard->sink.get(), disk_);
    shards_.push_back(std::move(shard));
  }

  // One message of one rank: its batch reaches one more shard, in any order of shards.
  void PushOne() {
    RankAtWork& rank = ranks_[random_.Below(kRanks)];
    const auto number = static_cast<Rank>(&rank - ranks_.data());
    if (rank.over) return;
    if (rank.idle) {
      const auto grant = leases_->Request(number, ++rank.sequence);
      rank.over = grant->no_more;
      if (rank.over) return;
      rank.lease = grant->lease;
      rank.next = 0;
      rank.idle = false;
    }
    if (rank.missing.empty()) {
      for (ShardId i = 0; i < shards_.size(); ++i) rank.missing.push_back(i);
    }
    const size_t at = random_.Below(rank.missing.size());
    const ShardId to = rank.missing[at];
    rank.missing.erase(rank.missing.begin() + static_cast<ptrdiff_t>(at));
    for (uint64_t times = 1 + random_.Below(2); times > 0; --times) Deliver(number, rank, to);  // now and then twice
    if (!rank.missing.empty()) return;
    if (++rank.next < rank.lease.count) return;
    EXPECT_TRUE(leases_->Done(number, rank.lease.id));
    rank.idle = true;
  }

  void Deliver(Rank number, const RankAtWork& rank, ShardId to) {
    PushRecord push;
    push.rank = number;
    push.lease = rank.lease.id;
    push.info = testing::Info(1, 1);
    push.info.epoch = rank.lease.epoch;
    push.info.split = rank.lease.split;
    push.info.index = rank.lease.first + rank.next;
    testing::TableRows rows;
    for (const Key key : KeysOfBatch(push.info.split, push.info.index)) {
      if (map_.OwnerOf(key) != to) continue;
      rows.keys.push_back(key);
      rows.values.push_back(-1);
    }
    testing::TableRows same = rows;
    same.table = 1;
    const Message message = testing::PushFrame(number, 0, 1, push.info, {rows, same});
    push.parts.push_back(*ParseBody(message.header.sections, message.body));
    Shard& shard = *shards_[to];
    if (!shard.state->ShouldApply(push)) return;
    ASSERT_TRUE(shard.state->HasRoomFor(push));
    shard.state->Apply(OpApplyPush{std::move(push)});
  }

  void CloseLeases() {
    const std::set<LeaseId>& above = leases_->closed_above();
    shards_[random_.Below(shards_.size())]->state->Apply(
        OpCloseLeases{leases_->closed_below(), {above.begin(), above.end()}});
  }

  void BeginCut(uint64_t id) {
    cut_ = id;
    for (const auto& shard : shards_) shard->ordered = false;
  }

  std::string FolderOf(uint64_t id) const { return fmt::format("cuts/C{:06}", id); }

  void GoOnCutting(std::vector<std::string>* whole) {
    size_t written = 0;
    for (ShardId i = 0; i < shards_.size(); ++i) {
      Shard& shard = *shards_[i];
      if (!shard.ordered && random_.Below(8) == 0) {
        Cut order;
        order.set_id(cut_);
        order.set_now(true);
        order.set_folder(FolderOf(cut_) + "/" + ShardFolderName(i));
        if (last_whole_ != 0 && cut_ % 3 != 0) {
          order.set_parent(last_whole_);
          order.set_parent_folder(FolderOf(last_whole_) + "/" + ShardFolderName(i));
        }
        shard.cut->OnOrder(order, *shard.state, 0);
        shard.ordered = true;
      }
      if (shard.ordered && random_.Below(2) == 0) shard.cut->Work(*shard.state);
      const CutState state = shard.cut->Report();
      ASSERT_NE(state.state(), CutState::FAILED) << state.error();
      written += shard.ordered && state.id() == cut_ && state.state() == CutState::WRITTEN ? 1 : 0;
    }
    if (written < shards_.size()) return;
    whole->push_back(FolderOf(cut_));
    last_whole_ = cut_;
    cut_ = 0;
  }

  SeededRandom random_;
  FileSystem& disk_;
  const EffectiveJob job_;
  const ShardMap map_;
  std::unique_ptr<LeaseTable> leases_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<RankAtWork> ranks_;
  uint64_t cut_ = 0, last_whole_ = 0;
};

std::map<Key, float> RowsOfCheckpoint(const RowSource& source, TableId table) {
  std::map<Key, float> rows;
  EXPECT_EQ(source.ForEach(table, 0, 8, [&rows](const StoredRow& row) {
    rows[row.key] = row.values[0];
    return absl::OkStatus();
  }), absl::OkStatus());
  return rows;
}

// What the records say each partition has applied.
std::map<Key, float> RowsByTheRecords(const RowSource& source) {
  const BatchPlan plan = PushersPlan(PushersJob());
  std::map<Key, float> rows;
  for (const ShardRecord* record : source.records()) {
    for (const LedgerRecord& ledger : record->ledger()) {
      std::set<PartitionId> owned;
      for (const PartitionRun& run : ledger.partitions()) {
        for (uint32_t i = 0; i < run.count(); ++i) owned.insert(run.first() + i);
      }
      const std::set<uint64_t> closed(ledger.closed().begin(), ledger.closed().end());
      std::map<uint64_t, std::set<uint32_t>> applied;
      for (const AppliedLease& lease : ledger.applied()) applied[lease.lease()].insert(lease.index().begin(), lease.index().end());
      LeaseId next = 1;
      for (uint32_t epoch = 0; epoch < kEpochs; ++epoch) {
        for (const Lease& lease : plan.Leases(epoch, kLeaseBatches, next)) {
          next = lease.id + 1;
          const bool done = lease.id < ledger.closed_below() || closed.count(lease.id) > 0;
          for (uint32_t i = lease.first; i < lease.first + lease.count; ++i) {
            if (!done && applied[lease.id].count(i) == 0) continue;
            for (const Key key : KeysOfBatch(lease.split, i)) {
              if (owned.count(PartitionOf(key, 8)) > 0) rows[key] += 1;
            }
          }
        }
      }
    }
  }
  return rows;
}

TEST(AsyncCuts, SixteenPushersOfTwoTables) {
  std::map<Key, float> expected;
  const BatchPlan plan = PushersPlan(PushersJob());
  uint64_t batches = 0;
  for (uint32_t split = 0; split < plan.splits(); ++split) {
    for (uint32_t i = 0; i < plan.BatchesOfSplit(split); ++i, batches += kEpochs) {
      for (const Key key : KeysOfBatch(split, i)) expected[key] += kEpochs;
    }
  }
  uint64_t checkpoints = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
    uint64_t next_id = 1;
    std::string from;
    const uint32_t shards[] = {2, 1 + static_cast<uint32_t>(seed % 4), 3, 1};
    for (int life = 0; life < 4; ++life) {
      Pushers pushers(seed * 10 + life, *disk, shards[life], from);
      const bool last = life == 3;
      const std::vector<std::string> whole = pushers.Run(last ? 0 : 300 + seed * 13, &next_id);
      for (const std::string& folder : whole) {
        const std::unique_ptr<RowSource> source = *testing::FakeRowSources(*disk)(folder);
        const std::map<Key, float> rows = RowsOfCheckpoint(*source, 0);
        EXPECT_EQ(rows, RowsOfCheckpoint(*source, 1)) << folder << ": the tables differ";
        EXPECT_EQ(rows, RowsByTheRecords(*source)) << folder << ": other batches than the records say";
        from = folder;
        ++checkpoints;
      }
      if (!last) continue;
      EXPECT_EQ(pushers.Totals(0), expected);
      EXPECT_EQ(pushers.Totals(1), expected);
      EXPECT_EQ(pushers.Examples(), batches);
    }
  }
  EXPECT_GT(checkpoints, 200u);
}

}  // namespace
}  // namespace capstan
