#include "tests/tools/inspect_testing.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "data/schema.h"
#include "proto/job.pb.h"
#include "storage/checkpoint_root.h"
#include "tools/job/job_file.h"
#include "tools/job/plan_job.h"

namespace capstan::testing {
namespace {

constexpr char kAdultRows[] =
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K\n"
    "50, Self-emp-not-inc, 83311, Bachelors, 13, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0, 13, "
    "United-States, <=50K\n"
    "38, Private, 215646, HS-grad, 9, Divorced, Handlers-cleaners, Not-in-family, White, Male, 0, 0, 40, "
    "United-States, "
    ">50K\n"
    "53, ?, 234721, 11th, 7, Married-civ-spouse, Handlers-cleaners, Husband, Black, Male, 0, 0, 40, Cuba, <=50K\n";

uint32_t SlotsOf(const TableSpec& table) {
  const std::string& name = table.optimizer().name();
  return name == "adam" ? 2 * table.width() : name == "adagrad" ? table.width() : 0;
}

// As a training step collects them: parsed by the schema, column by column.
std::vector<Key> KeysOfTheData(const EffectiveJob& job) {
  const Schema schema(job.config().data());
  std::vector<std::string> columns(job.config().data().column().begin(), job.config().data().column().end());
  const Binding binding = *schema.Bind("adult.data", columns, /*labels=*/false);
  std::vector<Key> keys;
  std::string_view text = kAdultRows;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    std::vector<std::string_view> fields;
    for (size_t comma = line.find(", "); comma != std::string_view::npos; comma = line.find(", ")) {
      fields.push_back(line.substr(0, comma));
      line.remove_prefix(comma + 2);
    }
    fields.push_back(line);
    RowValues row;
    std::string problem;
    EXPECT_TRUE(schema.ParseRow(fields, binding, &row, &problem)) << problem;
    keys.insert(keys.end(), row.keys.begin(), row.keys.end());
  }
  return keys;
}

BuiltRow AnyRow(const BuiltTable& table, uint32_t step, std::mt19937_64* random) {
  BuiltRow row;
  for (uint32_t i = 0; i < table.width + table.slots; ++i)
    row.values.push_back(static_cast<float>(static_cast<int64_t>((*random)() % 2001) - 1000) / 512);
  row.last_step = 1 + static_cast<uint32_t>((*random)() % step);
  row.updates = 1 + static_cast<uint32_t>((*random)() % row.last_step);
  return row;
}

std::string FileText(const std::string& path) { return *ReadWholeFile(PosixFileSystem(), path, uint64_t{64} << 20); }

}  // namespace

nlohmann::json ToolResult::json() const {
  nlohmann::json parsed = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(parsed.is_discarded()) << out << err;
  return parsed;
}

EffectiveJob AdultJob(const std::string& folder) {
  FileSystem& fs = PosixFileSystem();
  const std::string data = folder + "/adult.data";
  EXPECT_TRUE(WriteFileAtomically(fs, data, kAdultRows).ok());
  absl::StatusOr<JobFile> file = JobFile::Load(fs, CAPSTAN_SOURCE_DIR "/examples/adult_wide_deep.textproto");
  EXPECT_TRUE(file.ok()) << file.status();
  for (const std::string& set : {"data.train=" + data, "data.eval=" + data, std::string("cluster.partitions=16")}) {
    const absl::Status status = file->Set(set);
    EXPECT_TRUE(status.ok()) << status;
  }
  JobConfig config;
  const absl::Status finished = file->Finish(fs, ProcessSurroundings({"sgd", "adagrad", "adam"}), &config, nullptr);
  EXPECT_TRUE(finished.ok()) << finished;
  EffectiveJob job;
  const absl::Status planned = PlanJob(fs, config, &job);
  EXPECT_TRUE(planned.ok()) << planned;
  job.set_job_id(0x4711);
  job.set_cpu_isa("avx2");
  return job;
}

CheckpointSpec AdultCheckpoint(const EffectiveJob& job, int layers) {
  std::mt19937_64 random(7);
  CheckpointSpec spec;
  spec.tables.clear();
  for (const TableSpec& table : job.table())
    spec.tables.push_back({static_cast<TableId>(table.id()), table.name(), table.width(), SlotsOf(table)});
  const std::vector<Key> keys = KeysOfTheData(job);
  for (int i = 0; i < layers; ++i) {
    BuiltLayer& layer = spec.layers.emplace_back();
    for (size_t t = 0; t < spec.tables.size(); ++t) {
      const TableSpec& table = job.table(static_cast<int>(t));
      const BuiltTable& built = spec.tables[t];
      BuiltRows& rows = layer.puts[built.id];
      if (table.kind() == TableSpec::SPARSE) {
        // The second layer changes the first row of the data alone.
        for (size_t k = 0; k < (i == 0 ? keys.size() : keys.size() / 4); ++k)
          rows[keys[k]] = AnyRow(built, static_cast<uint32_t>(100 * (i + 1)), &random);
      } else if (table.name() != "numeric" && i == 0) {
        for (Key block = 0; block * table.width() < table.elements(); ++block)
          rows[block] = AnyRow(built, 100, &random);
      }
    }
  }
  spec.edit_manifest = [job](CheckpointManifest* manifest) {
    *manifest->mutable_job() = job;
    manifest->set_epoch_first(60);
    manifest->add_lineage(0x1234);
  };
  return spec;
}

RunFolder::RunFolder() {
  EXPECT_TRUE(PosixFileSystem().MakeFolders(root()).ok());
  EXPECT_TRUE(CheckpointRoot::Open(PosixFileSystem(), root()).ok());
  job_ = AdultJob(folder_.path());
  first_ = AdultCheckpoint(job_, 1);
  second_ = AdultCheckpoint(job_, 2);
  BuildCheckpoint(first_, root());
  BuildCheckpoint(second_, root());
}

ToolResult RunFolder::Run(const std::string& arguments, const std::string& redirect) const {
  return RunWith("", arguments, redirect);
}

ToolResult RunFolder::RunWith(const std::string& before, const std::string& arguments, const std::string& redirect) const {
  const TemporaryFolder streams;
  const std::string out = redirect.empty() ? fmt::format("'{}'", streams / "out") : redirect;
  const std::string command = fmt::format("cd '{}' && {} PATH='{}':\"$PATH\" capstan-inspect {} >{} 2>'{}'", path(),
                                          before, CAPSTAN_BIN_DIR, arguments, out, streams / "err");
  const int status = std::system(command.c_str());
  ToolResult result;
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (redirect.empty()) result.out = FileText(streams / "out");
  result.err = FileText(streams / "err");
  return result;
}

std::map<std::string, std::string> Snapshot(const std::string& path) {
  std::map<std::string, std::string> snapshot;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    struct stat info = {};
    EXPECT_EQ(lstat(entry.path().c_str(), &info), 0);
    snapshot[entry.path()] = fmt::format("{} bytes, mode {:o}, {} names, changed {}.{:09}", info.st_size, info.st_mode,
                                         info.st_nlink, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  return snapshot;
}

}  // namespace capstan::testing
