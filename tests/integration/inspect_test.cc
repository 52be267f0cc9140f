// capstan-inspect on the checkpoints of a real run: every example of every help text, and the exports read by NumPy.
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <sstream>

#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

constexpr const char* kSubcommands[] = {"ls", "show", "stat", "get", "diff", "verify", "export", "merge", "reshard", "plot"};

class InspectTest : public IntegrationTest {
 protected:
  // A run in runs/adult, as the examples name it. False: the Adult files are not here.
  bool TrainAdult() {
    if (DataFolder().empty()) return false;
    setenv("CAPSTAN_DATA_DIR", DataFolder().c_str(), 1);
    const Finished run = Capstan({"train", CAPSTAN_SOURCE_DIR "/examples/adult_wide_deep.textproto", "--epochs=2",
                                  "--checkpoint_steps=40", "--output=runs/adult"});
    EXPECT_EQ(run.code, 0) << run.err;
    return true;
  }
  Finished Inspect(const std::vector<std::string>& arguments) { return Run("capstan-inspect", arguments); }
  nlohmann::json InspectJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Finished run = Inspect(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return nlohmann::json::parse(run.out, nullptr, false);
  }

  // Names, sizes and times of everything below a folder.
  static std::map<std::string, std::string> Snapshot(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      struct stat info = {};
      EXPECT_EQ(stat(entry.path().c_str(), &info), 0);
      files[entry.path().string()] = fmt::format("{} {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    }
    return files;
  }
};

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST_F(InspectTest, EveryExampleOfTheHelpRunsOnTheAdultCheckpoint) {
  if (!TrainAdult()) GTEST_SKIP() << "the Adult files are not here; CAPSTAN_DATA_DIR names their folder";
  const std::map<std::string, std::string> before = Snapshot(Path("runs/adult/checkpoints"));
  int examples = 0;
  for (const char* subcommand : kSubcommands) {
    const Finished help = Inspect({subcommand, "--help"});
    EXPECT_EQ(help.code, 0);
    std::istringstream lines(help.out);
    int of_this = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  capstan-inspect ", 0) != 0) continue;
      std::vector<std::string> words = WordsOf(line);
      words.erase(words.begin());
      const Finished run = Inspect(words);
      EXPECT_EQ(run.code, 0) << line << "\n" << run.err;
      EXPECT_FALSE(run.out.empty()) << line;
      ++of_this;
    }
    EXPECT_GT(of_this, 0) << subcommand << " has no example";
    examples += of_this;
  }
  EXPECT_GE(examples, 15);
  EXPECT_EQ(Snapshot(Path("runs/adult/checkpoints")), before) << "it wrote to what it reads";
  for (const char* made : {"merged", "three"}) EXPECT_EQ(Inspect({"verify", made}).code, 0) << made;
  EXPECT_EQ(Inspect({"diff", "merged", "three"}).code, 0);
  // What was made is a checkpoint like any other.
  const Finished more = Capstan({"train", "runs/adult/job.textproto", "--resume=three", "--epochs=3", "--output=more"});
  EXPECT_EQ(more.code, 0) << more.err;
}

// Which batches each partition has is part of what a reshard moves: a wrong one would count rows twice, or never.
TEST_F(InspectTest, ARunGoesOnFromWhatMergeAndReshardMade) {
  const std::string rows = WriteSparseRows("rows.libsvm", 40000);
  for (const std::string mode : {"async", "ssp:2", "sync"}) {
    SCOPED_TRACE(mode);
    const std::string job =
        WriteCensusJob("job-" + mode.substr(0, 3), {rows},
                       fmt::format("epochs: 3 consistency: '{}' batch {{ micro: 8 }} lease_batches: 16 "
                                   "checkpoint {{ steps: 200 keep_last: 1000 full_every: 100 }}", mode));
    const std::string output = Train(job, {"--servers=2", "--workers=2"})["output"];
    // One in the middle of the run, and of an epoch.
    const nlohmann::json all = InspectJson({"ls", output});
    std::string middle;
    for (const nlohmann::json& line : all) {
      const uint64_t examples = line["examples"];
      if (examples % 40000 != 0 && examples < 100000 && !line["full"].get<bool>()) middle = line["name"];
    }
    ASSERT_NE(middle, "") << all.dump();
    const std::string checkpoint = output + "/checkpoints/" + middle;
    const std::string made = Path("made-" + mode.substr(0, 3));
    ASSERT_EQ(Inspect({"merge", checkpoint, "--out=" + made + "-merged"}).code, 0);
    ASSERT_EQ(Inspect({"reshard", checkpoint, "--shards=5", "--out=" + made + "-of5"}).code, 0);
    for (const std::string& from : {made + "-merged", made + "-of5"}) {
      const nlohmann::json result = Train(job, {"--resume=" + from, "--servers=3", "--workers=1"});
      EXPECT_EQ(result.value("examples", 0u), 120000u) << from;
      // Text, so that it is the export that is looked at: key,count.
      ASSERT_EQ(Inspect({"export", result["output"], "--format=csv", "--out=" + Path("counts.csv")}).code, 0);
      std::istringstream lines(ReadText(Path("counts.csv")));
      std::string line;
      std::getline(lines, line);
      size_t counted = 0, wrong = 0;
      while (std::getline(lines, line)) {
        ++counted;
        wrong += line.ends_with(",3") ? 0 : 1;
      }
      EXPECT_EQ(counted, 40000u) << from;
      EXPECT_EQ(wrong, 0u) << from << ": rows that were not counted three times";
    }
  }
}

TEST_F(InspectTest, NumPyReadsTheExports) {
  const std::string python = "/usr/bin/python3";
  if (system("/usr/bin/python3 -c 'import numpy' >/dev/null 2>&1") != 0) GTEST_SKIP() << "NumPy is not here";
  const std::string job = WriteJob("job", WriteRows("rows.csv", 2003));
  const std::string output = Train(job, {})["output"];
  ASSERT_EQ(Inspect({"export", output, "--format=npz", "--out=all.npz", "--slots"}).code, 0);
  ASSERT_EQ(Inspect({"export", output, "--format=safetensors", "--out=all.safetensors", "--slots"}).code, 0);
  ASSERT_EQ(Inspect({"export", output, "--format=csv", "--table=embedding", "--out=embedding.csv"}).code, 0);
  WriteText(Path("check.py"), R"(
import json, sys
import numpy as np
z = np.load('all.npz')
raw = open('all.safetensors', 'rb').read()
n = int.from_bytes(raw[:8], 'little')
assert n % 8 == 0
header = json.loads(raw[8:8 + n])
types = {'F32': '<f4', 'U32': '<u4', 'U64': '<u8'}
names = [k for k in header if k != '__metadata__']
assert sorted(names) == sorted(z.files), (names, z.files)
for k in names:
    a, b = header[k]['data_offsets']
    t = np.frombuffer(raw[8 + n + a:8 + n + b], dtype=types[header[k]['dtype']]).reshape(header[k]['shape'])
    assert t.dtype == z[k].dtype and t.shape == z[k].shape and t.tobytes() == z[k].tobytes(), k
assert len(raw) == 8 + n + max(header[k]['data_offsets'][1] for k in names)
keys, weights, slots = z['embedding.keys'], z['embedding.weights'], z['embedding.slots']
assert keys.shape[0] == weights.shape[0] > 40 and weights.shape[1] == 8 and slots.shape[1] == 16
lines = [line.split(',') for line in open('embedding.csv').read().splitlines()]
assert lines[0] == ['key'] + ['w%d' % i for i in range(8)]
assert [int(line[0]) for line in lines[1:]] == keys.tolist()
assert (np.array([line[1:] for line in lines[1:]], dtype=np.float32) == weights).all()
i = 7
print(json.dumps({'key': int(keys[i]), 'weights': [float(x) for x in weights[i]], 'm': [float(x) for x in slots[i][:8]],
                  'dense': [float(x) for x in z['deep/0/bias'][:4]], 'updates': int(z['embedding.updates'][i])}))
)");
  const Finished run = Run(python, {"check.py"});
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json seen = nlohmann::json::parse(run.out);
  const nlohmann::json row = InspectJson({"get", output, "embedding", fmt::format("{}", seen["key"].get<uint64_t>())})[0];
  EXPECT_EQ(row["weights"], seen["weights"]);
  EXPECT_EQ(row["m"], seen["m"]);
  EXPECT_EQ(row["updates"], seen["updates"]);
  const nlohmann::json dense = InspectJson({"get", output, "deep/0/bias", "0"})[0];
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(dense["weights"][i], seen["dense"][i]);
}

TEST_F(InspectTest, SaysWhatIsWrongAndWithWhichCode) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 1003));
  const std::string output = Train(job, {})["output"];
  struct Case {
    std::vector<std::string> arguments;
    int code;
    const char* says;
  };
  const Case cases[] = {
      {{}, 2, "Commands"},
      {{"look", output}, 2, "no command 'look'"},
      {{"show"}, 2, "CHECKPOINT is missing"},
      {{"show", Path("nothing")}, 4, "does not exist"},
      {{"get", output, "nope", "1"}, 2, "there is no table 'nope'; there are wide"},
      {{"get", output, "wide", "1x"}, 2, "'1x' is no key"},
      {{"get", output, "--column=nope", "--value=1"}, 2, "those read are colour, town"},
      {{"stat", output, "--table=nope"}, 2, "matches no table"},
      {{"stat", output, "--by=size"}, 2, "none of norm, count, age"},
      {{"export", output, "--format=xls", "--out=x"}, 2, "wanted npz, safetensors or csv"},
      {{"export", output, "--format=npz"}, 2, "--out=FILE is missing"},
      {{"plot", output, "--out=x.png"}, 2, "only .svg"},
      {{"merge", output, "--out=" + output}, 2, "is there already"},
      {{"reshard", output, "--out=new"}, 2, "--shards=N is missing"},
      {{"diff", output}, 2, "two checkpoints"},
      {{"export", output, "--format=npz", "--out=/dev/full"}, 2, "/dev/full"},
  };
  for (const Case& c : cases) {
    const Finished run = Inspect(c.arguments);
    EXPECT_EQ(run.code, c.code) << c.says << ": " << run.err;
    EXPECT_THAT(run.err, ::testing::HasSubstr(c.says));
  }
  // A flipped byte in each file of the checkpoint is found and named.
  const std::string checkpoint = ResultOf(output).value("checkpoint", "");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint)) {
    if (!entry.is_regular_file() || entry.path().filename() == "capstan-made.pb") continue;
    const std::string path = entry.path().string();
    const std::string good = ReadText(path);
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 4);
    WriteText(path, bad);
    const Finished run = Inspect({"verify", checkpoint});
    EXPECT_EQ(run.code, 4) << path;
    EXPECT_THAT(run.err, ::testing::HasSubstr(entry.path().filename().string()));
    const Finished resume = Capstan({"train", "--output=" + output, "--resume", "--epochs=3"});
    EXPECT_TRUE(resume.code == 4 || resume.code == 0) << "the one before is used, or it is said: " << resume.err;
    EXPECT_THAT(resume.err, ::testing::AnyOf(::testing::HasSubstr("not used"), ::testing::HasSubstr("no good checkpoint")));
    WriteText(path, good);
    break;
  }
  EXPECT_EQ(Inspect({"verify", checkpoint}).code, 0);
}

}  // namespace
}  // namespace capstan::testing
