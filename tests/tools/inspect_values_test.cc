// What capstan-inspect says about rows, against the maps that the checkpoint was made of.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "common/partition_map.h"
#include "data/schema.h"
#include "ps/optimizer.h"
#include "ps/table.h"
#include "storage/checkpoint_root.h"
#include "tests/tools/inspect_testing.h"
#include "tools/inspect/opened.h"

namespace capstan {
namespace {

using nlohmann::json;
using testing::BuiltRow;
using testing::BuiltRows;
using testing::CheckpointSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LiveRows;
using ::testing::Not;
using testing::RunFolder;
using testing::ToolResult;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

json TableOf(const json& tables, const std::string& name) {
  for (const json& table : tables) {
    if (table.value("table", table.value("name", "")) == name) return table;
  }
  ADD_FAILURE() << "no table " << name << " in " << tables;
  return json::object();
}

const TableSpec& SpecOf(const RunFolder& run, const std::string& name) {
  for (const TableSpec& table : run.job().table()) {
    if (table.name() == name) return table;
  }
  ADD_FAILURE() << name;
  return run.job().table(0);
}

double Norm(const BuiltRow& row, uint32_t width) {
  double squares = 0;
  for (uint32_t i = 0; i < width; ++i) squares += double{row.values[i]} * row.values[i];
  return std::sqrt(squares);
}

// runs/other: one checkpoint made of `spec`.
void BuildOther(const RunFolder& run, const CheckpointSpec& spec) {
  const std::string root = run.path() + "/runs/other";
  ASSERT_TRUE(PosixFileSystem().MakeFolders(root).ok());
  ASSERT_TRUE(CheckpointRoot::Open(PosixFileSystem(), root).ok());
  testing::BuildCheckpoint(spec, root);
}

void FlipByte(const std::string& path, uint64_t at) {
  std::string text = *ReadWholeFile(PosixFileSystem(), path, uint64_t{64} << 20);
  text[at] = static_cast<char>(text[at] ^ 1);
  ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), path, text).ok());
}

uint64_t Sum(const json& bins) {
  uint64_t rows = 0;
  for (const json& bin : bins) rows += bin["rows"].get<uint64_t>();
  return rows;
}

TEST(InspectLs, SaysWhatEachCheckpointIsOrWhatIsWrongWithIt) {
  const RunFolder run;
  const json good = run.Run("ls runs/adult --json").json();
  ASSERT_EQ(good.size(), 2u);
  EXPECT_EQ(good[0]["id"], 1);
  EXPECT_EQ(good[0]["full"], true);
  EXPECT_EQ(good[0]["step"], 100);
  EXPECT_EQ(good[1]["full"], false);
  EXPECT_EQ(good[1]["layers"], 2);
  EXPECT_EQ(good[1]["examples"], 12800);
  uint64_t rows = 0;
  for (const auto& [table, live] : LiveRows(run.spec(2))) rows += live.size();
  EXPECT_EQ(good[1]["rows"], rows);
  EXPECT_LT(good[1]["new_bytes"].get<uint64_t>(), good[0]["new_bytes"].get<uint64_t>());
  EXPECT_GT(good[1]["bytes"].get<uint64_t>(), good[1]["new_bytes"].get<uint64_t>());
  EXPECT_EQ(run.Run("ls runs/adult/checkpoints --json").json(), good);
  EXPECT_EQ(run.Run("ls runs/adult/checkpoints/C000001 --json").json().size(), 1u);

  std::filesystem::resize_file(run.root() + "/C000001/shard-0001/C000001-0000.sst", 100);
  std::filesystem::create_directories(run.root() + "/C000003.tmp/shard-0000");
  const json bad = run.Run("ls runs/adult --json").json();
  ASSERT_EQ(bad.size(), 3u);
  EXPECT_EQ(bad[0]["good"], false);
  EXPECT_THAT(bad[0]["wrong"].get<std::string>(), HasSubstr("shard-0001/C000001-0000.sst"));
  EXPECT_EQ(bad[1], good[1]);
  EXPECT_EQ(bad[2]["name"], "C000003.tmp");
  EXPECT_THAT(bad[2]["wrong"].get<std::string>(), HasSubstr("incomplete"));
  EXPECT_THAT(run.Run("ls runs/adult").out, HasSubstr("C000003.tmp  not usable: incomplete"));
}

TEST(InspectShow, SaysWhatTheManifestAndTheRecordsSay) {
  const RunFolder run;
  const json show = run.Run("show runs/adult --json").json();
  EXPECT_EQ(show["id"], 2);
  EXPECT_EQ(show["kind"], "incremental");
  EXPECT_EQ(show["parent"], 1);
  EXPECT_EQ(show["step"], 200);
  EXPECT_EQ(show["position"]["steps_into_epoch"], 140);
  EXPECT_THAT(show["lineage"], ElementsAre("0000000000001234"));
  EXPECT_EQ(show["seed"], 1);
  EXPECT_EQ(show["shards"].size(), 2u);
  EXPECT_EQ(show["shards"][0]["files"][1]["name"], "shard-0000/C000002-0000.sst");
  EXPECT_EQ(show["shards"][0]["files"][1]["written_by"], 2);
  const json embedding = TableOf(show["tables"], "embedding");
  EXPECT_EQ(embedding["kind"], "sparse");
  EXPECT_EQ(embedding["width"], 8);
  EXPECT_EQ(embedding["slots"], 16);
  EXPECT_EQ(embedding["optimizer"], "adam");
  EXPECT_EQ(embedding["bytes_per_row"], 14 + 24 * 4 + 8);
  const uint64_t rows = LiveRows(run.spec(2))[static_cast<TableId>(SpecOf(run, "embedding").id())].size();
  EXPECT_EQ(embedding["rows"], rows);
  EXPECT_EQ(embedding["bytes"], rows * (14 + 24 * 4 + 8));
  EXPECT_EQ(TableOf(show["tables"], "numeric")["rows"], 0);
  EXPECT_EQ(show["features"].size(), 19u);
  EXPECT_EQ(show["features"][0]["mean"], 45.0);  // of 39, 50, 38 and 53
  EXPECT_EQ(show["features"][1]["normalize"], "LOG1P_STANDARDIZE");
  EXPECT_EQ(show["features"][12]["name"], "education");
  EXPECT_EQ(show["features"][12]["salt"], "education");
  const std::string text = run.Run("show runs/adult").out;
  EXPECT_THAT(text, HasSubstr("epoch 1, epochs 6, examples 12800, steps into epoch 140, job done false\n"));
  for (const char* const part : {"embedding", "incremental", "education", "shard-0001/C000002-0000.sst", "12800"})
    EXPECT_THAT(text, HasSubstr(part));
}

// The second checkpoint with rows that statistics must not trip over.
CheckpointSpec WithOddRows(const RunFolder& run, TableId table) {
  CheckpointSpec spec = run.spec(2);
  BuiltRows& rows = spec.layers.back().puts[table];
  rows[1] = {std::vector<float>(24, 0.0f), 200, 3};
  rows[2] = {std::vector<float>(24, 1.0f), 201, 77777};  // a step ahead of its rank's clock
  rows[2].values[3] = kNaN;
  rows[2].values[20] = std::numeric_limits<float>::infinity();
  rows[3] = {std::vector<float>(24, kNaN), 0, 0};
  rows[4] = {std::vector<float>(24, 1e30f), 136, 1};
  spec.edit_shard = [](uint32_t, ShardRecord* record) { record->set_optimizer_clock(200); };
  return spec;
}

TEST(InspectStat, AnAsyncJobsAgesCountFromTheRankThatIsFurthest) {
  const RunFolder run;
  CheckpointSpec spec = run.spec(1);
  const auto edit = spec.edit_manifest;
  spec.edit_manifest = [edit](CheckpointManifest* manifest) {
    edit(manifest);
    manifest->mutable_job()->mutable_config()->set_consistency("async");
    manifest->set_version(4000);  // the batches of all ranks
  };
  spec.edit_shard = [](uint32_t shard, ShardRecord* record) { record->set_highest_clock(shard == 0 ? 990 : 1124); };
  spec.layers[0].puts[0] = {{7, {{0.5f, 0, 0}, 100, 1}}};
  BuildOther(run, spec);
  const json ages = run.Run("stat runs/other --table=wide --json").json()[0]["ages"];
  ASSERT_EQ(ages.size(), 1u);
  EXPECT_EQ(ages[0]["from"], 1024);
}

TEST(InspectStat, CountsWhatThereIs) {
  const RunFolder run;
  const auto id = static_cast<TableId>(SpecOf(run, "embedding").id());
  const CheckpointSpec spec = WithOddRows(run, id);
  BuildOther(run, spec);
  const BuiltRows live = LiveRows(spec)[id];
  const json stats = run.Run("stat runs/other --table='emb.*' --top=3 --json").json();
  ASSERT_EQ(stats.size(), 1u);
  const json& stat = stats[0];
  uint64_t updates = 0, nonfinite = 0, weights = 0;
  double least = INFINITY, most = -INFINITY, sum = 0;
  std::map<double, uint64_t> ages;  // by the lower end of their bin
  for (const auto& [key, row] : live) {
    updates += row.updates;
    for (size_t i = 0; i < row.values.size(); ++i) {
      const double value = row.values[i];
      nonfinite += std::isfinite(value) ? 0 : 1;
      if (i >= 8 || !std::isfinite(value)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      ++weights;
    }
    const int age = row.updates == 0 ? 0 : std::max(0, 200 - static_cast<int>(row.last_step));
    ++ages[age == 0 ? 0 : std::exp2(std::floor(std::log2(age)))];
  }
  EXPECT_EQ(stat["rows"], live.size());
  EXPECT_EQ(stat["zero_rows"], 1);
  EXPECT_EQ(stat["nonfinite_rows"], 2);
  EXPECT_EQ(stat["nonfinite_values"], nonfinite);
  EXPECT_EQ(nonfinite, 26u);
  EXPECT_EQ(stat["updates"], updates);
  EXPECT_EQ(stat["min"], least);
  EXPECT_EQ(stat["max"], most);
  EXPECT_DOUBLE_EQ(stat["mean"].get<double>(), sum / static_cast<double>(weights));
  for (const char* const histogram : {"norms", "update_counts", "ages"}) EXPECT_EQ(Sum(stat[histogram]), live.size());
  for (const json& bin : stat["ages"]) EXPECT_EQ(bin["rows"], ages[bin["from"].get<double>()]) << bin;
  ASSERT_EQ(stat["top"].size(), 3u);
  EXPECT_EQ(stat["top"][0]["key"], 4);
  EXPECT_DOUBLE_EQ(stat["top"][0]["norm"].get<double>(), Norm(live.at(4), 8));
  const json by_count = run.Run("stat runs/other --table=embedding --top=1 --by=count --json").json();
  EXPECT_EQ(by_count[0]["top"][0]["key"], 2);
  EXPECT_EQ(by_count[0]["top"][0]["count"], 77777);
  const ToolResult text = run.Run("stat runs/other");
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr(fmt::format("embedding: {} rows, 1 of them zero, 26 values not finite (in 2 rows)",
                                              live.size())));
  EXPECT_THAT(text.out, HasSubstr("numeric: 0 rows"));
}

void ExpectFloats(const json& seen, const std::vector<float>& values, size_t first, size_t count) {
  EXPECT_EQ(seen.get<std::vector<float>>(), std::vector<float>(values.begin() + static_cast<ptrdiff_t>(first),
                                                               values.begin() + static_cast<ptrdiff_t>(first + count)));
}

// What the rules of ps/ keep in a row, and the names that inspection has for it.
TEST(InspectGet, EverySlotOfEveryOptimizerHasAName) {
  for (const std::string_view name : OptimizerNames()) {
    SCOPED_TRACE(name);
    TableSpec table;
    table.set_width(6);
    table.mutable_optimizer()->set_name(std::string(name));
    const auto optimizer = MakeOptimizer(table.optimizer());
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    const uint32_t slots = (*optimizer)->SlotFloats(table.width());
    uint32_t named = 0;
    for (const NamedSlot& slot : SlotNames(table, slots)) {
      EXPECT_NE(slot.name, "slots");
      named += slot.floats;
    }
    EXPECT_EQ(named, slots);
    ASSERT_EQ(SlotNames(table, slots + 1).size(), 1u) << "another layout than this build's";
    EXPECT_EQ(SlotNames(table, slots + 1)[0].name, "slots");
  }
}

TEST(InspectGet, APersonsValueLeadsToTheRowThatTrainingMade) {
  const RunFolder run;
  const json rows = run.Run("get runs/adult --column=education --value=Bachelors --json").json();
  ASSERT_EQ(rows.size(), 2u);  // wide and embedding
  EXPECT_EQ(rows[0]["table"], "wide");
  EXPECT_EQ(rows[1]["table"], "embedding");
  for (const json& row : rows) {
    const TableSpec& table = SpecOf(run, row["table"]);
    const BuiltRows live = LiveRows(run.spec(2))[static_cast<TableId>(table.id())];
    const auto found = live.find(row["key"].get<Key>());  // made by Schema::ParseRow from the line of a file
    ASSERT_NE(found, live.end()) << row;
    EXPECT_EQ(row["stored"], true);
    EXPECT_EQ(row["feature"], "education");
    ExpectFloats(row["weights"], found->second.values, 0, table.width());
    ExpectFloats(row["m"], found->second.values, table.width(), table.width());
    ExpectFloats(row["v"], found->second.values, size_t{2} * table.width(), table.width());
    EXPECT_EQ(row["updates"], found->second.updates);
    EXPECT_EQ(row["last_step"], found->second.last_step);
    EXPECT_EQ(row["partition"], PartitionOf(found->first, 16));
    EXPECT_EQ(row["shard"], PartitionOf(found->first, 16) / 8);
    // The same by its key, as text.
    const ToolResult by_key = run.Run(fmt::format("get runs/adult {} {}", table.name(), found->first));
    EXPECT_THAT(by_key.out, HasSubstr(fmt::format("{} updates, the last at step {}\n", found->second.updates,
                                                  found->second.last_step)));
    EXPECT_THAT(by_key.out, HasSubstr(fmt::format("{:.9g}", found->second.values[0])));
  }
  // One column that two features read, one of them categorical; a missing value; one nobody has seen.
  const json age = run.Run("get runs/adult wide --column=age --value=39 --json").json();
  ASSERT_EQ(age.size(), 1u);
  EXPECT_EQ(age[0]["feature"], "age#id");
  EXPECT_EQ(age[0]["stored"], true);
  const json missing = run.Run("get runs/adult wide --column=workclass --value='?' --json").json();
  EXPECT_EQ(missing[0]["stored"], true);
  EXPECT_EQ(run.Run("get runs/adult wide --column=workclass --value= --json").json(), missing);
  EXPECT_EQ(run.Run("get runs/adult wide --column=education --value=Preschool --json").json()[0]["stored"], false);
}

TEST(InspectGet, AnAbsentRowHasTheInitialValuesOfATable) {
  const RunFolder run;
  for (const char* const name : {"wide", "embedding", "numeric"}) {
    const TableSpec& spec = SpecOf(run, name);
    const auto table = *Table::Create(spec, run.job().config().seed());
    std::vector<Key> keys = {1, 12345678901234567890u, ~Key{0}, Key{1} << 63};
    if (spec.kind() == TableSpec::DENSE) keys = {0};  // its only block, which no update reached
    std::string text;
    for (const Key key : keys) text += fmt::format(" {}", key);
    const json rows = run.Run(fmt::format("get runs/adult {}{} --json", name, text)).json();
    ASSERT_EQ(rows.size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      std::vector<float> wanted(spec.width());
      table->InitialWeights(keys[i], wanted.data());
      EXPECT_EQ(rows[i]["stored"], false);
      EXPECT_EQ(rows[i]["weights"].get<std::vector<float>>(), wanted) << name << " " << keys[i];
      EXPECT_FALSE(rows[i].contains("updates"));
    }
  }
  EXPECT_THAT(run.Run("get runs/adult embedding 1").out, HasSubstr("not stored: no update ever reached it"));
}

TEST(InspectDiff, CountsAndMeasuresWhatChanged) {
  const RunFolder run;
  const ToolResult result = run.Run("diff runs/adult/checkpoints/C000001 runs/adult --top=2 --json");
  EXPECT_EQ(result.code, 1) << result.err;
  const json diff = result.json();
  EXPECT_EQ(diff["different"], true);
  EXPECT_TRUE(diff["schema"].empty());
  auto before = LiveRows(run.spec(1)), after = LiveRows(run.spec(2));
  for (const TableSpec& spec : run.job().table()) {
    const BuiltRows& a = before[static_cast<TableId>(spec.id())];
    const BuiltRows& b = after[static_cast<TableId>(spec.id())];
    uint64_t changed = 0, weights = 0;
    double most = 0, sum = 0, squares = 0, top = 0;
    Key top_key = 0;
    for (const auto& [key, row] : a) {
      double of_row = 0;
      for (uint32_t i = 0; i < spec.width(); ++i) {
        const double change = std::abs(double{row.values[i]} - b.at(key).values[i]);
        most = std::max(most, change);
        sum += change;
        of_row += change * change;
        ++weights;
      }
      changed += of_row > 0 ? 1 : 0;
      squares += of_row;
      if (of_row > top) top = of_row, top_key = key;
    }
    const json table = TableOf(diff["tables"], spec.name());
    EXPECT_EQ(table["changed"], changed);
    EXPECT_EQ(table["same"].get<uint64_t>() + changed + table["state_changed"].get<uint64_t>(), a.size());
    EXPECT_EQ(table["only_a"], 0);
    EXPECT_EQ(table["max_change"], most);
    EXPECT_NEAR(table["mean_change"].get<double>(), weights > 0 ? sum / static_cast<double>(weights) : 0, 1e-12);
    EXPECT_NEAR(table["norm"].get<double>(), std::sqrt(squares), 1e-9);
    if (changed == 0) continue;
    EXPECT_EQ(table["top"].size(), std::min<uint64_t>(2, changed));
    EXPECT_EQ(table["top"][0]["key"], top_key);
    EXPECT_NEAR(table["top"][0]["norm"].get<double>(), std::sqrt(top), 1e-9);
  }
  EXPECT_EQ(run.Run("diff runs/adult runs/adult --json").json()["different"], false);
}

struct DiffCase {
  const char* why;
  std::function<void(CheckpointSpec* spec, TableId table)> change;
  int code;
  const char* says;
};

TEST(InspectDiff, TellsEveryKindOfDifference) {
  const DiffCase cases[] = {
      {"nothing", [](CheckpointSpec*, TableId) {}, 0, "equal\n"},
      {"other shards and partitions hold the same rows",
       [](CheckpointSpec* spec, TableId) {
         spec->shards = 3;
         spec->partitions = 64;
         const auto edit = spec->edit_manifest;
         spec->edit_manifest = [edit](CheckpointManifest* m) {
           edit(m);
           m->mutable_job()->mutable_config()->mutable_cluster()->set_partitions(64);
         };
       },
       0, "equal\n"},
      {"a row more",
       [](CheckpointSpec* spec, TableId table) {
         spec->layers[1].puts[table][5] = {std::vector<float>(24, 1.0f), 1, 1};
       },
       1, "0 rows only in A, 1 only in B, 0 changed, 0 in slots"},
      {"a row less",
       [](CheckpointSpec* spec, TableId table) {
         spec->layers[1].deletes[table].insert(spec->layers[1].puts[table].begin()->first);
         spec->layers[1].puts[table].erase(spec->layers[1].puts[table].begin());
       },
       1, "1 rows only in A, 0 only in B, 0 changed, 0 in slots"},
      {"a slot",
       [](CheckpointSpec* spec, TableId table) { spec->layers[1].puts[table].begin()->second.values[23] += 1; }, 1,
       "0 changed, 1 in slots or counters alone"},
      {"a counter", [](CheckpointSpec* spec, TableId table) { ++spec->layers[1].puts[table].begin()->second.updates; },
       1, "0 changed, 1 in slots or counters alone"},
      {"not a number",
       [](CheckpointSpec* spec, TableId table) { spec->layers[1].puts[table].begin()->second.values[0] = kNaN; }, 1,
       "1 changes are not finite"},
      {"the seed",
       [](CheckpointSpec* spec, TableId) {
         const auto edit = spec->edit_manifest;
         spec->edit_manifest = [edit](CheckpointManifest* m) {
           edit(m);
           m->mutable_job()->mutable_config()->set_seed(2);
         };
       },
       1, "seed: 1 in A, 2 in B"},
      {"a salt, a feature, a mean",
       [](CheckpointSpec* spec, TableId) {
         const auto edit = spec->edit_manifest;
         spec->edit_manifest = [edit](CheckpointManifest* m) {
           edit(m);
           DataConfig* const data = m->mutable_job()->mutable_config()->mutable_data();
           data->mutable_feature(12)->set_salt("old");
           data->mutable_feature(18)->set_name("country");
           m->mutable_job()->mutable_recipe()->mutable_numeric(0)->set_mean(46);
         };
       },
       1,
       "feature 'education': salt: education in A, old in B\nfeature 'native-country': in A only\n"
       "feature 'country': in B only\nfeature 'age': mean: 45 in A, 46 in B\n"},
      {"an optimizer",
       [](CheckpointSpec* spec, TableId table) {
         const auto edit = spec->edit_manifest;
         spec->edit_manifest = [edit, table](CheckpointManifest* m) {
           edit(m);
           m->mutable_job()->mutable_table(table)->mutable_optimizer()->set_name("adagrad");
         };
         for (testing::BuiltLayer& layer : spec->layers) {
           for (auto& [key, row] : layer.puts[table]) row.values.resize(16);
         }
       },
       1,
       "embedding: optimizer adam in A, adagrad in B\nembedding: 0 rows only in A, 0 only in B, 0 changed, 0 in slots"},
      {"a width",
       [](CheckpointSpec* spec, TableId table) {
         const auto edit = spec->edit_manifest;
         spec->edit_manifest = [edit, table](CheckpointManifest* m) {
           edit(m);
           m->mutable_job()->mutable_table(table)->set_width(4);
         };
         for (testing::BuiltLayer& layer : spec->layers) {
           for (auto& [key, row] : layer.puts[table]) row.values.resize(12);
         }
       },
       1, "embedding: width 8 in A, 4 in B\n"},
  };
  for (const DiffCase& c : cases) {
    SCOPED_TRACE(c.why);
    const RunFolder run;
    const auto id = static_cast<TableId>(SpecOf(run, "embedding").id());
    CheckpointSpec spec = run.spec(2);
    c.change(&spec, id);
    BuildOther(run, spec);
    const ToolResult result = run.Run("diff runs/adult runs/other");
    EXPECT_EQ(result.code, c.code) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr(c.says));
    EXPECT_EQ(run.Run("diff runs/other runs/adult").code, c.code);
    EXPECT_EQ(run.Run("diff runs/other runs/other").code, 0);
  }
}

TEST(InspectVerify, GoodDamagedAndNewer) {
  const RunFolder run;
  const ToolResult good = run.Run("verify runs/adult");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("C000002 is good"));
  FlipByte(run.root() + "/C000002/shard-0001/C000001-0000.sst", 300);  // its size stays: only reading it all tells
  const ToolResult bad = run.Run("verify runs/adult/checkpoints/C000002");
  EXPECT_EQ(bad.code, 4);
  EXPECT_THAT(bad.err, HasSubstr("shard-0001/C000001-0000.sst"));
  EXPECT_EQ(bad.out, "");
  EXPECT_EQ(run.Run("verify runs/adult").code, 4);
  EXPECT_EQ(run.Run("verify runs/adult/checkpoints/C000001").code, 0);
  // The newest of a run cannot be used at all: the one before is good, but the run is not.
  FlipByte(run.root() + "/C000002/manifest.pb", 100);
  const ToolResult older = run.Run("verify runs/adult");
  EXPECT_EQ(older.code, 4);
  EXPECT_THAT(older.err, HasSubstr("C000002"));
  EXPECT_THAT(older.out, HasSubstr("C000001 is good"));

  CheckpointSpec newer = run.spec(1);
  const auto edit = newer.edit_manifest;
  newer.edit_manifest = [edit](CheckpointManifest* manifest) {
    edit(manifest);
    manifest->set_format(99);
  };
  BuildOther(run, newer);
  for (const char* const command : {"verify", "show", "stat", "get"}) {
    const ToolResult result = run.Run(fmt::format("{} runs/other/C000001", command));
    EXPECT_EQ(result.code, 4) << command;
    EXPECT_THAT(result.err, HasSubstr("99")) << command;
  }
}

TEST(InspectVerify, AMissingMarkOfTheRunIsAWarning) {
  const RunFolder run;
  const ToolResult result = run.Run("verify runs/adult --json");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.json()["good"], true);
  ASSERT_EQ(result.json()["warnings"].size(), 1u) << "the builder of these checkpoints sets no marks";
  EXPECT_THAT(result.json()["warnings"][0].get<std::string>(), HasSubstr("C000002/capstan-made.pb' is missing"));
  EXPECT_THAT(result.err, HasSubstr("warning: "));
  std::filesystem::rename(run.root() + "/C000002", run.path() + "/copy");
  EXPECT_EQ(run.Run("verify copy --json").json()["warnings"].size(), 0u);
}

TEST(InspectGet, TheKeysOfADenseTableAreItsBlocks) {
  const RunFolder run;
  EXPECT_EQ(run.Run("get runs/adult deep/0/bias 0").code, 0);
  for (const char* key : {"1", "3000000", "2305843009213693952", "18446744073709551615"}) {
    const ToolResult result = run.Run(fmt::format("get runs/adult deep/0/bias 0 {}", key));
    EXPECT_EQ(result.code, 2) << key;
    EXPECT_THAT(result.err, HasSubstr("block")) << key;
    EXPECT_EQ(result.out, "") << key;
  }
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(InspectPlot, DrawsEveryTableWithAxesAndBars) {
  const RunFolder run;
  for (const std::string what : {"norm", "count", "age"}) {
    const ToolResult result = run.Run("plot runs/adult --what=" + what + " --out=plot.svg");
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string svg = *ReadWholeFile(PosixFileSystem(), run.path() + "/plot.svg", 1 << 20);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    for (const char* const element : {"text", "title", "svg"})
      EXPECT_EQ(Count(svg, fmt::format("<{}", element)), Count(svg, fmt::format("</{}>", element))) << element;
    for (const TableSpec& table : run.job().table()) EXPECT_THAT(svg, HasSubstr(">" + table.name() + ": "));
    EXPECT_GT(Count(svg, " rows</title>"), 0u);
    for (const char* const bad : {"nan", "inf", "NaN", "Infinity"}) EXPECT_THAT(svg, Not(HasSubstr(bad)));
  }
  EXPECT_EQ(run.Run("plot runs/adult --table=wide --out=plot.svg").code, 0);
  EXPECT_THAT(*ReadWholeFile(PosixFileSystem(), run.path() + "/plot.svg", 1 << 20), Not(HasSubstr(">embedding: ")));
}

}  // namespace
}  // namespace capstan
