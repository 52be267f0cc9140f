// capstan-inspect merge and reshard: the same rows as a checkpoint of its own, the source untouched.
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "common/partition_map.h"
#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_reader.h"
#include "tests/tools/inspect_testing.h"

namespace capstan {
namespace {

using testing::BuildCheckpoint;
using testing::BuiltRow;
using testing::BuiltRows;
using testing::CheckpointSpec;
using ::testing::HasSubstr;
using testing::RunFolder;
using testing::Snapshot;
using testing::SomeCheckpoint;
using testing::ToolResult;

std::unique_ptr<CheckpointReader> OpenWhole(const std::string& folder) {
  auto reader = CheckpointReader::Open(PosixFileSystem(), folder, CheckpointReader::Verify::kFiles);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return nullptr;
  const absl::Status good = (*reader)->VerifyAll({});
  EXPECT_TRUE(good.ok()) << good;
  return *std::move(reader);
}

// With weights, slots and counters.
std::map<TableId, BuiltRows> AllRows(const CheckpointReader& reader) {
  std::map<TableId, BuiltRows> all;
  for (const TableSpec& table : reader.manifest().job().table()) {
    const auto id = static_cast<TableId>(table.id());
    const absl::Status read = reader.ForEach(id, 0, reader.partitions(), [&](const StoredRow& row) {
      all[id][row.key] = {{row.values, row.values + row.floats}, row.last_step, row.updates};
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok()) << read;
  }
  return all;
}

// What each partition has applied, as text; empty: no ledger.
std::vector<std::string> LedgerOfEachPartition(const CheckpointReader& reader) {
  std::vector<std::string> ledgers(reader.partitions());
  for (size_t i = 0; i < reader.shards(); ++i) {
    for (const LedgerRecord& ledger : reader.shard(i).ledger()) {
      LedgerRecord content = ledger;
      content.clear_partitions();
      for (const PartitionRun& run : ledger.partitions()) {
        for (uint32_t p = run.first(); p < run.first() + run.count(); ++p) {
          EXPECT_EQ(ledgers[p], "") << "two ledgers of partition " << p;
          ledgers[p] = content.ShortDebugString();
        }
      }
    }
  }
  return ledgers;
}

CheckpointSpec AsyncCheckpoint() {
  CheckpointSpec spec = SomeCheckpoint(3, 200, 2);
  spec.model_sha256 = true;
  spec.edit_shard = [](uint32_t shard, ShardRecord* record) {
    record->set_version(300 + shard);
    record->set_highest_clock(70 + 5 * shard);
    record->set_optimizer_clock(69);
    if (shard == 0) record->mutable_totals()->set_examples(19200);
    // Two ledgers a shard: partitions that moved there from elsewhere have another past.
    const uint32_t first = record->owned(0).first(), half = record->owned(0).count() / 2;
    for (uint32_t part = 0; part < 2; ++part) {
      LedgerRecord* ledger = record->add_ledger();
      ledger->add_partitions()->set_first(first + part * half);
      ledger->mutable_partitions(0)->set_count(half);
      ledger->set_closed_below(10 * shard + part + 1);
      ledger->add_closed(40 + part);
      AppliedLease* applied = ledger->add_applied();
      applied->set_lease(41 + part);
      applied->add_index(3 + shard);
    }
  };
  spec.edit_manifest = [](CheckpointManifest* manifest) {
    manifest->mutable_job()->mutable_config()->set_consistency("async");
    manifest->mutable_leases()->set_closed_below(30);
    manifest->add_lineage(0x1234);
  };
  return spec;
}

// Everything but where the rows lie.
void ExpectSame(const CheckpointReader& made, const CheckpointReader& source) {
  EXPECT_EQ(AllRows(made), AllRows(source));
  EXPECT_EQ(made.ComputeModelSha256().value_or("a"), source.ComputeModelSha256().value_or("b"));
  EXPECT_EQ(made.manifest().model_sha256(), source.manifest().model_sha256());
  EXPECT_EQ(LedgerOfEachPartition(made), LedgerOfEachPartition(source));
  CheckpointManifest a = made.manifest(), b = source.manifest();
  for (CheckpointManifest* manifest : {&a, &b}) {
    manifest->clear_file();
    manifest->clear_kind();
    manifest->clear_parent();
  }
  EXPECT_EQ(a.ShortDebugString(), b.ShortDebugString());
  EXPECT_EQ(made.manifest().kind(), CheckpointManifest::FULL);
  EXPECT_FALSE(made.manifest().has_parent());
  uint64_t clock_made = 0, clock_source = 0, totals = 0;
  for (size_t i = 0; i < source.shards(); ++i)
    clock_source = std::max(clock_source, source.shard(i).highest_clock());
  for (size_t i = 0; i < made.shards(); ++i) {
    clock_made = std::max(clock_made, made.shard(i).highest_clock());
    EXPECT_EQ(made.shard(i).layer_size(), 1);
    totals += made.shard(i).has_totals() ? 1 : 0;
  }
  EXPECT_EQ(clock_made, clock_source);
  EXPECT_EQ(totals, 1u) << "the job's totals are kept once, at the home shard";
  EXPECT_EQ(made.shard(0).totals().examples(), 19200u);
}

TEST(InspectMerge, MakesAChainOneLayerWithTheSameBits) {
  RunFolder run;
  const CheckpointSpec spec = AsyncCheckpoint();
  const std::string folder = BuildCheckpoint(spec, run.path() + "/built");
  const auto before = Snapshot(run.path() + "/built");
  const ToolResult result = run.Run("merge built/C000003 --out=deep/er/merged/");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto source = OpenWhole(folder), made = OpenWhole(run.path() + "/deep/er/merged");
  ASSERT_TRUE(source != nullptr && made != nullptr);
  ExpectSame(*made, *source);
  EXPECT_EQ(AllRows(*made), LiveRows(spec));
  EXPECT_EQ(made->shards(), 2u);
  EXPECT_EQ(Snapshot(run.path() + "/built"), before);
  EXPECT_EQ(*PosixFileSystem().List(run.path() + "/deep/er"), std::vector<std::string>{"merged"});
  EXPECT_EQ(run.Run("diff built/C000003 deep/er/merged").code, 0);
  // A copy stands alone: nothing in it is a second name of a file of the source.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.path() + "/deep/er/merged")) {
    if (entry.is_regular_file()) {
      EXPECT_EQ(entry.hard_link_count(), 1u) << entry.path();
    }
  }
}

TEST(InspectReshard, SpreadsTheRowsAndTheirLedgers) {
  RunFolder run;
  const CheckpointSpec spec = AsyncCheckpoint();
  const std::string folder = BuildCheckpoint(spec, run.path() + "/built");
  const auto before = Snapshot(run.path() + "/built");
  for (const uint32_t shards : {1u, 2u, 3u, 5u, 16u}) {
    SCOPED_TRACE(shards);
    const ToolResult result = run.Run(fmt::format("reshard built/C000003 --shards={0} --out=of{0}", shards));
    ASSERT_EQ(result.code, 0) << result.err;
    const auto source = OpenWhole(folder), made = OpenWhole(run.path() + fmt::format("/of{}", shards));
    ASSERT_TRUE(source != nullptr && made != nullptr);
    ASSERT_EQ(made->shards(), shards);
    ExpectSame(*made, *source);
    const ShardMap map = *ShardMap::Even(16, shards);
    for (size_t i = 0; i < shards; ++i) {
      for (const PartitionRun& owned : made->shard(i).owned()) {
        for (PartitionId p = owned.first(); p < owned.first() + owned.count(); ++p)
          EXPECT_EQ(map.OwnerOfPartition(p), i);
      }
    }
  }
  EXPECT_EQ(Snapshot(run.path() + "/built"), before);
  EXPECT_EQ(run.Run("diff of5 built/C000003").code, 0);
}

// From one shard to more and back: a shard without a single row is a shard too.
TEST(InspectReshard, WorksOnAlmostNothing) {
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(1, 2, 1);
  spec.edit_shard = [](uint32_t, ShardRecord* record) { record->mutable_totals()->set_examples(19200); };
  const std::string folder = BuildCheckpoint(spec, run.path() + "/built");
  ASSERT_EQ(run.Run("reshard built/C000001 --shards=16 --out=wide").code, 0);
  ASSERT_EQ(run.Run("reshard wide --shards=1 --out=back").code, 0);
  const auto source = OpenWhole(folder), back = OpenWhole(run.path() + "/back");
  ASSERT_TRUE(source != nullptr && back != nullptr);
  ExpectSame(*back, *source);
}

struct RefusedRewrite {
  const char* arguments;
  int code;
  const char* says;
};
constexpr RefusedRewrite kRefusedRewrites[] = {
    {"merge runs/adult", 2, "--out=FOLDER is missing"},
    {"merge runs/adult --out=/", 2, "is there already"},
    {"merge runs/adult --out=runs", 2, "'runs' is there already"},
    {"merge runs/adult --out=taken", 2, "'taken' is there already"},
    {"merge runs/nobody --out=new", 4, "runs/nobody"},
    {"merge runs/adult --out=taken/new", 4, "taken"},
    {"merge runs/adult --out=runs/adult/checkpoints/C000002/new", 2, "inside"},
    {"merge runs/adult --out=runs/adult/checkpoints/C000003", 2, "inside"},
    {"reshard runs/adult --shards=2 --out=link/new", 2, "inside"},
    {"reshard runs/adult --out=new", 2, "--shards=N is missing"},
    {"reshard runs/adult --shards=0 --out=new", 2, "--shards=0"},
    {"reshard runs/adult --shards=17 --out=new", 2, "--shards=17"},
    {"reshard runs/adult --shards=x --out=new", 2, "--shards=x"},
    {"reshard runs/adult --shards=4", 2, "--out=FOLDER is missing"},
};

TEST(InspectRewrite, SaysWhatIsRefusedAndLeavesNothing) {
  const RunFolder run;
  std::ofstream(run.path() + "/taken") << "a file";
  std::filesystem::create_directory_symlink(run.root() + "/C000002", run.path() + "/link");
  const auto before = Snapshot(run.path());
  for (const RefusedRewrite& c : kRefusedRewrites) {
    const ToolResult result = run.Run(c.arguments);
    EXPECT_EQ(result.code, c.code) << c.arguments << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(result.out, "") << c.arguments;
  }
  EXPECT_EQ(Snapshot(run.path()), before);
}

TEST(InspectRewrite, DamageAndAFullDiskLeaveNothing) {
  const RunFolder run;
  const std::string file = run.root() + "/C000002/shard-0001/C000001-0000.sst";
  const std::string good = *ReadWholeFile(PosixFileSystem(), file, uint64_t{64} << 20);
  std::string bad = good;
  bad[40] = static_cast<char>(bad[40] ^ 1);
  testing::OverwriteFile(file, bad);
  const std::string commands[] = {"merge runs/adult/checkpoints/C000002 --out=new",
                                  "reshard runs/adult/checkpoints/C000002 --shards=3 --out=new"};
  auto before = Snapshot(run.path());
  for (const std::string& command : commands) {
    const ToolResult result = run.Run(command);
    EXPECT_EQ(result.code, 4) << command;
    EXPECT_THAT(result.err, HasSubstr("C000001-0000.sst")) << command;
    EXPECT_EQ(result.out, "") << command;
  }
  EXPECT_EQ(Snapshot(run.path()), before);
  testing::OverwriteFile(file, good);
  before = Snapshot(run.path());
  for (const std::string& command : commands) {
    const ToolResult result = run.RunWith("trap '' XFSZ; ulimit -f 1;", command);
    EXPECT_EQ(result.code, 4) << command;
    EXPECT_THAT(result.err, HasSubstr("new")) << command;
  }
  EXPECT_EQ(Snapshot(run.path()), before);
}

// Folders above --out that were made for it are gone again after an error.
TEST(InspectRewrite, AFullDiskLeavesNoFolderAbove) {
  const RunFolder run;
  const auto before = Snapshot(run.path());
  for (const std::string command : {"merge runs/adult --out=a/b/new", "reshard runs/adult --shards=3 --out=a/b/new"}) {
    const ToolResult result = run.RunWith("trap '' XFSZ; ulimit -f 1;", command);
    EXPECT_EQ(result.code, 4) << command;
  }
  EXPECT_EQ(Snapshot(run.path()), before);
}

}  // namespace
}  // namespace capstan
