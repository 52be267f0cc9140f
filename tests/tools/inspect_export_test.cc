// capstan-inspect export: what NumPy and a reader of the safetensors layout find in the files, and what is
// refused.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "proto/job.pb.h"
#include "storage/checkpoint_reader.h"
#include "tests/tools/inspect_testing.h"
#include "tools/inspect/opened.h"
#include "tools/inspect/tensors.h"

namespace capstan {
namespace {

using testing::BuildCheckpoint;
using testing::BuiltRow;
using testing::CheckpointSpec;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RunFolder;
using testing::Snapshot;
using testing::SomeCheckpoint;
using testing::TemporaryFolder;
using testing::ToolResult;

std::string ContentsOf(const std::string& path) {
  return *ReadWholeFile(PosixFileSystem(), path, uint64_t{64} << 20);
}

std::vector<std::string> NamesIn(const std::string& folder) { return *PosixFileSystem().List(folder); }

// Prints every array of an npz, or of a safetensors file by its published layout, as JSON. Floats as doubles:
// exact.
constexpr char kReadArrays[] = R"(
import json, sys
import numpy as np
def npz(path):
    with np.load(path) as z:
        return {name: z[name] for name in z.files}, {}
def safetensors(path):
    raw = open(path, 'rb').read()
    n = int.from_bytes(raw[:8], 'little')
    assert raw[8:9] == b'{' and (8 + n) % 8 == 0
    header = json.loads(raw[8:8 + n].decode('utf-8'))
    about = header.pop('__metadata__')
    arrays, at = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]['data_offsets'][0]):
        begin, end = entry['data_offsets']
        assert begin == at, 'a hole before ' + name
        at = end
        kind = {'F32': '<f4', 'U32': '<u4', 'U64': '<u8'}[entry['dtype']]
        arrays[name] = np.frombuffer(raw[8 + n + begin:8 + n + end], dtype=kind).reshape(entry['shape'])
    assert 8 + n + at == len(raw)
    return arrays, about
arrays, about = (npz if sys.argv[1].endswith('.npz') else safetensors)(sys.argv[1])
print(json.dumps({'about': about, 'arrays': {
    name: {'type': a.dtype.str, 'shape': list(a.shape), 'values': a.ravel().tolist()} for name, a in arrays.items()}}))
)";

// The one that has NumPy: a python3 found first need not be Debian's. Empty: none.
std::string Python() {
  for (const std::string python : {"python3", "/usr/bin/python3"})
    if (std::system((python + " -c 'import numpy' >/dev/null 2>&1").c_str()) == 0) return python;
  return "";
}
bool NumpyIsHere() { return !Python().empty(); }

nlohmann::json ReadArrays(const RunFolder& run, const std::string& file) {
  std::ofstream(run.path() + "/read.py") << kReadArrays;
  const std::string command =
      fmt::format("cd '{}' && {} read.py {} >arrays.json", run.path(), Python(), file);
  EXPECT_EQ(std::system(command.c_str()), 0) << file;
  return nlohmann::json::parse(ContentsOf(run.path() + "/arrays.json"), nullptr, false);
}

// By key, as the layers of the test say.
void ExpectSparse(const nlohmann::json& arrays, const TableSpec& table, const testing::BuiltRows& rows) {
  const uint32_t width = table.width();
  const auto& keys = arrays[table.name() + ".keys"];
  ASSERT_EQ(keys["type"], "<u8");
  ASSERT_EQ(keys["values"].size(), rows.size());
  const auto& weights = arrays[table.name() + ".weights"];
  EXPECT_EQ(weights["type"], "<f4");
  EXPECT_EQ(weights["shape"], (std::vector<size_t>{rows.size(), width}));
  for (size_t i = 0; i < rows.size(); ++i) {
    const BuiltRow& row = rows.at(keys["values"][i].get<Key>());
    const size_t slots = row.values.size() - width;
    EXPECT_EQ(arrays[table.name() + ".updates"]["values"][i], row.updates);
    EXPECT_EQ(arrays[table.name() + ".last_step"]["values"][i], row.last_step);
    for (size_t j = 0; j < width; ++j) EXPECT_EQ(weights["values"][i * width + j], row.values[j]);
    const auto& stored_slots = arrays[table.name() + ".slots"];
    EXPECT_EQ(stored_slots["shape"], (std::vector<size_t>{rows.size(), slots}));
    for (size_t j = 0; j < slots; ++j)
      EXPECT_EQ(stored_slots["values"][i * slots + j], row.values[width + j]);
  }
}

// Block after block, as `get` prints them: the initial values where no update came.
void ExpectDense(const RunFolder& run, const nlohmann::json& arrays, const TableSpec& table) {
  const auto& tensor = arrays[table.name()];
  EXPECT_EQ(tensor["shape"], (std::vector<uint64_t>{table.elements()}));
  std::string blocks;
  for (Key block = 0; block * table.width() < table.elements(); ++block) blocks += fmt::format(" {}", block);
  const nlohmann::json got = run.Run(fmt::format("get runs/adult {}{} --json", table.name(), blocks)).json();
  for (uint64_t i = 0; i < table.elements(); ++i)
    ASSERT_EQ(tensor["values"][i], got[i / table.width()]["weights"][i % table.width()])
        << table.name() << " " << i;
}

TEST(InspectExport, NumPyReadsWhatTheCheckpointHolds) {
  if (!NumpyIsHere()) GTEST_SKIP() << "python3 with NumPy (python3-numpy) is not here";
  const RunFolder run;
  const auto live = LiveRows(run.spec(2));
  const auto before = Snapshot(run.path() + "/runs");
  for (const std::string format : {"npz", "safetensors"}) {
    SCOPED_TRACE(format);
    const ToolResult result =
        run.Run(fmt::format("export runs/adult --format={0} --out=all.{0} --slots", format));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, fmt::format("all.{} written\n", format));
    const nlohmann::json file = ReadArrays(run, "all." + format);
    size_t expected = 0;
    for (const TableSpec& table : run.job().table()) {
      SCOPED_TRACE(table.name());
      const bool dense = table.kind() == TableSpec::DENSE;
      expected += dense ? 1 : 5;
      if (dense) {
        ExpectDense(run, file["arrays"], table);
      } else {
        ExpectSparse(file["arrays"], table, live.at(static_cast<TableId>(table.id())));
      }
    }
    EXPECT_EQ(file["arrays"].size(), expected);
    if (format == "safetensors") {
      EXPECT_EQ(file["about"]["step"], "200");
    }
  }
  EXPECT_EQ(Snapshot(run.path() + "/runs"), before);
}

TEST(InspectExport, ATableChosenAndNoSlots) {
  if (!NumpyIsHere()) GTEST_SKIP() << "python3 with NumPy (python3-numpy) is not here";
  const RunFolder run;
  ASSERT_EQ(run.Run("export runs/adult --format=npz --out=wide.npz --table='wide|bias'").code, 0);
  const nlohmann::json arrays = ReadArrays(run, "wide.npz")["arrays"];
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays.items()) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("bias", "wide.keys", "wide.weights"));
}

std::vector<std::vector<std::string>> CsvOf(const std::string& text) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    std::vector<std::string>& cells = lines.emplace_back();
    for (std::string cell; std::getline(fields, cell, ',');) cells.push_back(cell);
  }
  return lines;
}

TEST(InspectExport, CsvKeepsEveryBitAndNamesItsColumns) {
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(2, 60, 2);
  spec.tables[0].slots = 0;  // as of sgd
  for (auto& layer : spec.layers) {
    for (auto& [key, row] : layer.puts[0]) {
      row.values.resize(1);
      row.values[0] /= 3;
    }
  }
  const std::string folder = BuildCheckpoint(spec, run.path());
  const ToolResult result = run.Run(fmt::format("export {} --format=csv --out=rows.csv --slots", folder));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "rows.wide.csv written\nrows.deep.csv written\n");
  const auto live = LiveRows(spec);
  for (const testing::BuiltTable& table : spec.tables) {
    SCOPED_TRACE(table.name);
    const auto lines = CsvOf(ContentsOf(run.path() + "/rows." + table.name + ".csv"));
    ASSERT_EQ(lines.size(), live.at(table.id).size() + 1);
    const size_t floats = table.width + table.slots;
    std::vector<std::string> header = {"key"};
    for (uint32_t i = 0; i < table.width; ++i) header.push_back(fmt::format("w{}", i));
    for (uint32_t i = 0; i < table.slots; ++i) header.push_back(fmt::format("s{}", i));
    header.insert(header.end(), {"updates", "last_step"});
    EXPECT_EQ(lines[0], header);
    for (size_t i = 1; i < lines.size(); ++i) {
      ASSERT_EQ(lines[i].size(), header.size());
      const BuiltRow& row = live.at(table.id).at(std::stoull(lines[i][0]));
      for (size_t j = 0; j < floats; ++j) EXPECT_EQ(std::stof(lines[i][1 + j]), row.values[j]);
      EXPECT_EQ(std::stoul(lines[i][1 + floats]), row.updates);
      EXPECT_EQ(std::stoul(lines[i][2 + floats]), row.last_step);
    }
  }
}

TEST(InspectExport, OneTableAsCsvGoesToStdout) {
  const RunFolder run;
  for (const char* table : {"wide", "deep/0/bias"}) {
    const std::string chosen = fmt::format("export runs/adult --format=csv --table={} --out=", table);
    ASSERT_EQ(run.Run(chosen + "file.csv").code, 0);
    const ToolResult streamed = run.Run(chosen + "-");
    EXPECT_EQ(streamed.code, 0) << streamed.err;
    EXPECT_EQ(streamed.out, ContentsOf(run.path() + "/file.csv"));
    EXPECT_FALSE(std::filesystem::exists(run.path() + "/-"));
    EXPECT_EQ(run.Run(chosen + "-", "/dev/full").code, 4);
  }
}

TEST(InspectExport, FoldersAboveAreMadeAndTakenAwayAgain) {
  const RunFolder run;
  EXPECT_EQ(run.Run("export runs/adult --format=npz --out=a/b/x.npz").code, 0);
  EXPECT_EQ(run.Run("plot runs/adult --out=c/d/x.svg").code, 0);
  EXPECT_TRUE(std::filesystem::exists(run.path() + "/a/b/x.npz"));
  EXPECT_TRUE(std::filesystem::exists(run.path() + "/c/d/x.svg"));
  EXPECT_EQ(run.RunWith("trap '' XFSZ; ulimit -f 1;", "export runs/adult --format=npz --out=e/f/x.npz").code, 4);
  EXPECT_FALSE(std::filesystem::exists(run.path() + "/e"));
}

TEST(InspectExport, ADenseTableIsOneColumnOfElements) {
  const RunFolder run;
  ASSERT_EQ(run.Run("export runs/adult --format=csv --out=bias.csv --table=bias").code, 0);
  const auto lines = CsvOf(ContentsOf(run.path() + "/bias.csv"));
  const nlohmann::json got = run.Run("get runs/adult bias 0 --json").json();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], (std::vector<std::string>{"element", "value"}));
  EXPECT_EQ(lines[1][0], "0");
  EXPECT_EQ(std::stof(lines[1][1]), got[0]["weights"][0].get<float>());
}

// Names come out of a file; none may lead out of the archive or the folder, or hide another table.
TEST(InspectExport, NamesOfTablesStayInTheirPlace) {
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(1, 20, 1);
  spec.tables[0].name = "../../up";
  spec.tables[1].name = "/a/./b\\c\nd\"\xc3\xa9";
  const std::string odd = BuildCheckpoint(spec, run.path());
  ASSERT_EQ(run.Run(fmt::format("export {} --format=csv --out=odd.csv", odd)).code, 0);
  ASSERT_EQ(run.Run(fmt::format("export {} --format=safetensors --out=odd.safetensors", odd)).code, 0);
  for (const std::string& name : NamesIn(run.path()))
    EXPECT_THAT(name, ::testing::MatchesRegex("[a-zA-Z0-9_.-]+"));
  if (NumpyIsHere()) {
    ASSERT_EQ(run.Run(fmt::format("export {} --format=npz --out=odd.npz", odd)).code, 0);
    const nlohmann::json arrays = ReadArrays(run, "odd.npz")["arrays"];
    EXPECT_TRUE(arrays.contains("_/_/up.keys")) << arrays.dump();
    EXPECT_TRUE(arrays.contains("_/a/_/b_c_d___.weights")) << arrays.dump();
  }
  spec.tables[0].name = "a/b";
  spec.tables[1].name = "a_b";
  const std::string alike = BuildCheckpoint(spec, run.path() + "/alike");
  const ToolResult clash = run.Run(fmt::format("export {} --format=csv --out=alike.csv", alike));
  EXPECT_EQ(clash.code, 2);
  EXPECT_THAT(clash.err, HasSubstr("'alike.a_b.csv'"));
  EXPECT_THAT(clash.err, HasSubstr("--table"));
  EXPECT_EQ(run.Run(fmt::format("export {} --format=csv --out=alike.csv --table=a_b", alike)).code, 0);
  EXPECT_EQ(run.Run(fmt::format("export {} --format=npz --out=alike.npz", alike)).code, 0);
}

struct RefusedCase {
  const char* arguments;
  int code;
  const char* says;
};
constexpr RefusedCase kRefused[] = {
    {"export runs/adult --out=x", 2, "wanted npz, safetensors or csv"},
    {"export runs/adult --format=xls --out=x", 2, "--format=xls: wanted npz, safetensors or csv"},
    {"export runs/adult --format=npz", 2, "--out=FILE is missing"},
    {"export runs/adult --format=npz --out=runs", 2, "not an ordinary file"},
    {"export runs/adult --format=csv --out=/dev/full --table=wide", 2, "not an ordinary file"},
    {"export runs/adult --format=npz --table=wode --out=x", 2, "matches no table"},
    {"export runs/adult --format=npz --out=/proc/nowhere/x.npz", 4, "/proc/nowhere"},
    {"export runs/adult --format=safetensors --out=/proc/nowhere/x", 4, "/proc/nowhere"},
    {"export runs/adult --format=csv --out=/proc/nowhere/x", 4, "/proc/nowhere"},
    {"export runs/nobody --format=npz --out=x", 4, "runs/nobody"},
    // What is read is not written to, whichever name it goes by.
    {"export runs/adult --format=npz --out=runs/adult/checkpoints/C000002/manifest.pb", 2, "inside"},
    {"export runs/adult --format=safetensors --out=runs/adult/checkpoints/C000001/manifest.pb", 2, "inside"},
    {"export runs/adult --format=csv --out=runs/adult/../adult/checkpoints/C000002/new.csv", 2, "inside"},
    {"export runs/adult --format=npz --out=runs/adult/checkpoints/capstan-root.pb", 2, "inside"},
    {"export runs/adult --format=npz --out=link/manifest.pb", 2, "inside"},
};

TEST(InspectExport, SaysWhatIsRefused) {
  const RunFolder run;
  std::filesystem::create_directory_symlink(run.root() + "/C000002", run.path() + "/link");
  const auto before = Snapshot(run.path());
  for (const RefusedCase& c : kRefused) {
    const ToolResult result = run.Run(c.arguments);
    EXPECT_EQ(result.code, c.code) << c.arguments << "\n" << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.says)) << c.arguments;
    EXPECT_EQ(result.out, "") << c.arguments;
  }
  EXPECT_EQ(Snapshot(run.path()), before) << "something was left";
}

TEST(InspectExport, AFileThatIsThereIsReplacedWholeOrNotAtAll) {
  const RunFolder run;
  std::ofstream(run.path() + "/x.npz") << "of yesterday";
  std::ofstream(run.path() + "/x.npz.tmp") << "not ours";
  ASSERT_EQ(run.Run("export runs/adult --format=npz --out=x.npz").code, 0);
  EXPECT_THAT(ContentsOf(run.path() + "/x.npz"), ::testing::StartsWith("PK"));
  EXPECT_EQ(ContentsOf(run.path() + "/x.npz.tmp"), "not ours");
}

// A limit on the size of files stands for the full disk.
TEST(InspectExport, AFullDiskLeavesNothing) {
  const RunFolder run;
  for (const std::string format : {"npz", "safetensors", "csv"}) {
    std::ofstream(run.path() + "/x." + format) << "of yesterday";
    const auto before = Snapshot(run.path());
    const ToolResult result = run.RunWith(
        "trap '' XFSZ; ulimit -f 1;",
        fmt::format("export runs/adult --format={0} --table='wide|embedding' --out=x.{0}", format));
    EXPECT_EQ(result.code, 4) << format;
    EXPECT_THAT(result.err, HasSubstr("File too large")) << format;
    EXPECT_THAT(result.err, HasSubstr("x.")) << format;
    EXPECT_EQ(Snapshot(run.path()), before) << format;
  }
}

TEST(InspectExport, DamageIsFoundAndNothingIsWritten) {
  const RunFolder run;
  const std::string file = run.root() + "/C000002/shard-0000/C000001-0000.sst";
  std::string bytes = ContentsOf(file);
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  testing::OverwriteFile(file, bytes);
  const auto before = Snapshot(run.path());
  for (const std::string format : {"npz", "safetensors", "csv"}) {
    const ToolResult result =
        run.Run(fmt::format("export runs/adult/checkpoints/C000002 --format={0} --out=x.{0}", format));
    EXPECT_EQ(result.code, 4) << format;
    EXPECT_THAT(result.err, HasSubstr("C000001-0000.sst")) << format;
    EXPECT_EQ(result.out, "") << format;
  }
  EXPECT_EQ(Snapshot(run.path()), before);
}

std::vector<std::string> PythonOfThePage() {
  std::vector<std::string> blocks;
  const std::string page = ContentsOf(CAPSTAN_SOURCE_DIR "/docs/checkpoints.md");
  constexpr std::string_view kBegin = "```python\n", kEnd = "```\n";
  for (size_t at = page.find(kBegin); at != std::string::npos; at = page.find(kBegin, at)) {
    const size_t begin = at + kBegin.size();
    at = page.find(kEnd, begin);
    blocks.push_back(page.substr(begin, at - begin));
  }
  return blocks;
}

// A model with the tables and the key that the page names.
TEST(InspectExport, ThePythonInTheManualRunsAsItStands) {
  if (!NumpyIsHere()) GTEST_SKIP() << "python3 with NumPy (python3-numpy) is not here";
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(1, 20, 1);
  spec.tables[0].name = "deep/0/bias";
  spec.tables[1].name = "embedding";
  spec.layers[0].puts[0] = {{0, spec.layers[0].puts[0].begin()->second}};
  spec.layers[0].puts[1][42] = spec.layers[0].puts[1].begin()->second;
  spec.edit_manifest = [](CheckpointManifest* manifest) {
    TableSpec* bias = manifest->mutable_job()->mutable_table(0);
    bias->set_kind(TableSpec::DENSE);
    bias->set_elements(1);
  };
  const std::string folder = BuildCheckpoint(spec, run.path());
  for (const std::string format : {"npz", "safetensors"}) {
    const ToolResult result = run.Run(fmt::format("export {0} --format={1} --out=model.{1}", folder, format));
    ASSERT_EQ(result.code, 0) << result.err;
  }
  const std::vector<std::string> blocks = PythonOfThePage();
  ASSERT_EQ(blocks.size(), 2u);
  std::ofstream(run.path() + "/page.py")
      << blocks[0] << blocks[1]
      << "print(json.dumps([vector.tolist(), bias.tolist(), weights[keys.tolist().index(42)].tolist(), step]))\n";
  const std::string command = fmt::format("cd '{}' && {} page.py >page.json", run.path(), Python());
  ASSERT_EQ(std::system(command.c_str()), 0);
  const nlohmann::json seen = nlohmann::json::parse(ContentsOf(run.path() + "/page.json"), nullptr, false);
  const nlohmann::json vector = run.Run("get " + folder + " embedding 42 --json").json()[0]["weights"];
  EXPECT_EQ(seen[0], vector);
  EXPECT_EQ(seen[1], run.Run("get " + folder + " deep/0/bias 0 --json").json()[0]["weights"]);
  EXPECT_EQ(seen[2], vector);
  EXPECT_EQ(seen[3], "100");
}

// Somebody removes the folder by hand while it is read.
TEST(InspectExport, ACheckpointThatVanishesIsNamed) {
  const TemporaryFolder place;
  const std::string folder = BuildCheckpoint(SomeCheckpoint(2, 50, 1), place.path());
  const auto reader = CheckpointReader::Open(PosixFileSystem(), folder, CheckpointReader::Verify::kRecords);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::filesystem::remove_all(folder);
  const auto tables = ChooseTables(**reader, "");
  ASSERT_TRUE(tables.ok());
  const absl::Status status =
      WhileReading(**reader, WriteNpz(TensorsOf(**reader, *tables, true), place / "x.npz"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder + " was removed while it was read"));
  EXPECT_THAT(NamesIn(place.path()), IsEmpty());
}

// More than one block and one batch, both ends of the keys, a table without a row, a last block that is not full.
TEST(InspectExport, NumPyReadsLargeEmptyAndPartlyFilledTables) {
  if (!NumpyIsHere()) GTEST_SKIP() << "python3 with NumPy (python3-numpy) is not here";
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(2, 30'000, 3);
  spec.tables.push_back({2, "empty", 3, 0});
  spec.tables.push_back({3, "dense", 4, 0});
  spec.layers[0].puts[3][0] = {{1, 2, 3, 4}, 1, 1};
  spec.layers[0].puts[3][2] = {{9, 10, 11, 12}, 1, 1};  // of ten elements the last two are not there
  TableSpec dense;
  spec.edit_manifest = [&dense](CheckpointManifest* manifest) {
    TableSpec* table = manifest->mutable_job()->mutable_table(3);
    table->set_kind(TableSpec::DENSE);
    table->set_elements(10);
    table->set_init(TableSpec::UNIFORM);
    table->set_scale(0.5f);
    dense = *table;
  };
  const std::string folder = BuildCheckpoint(spec, run.path());
  const auto reader = CheckpointReader::Open(PosixFileSystem(), folder, CheckpointReader::Verify::kRecords);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<float> absent = InitialRow((*reader)->manifest(), dense, 1);
  const auto live = LiveRows(spec);
  for (const std::string format : {"npz", "safetensors"}) {
    SCOPED_TRACE(format);
    const ToolResult result = run.Run(fmt::format("export {0} --format={1} --out=all.{1} --slots", folder, format));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_GT(std::filesystem::file_size(run.path() + "/all." + format), uint64_t{1} << 20);
    const nlohmann::json arrays = ReadArrays(run, "all." + format)["arrays"];
    for (int i = 0; i < 2; ++i) {
      ExpectSparse(arrays, (*reader)->manifest().job().table(i), live.at(static_cast<TableId>(i)));
    }
    const auto keys = arrays["deep.keys"]["values"].get<std::vector<Key>>();
    EXPECT_THAT(keys, ::testing::AllOf(::testing::Contains(Key{0}), ::testing::Contains(~Key{0})));
    EXPECT_EQ(arrays["empty.keys"]["shape"], (std::vector<size_t>{0}));
    EXPECT_EQ(arrays["empty.weights"]["shape"], (std::vector<size_t>{0, 3}));
    const std::vector<float> values = {1, 2, 3, 4, absent[0], absent[1], absent[2], absent[3], 9, 10};
    EXPECT_NE(absent[0], 0.0f);
    EXPECT_EQ(arrays["dense"]["values"], values);
  }
}

// A manifest can hold any bytes; a bad name is no reason to abort.
TEST(InspectExport, AJobsNameThatIsNoUtf8) {
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(1, 20, 1);
  spec.edit_manifest = [](CheckpointManifest* manifest) {
    manifest->mutable_job()->mutable_config()->set_name("caf\xe9");
  };
  const std::string folder = BuildCheckpoint(spec, run.path());
  const ToolResult result = run.Run(fmt::format("export {} --format=safetensors --out=x.safetensors", folder));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(ContentsOf(run.path() + "/x.safetensors"), HasSubstr("caf\xef\xbf\xbd"));
}

// The header has one entry of that name, which is about the file.
TEST(InspectExport, ATableNamedAsTheMetadata) {
  RunFolder run;
  CheckpointSpec spec = SomeCheckpoint(1, 20, 1);
  spec.tables[0].name = "__metadata__";
  spec.layers[0].puts[0] = {{0, spec.layers[0].puts[0].begin()->second}};
  spec.edit_manifest = [](CheckpointManifest* manifest) {
    TableSpec* dense = manifest->mutable_job()->mutable_table(0);
    dense->set_kind(TableSpec::DENSE);
    dense->set_elements(1);
  };
  const std::string folder = BuildCheckpoint(spec, run.path());
  const ToolResult refused = run.Run(fmt::format("export {} --format=safetensors --out=x.safetensors", folder));
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("__metadata__"));
  EXPECT_EQ(run.Run(fmt::format("export {} --format=npz --out=x.npz", folder)).code, 0);
}

}  // namespace
}  // namespace capstan
