// Everything is killed at some moment; what goes on from the newest checkpoint ends with the same bits, or has every
// sample once.
#include <signal.h>

#include <filesystem>
#include <set>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "storage/saved_model.h"
#include "tests/integration/resume_testing.h"

namespace capstan::testing {
namespace {

// All optimizers, with `rounds` kills each. What the others keep in a row is laid out like
// in the first three, so they are killed less often, with a schedule and rules under way.
struct OptimizerCase {
  const char* name;
  int rounds;
  const char* settings;
};
constexpr OptimizerCase kOptimizers[] = {
    {"sgd", 7, ""},
    {"adagrad", 7, ""},
    {"adam", 7, ""},
    {"momentum", 1, "schedule { warmup_steps: 500 }"},
    {"nesterov", 1, "schedule { kind: 'linear' } clip_value: 0.01"},
    {"rowwise_adagrad", 1, "schedule { kind: 'cosine' steps: 40 restart_growth: 2 warmup_steps: 10 }"},
    {"rmsprop", 1, "schedule { kind: 'step' steps: 30 step_factor: 0.9 } l1: 0.001"},
    {"adamw", 1, "schedule { kind: 'one_cycle' }"},
    {"partial_rowwise_adam", 1, "schedule { kind: 'inverse_sqrt' warmup_steps: 40 } clip_norm: 0.02"},
    {"ftrl", 1, "schedule { kind: 'polynomial' } l1: 0.01"},
    {"lamb", 1, "schedule { kind: 'cosine' } l2: 0.001"},
};

TEST_F(Resume, SameBitsWhenEverythingIsKilledAtSomeStep) {
  const std::string rows = WriteRows("rows.csv", 12007);
  const std::vector<std::vector<std::string>> layouts = {
      {"--servers=1", "--workers=1"}, {"--servers=2", "--shards=2", "--workers=2"}, {"--servers=3", "--workers=1"}, {}};
  size_t kill = 0;
  for (const OptimizerCase& c : kOptimizers) {
    const std::string job = WriteJob(fmt::format("job-{}", c.name), rows,
                                     fmt::format("batch {{ micro: 8 }} table_rule {{ table: '*' optimizer {{ name: '{}' "
                                                 "learning_rate: 0.01 {} }} }}", c.name, c.settings));
    const std::string whole = ShaOf(Train(job, {}));
    ASSERT_NE(whole, "none");
    for (int round = 0; round < c.rounds; ++round, ++kill) {
      std::vector<std::string> flags = layouts[kill % layouts.size()];
      flags.push_back(fmt::format("--checkpoint_steps={}", 20 + 17 * (kill % 5)));
      const std::string output = TrainAndKill(job, flags, 1 + kill % 4);
      const nlohmann::json result = GoOn(output, layouts[(kill + 1 + round) % layouts.size()]);
      EXPECT_EQ(ShaOf(result), whole) << c.name << ", kill " << kill;
      EXPECT_EQ(result.value("examples", 0u), 2 * 12007u) << c.name << ", kill " << kill;
    }
  }
  EXPECT_GT(2 * resumed(), kill) << "too many runs ended before they were killed: nothing was tried";
}

TEST_F(Resume, EverySampleOnceWhateverTheMode) {
  const std::string rows = WriteSparseRows("rows.libsvm", 40000);
  for (const char* mode : {"async", "ssp:2"}) {
    const std::string job = WriteCensusJob("job", {rows},
                                           fmt::format("epochs: 3 consistency: '{}' batch {{ micro: 8 }} "
                                                       "lease_batches: 16 checkpoint {{ steps: 500 }}", mode));
    const std::string output = TrainAndKill(job, {"--servers=2", "--workers=2"}, 2);
    const nlohmann::json result = GoOn(output, {"--servers=3", "--workers=1"});
    EXPECT_EQ(result.value("examples", 0u), 120000u) << mode;
    const auto model = SavedModel::Load(PosixFileSystem(), result.value("checkpoint", ""));
    ASSERT_TRUE(model.ok()) << model.status();
    uint64_t rows_counted = 0, wrong = 0;
    (*model)->ForEach(0, [&](Key, std::span<const float> row) {
      ++rows_counted;
      wrong += row[0] == 3.0f ? 0 : 1;
    });
    EXPECT_EQ(rows_counted, 40000u) << mode;
    EXPECT_EQ(wrong, 0u) << mode << ": rows that were not counted three times";
  }
}

TEST_F(Resume, AfterSigtermWithACheckpoint) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 20011), "batch { micro: 8 }");
  const std::string whole = ShaOf(Train(job, {"--epochs=12"}));
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--servers=2", "--workers=2"}}) {
    const std::string output = NewOutput();
    const std::string name = fmt::format("asked-{}", flags.size());
    std::vector<std::string> argv = {Program("capstan"), "train", job, "--output=" + output, "--epochs=12",
                                     "--set=checkpoint.epoch_end=false"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    processes_.Start(name, argv);
    ASSERT_TRUE(AwaitTraining(output));
    processes_.Signal(name, SIGTERM);
    ExpectEnd(name, 203, Seconds(30));
    EXPECT_EQ(Checkpoints(output).size(), 1u);
    EXPECT_EQ(ResultOf(output).value("status", ""), "preempted");
    EXPECT_EQ(ShaOf(GoOn(output, {})), whole);
  }
}

TEST_F(Resume, Sigusr1TakesACheckpointAndTrainingGoesOn) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 30011), "batch { micro: 8 }");
  const std::string output = NewOutput();
  processes_.Start("asked", {Program("capstan"), "train", job, "--output=" + output, "--servers=1", "--workers=1", "--epochs=12",
                             "--set=checkpoint.epoch_end=false"});
  ASSERT_TRUE(AwaitTraining(output));
  processes_.Signal("asked", SIGUSR1);
  EXPECT_TRUE(Eventually(Seconds(20), [&] { return !Checkpoints(output).empty(); }));
  ExpectEnd("asked", 0, kTrainLimit);
  EXPECT_GE(Checkpoints(output).size(), 2u) << "the one asked for and the last one";
}

TEST_F(Resume, AnotherNumberOfRanksBeginsWithTheNextEpoch) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 30011), "batch { micro: 8 }");
  const std::string output = TrainAndKill(job, {"--checkpoint_steps=40", "--epochs=3"}, 1);
  const Finished run = Capstan({"train", job, "--output=" + output, "--resume", "--epochs=3", "--set=ranks=2"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ResultOf(output).value("examples", 0u), 3 * 30011u);
  EXPECT_THAT(run.err, ::testing::HasSubstr("ranks was 4 and is 2 now"));
}

TEST_F(Resume, RefusesWhatDiffersByName) {
  const std::string rows = WriteRows("rows.csv", 2003);
  const std::string job = WriteJob("job", rows);
  const std::string output = Train(job, {})["output"];
  struct Case {
    std::vector<std::string> flags;
    const char* says;
  };
  const Case cases[] = {
      {{"--seed=9"}, "the seed is 1 in the checkpoint and 9"},
      {{"--set=optimizer.name=sgd"}, "the optimizer is adam in the checkpoint and sgd"},
      {{"--set=model.wide_deep.embedding_dim=4"}, "the width is"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> arguments = {"train", "--output=" + output, "--resume"};
    arguments.insert(arguments.end(), c.flags.begin(), c.flags.end());
    const Finished run = Capstan(arguments);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_THAT(run.err, ::testing::HasSubstr(c.says));
  }
  const Finished nothing = Capstan({"train", "--output=" + Path("none"), "--resume"});
  EXPECT_EQ(nothing.code, 4) << nothing.err;
}

TEST_F(Resume, WarmStartTakesWeightsAndFreezesTables) {
  const std::string rows = WriteRows("rows.csv", 4003);
  const std::string job = WriteJob("job", rows);
  const nlohmann::json first = Train(job, {});
  const nlohmann::json second = Train(job, {"--warm_start=" + first["output"].get<std::string>(), "--freeze=.*"});
  const auto before = SavedModel::Load(PosixFileSystem(), first.value("checkpoint", ""));
  const auto after = SavedModel::Load(PosixFileSystem(), second.value("checkpoint", ""));
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  uint64_t rows_seen = 0;
  for (const TableId table : {TableId{0}, TableId{1}, TableId{2}}) {
    EXPECT_EQ((*before)->rows(table), (*after)->rows(table));
    (*before)->ForEach(table, [&](Key key, std::span<const float> row) {
      const float* const now = (*after)->Find(table, key);
      ASSERT_NE(now, nullptr);
      ASSERT_EQ(row[0], now[0]);
      ++rows_seen;
    });
  }
  EXPECT_GT(rows_seen, 0u);
  EXPECT_EQ(second.value("steps", 1u), first.value("steps", 0u)) << "it begins at step 0";
}

TEST_F(Resume, PredictionsOfARestoredModelAreTheSameBits) {
  const std::string rows = WriteRows("rows.csv", 4003);
  const std::string output = Train(WriteJob("job", rows), {})["output"];
  ASSERT_EQ(Capstan({"predict", "--model=" + output, "--data=" + rows, "--out=" + Path("before.csv")}).code, 0);
  // Nothing is left to train: in another folder the model is restored and stored again.
  const std::string restored = NewOutput();
  const Finished again = Capstan({"train", "--resume=" + output, "--output=" + restored, "--servers=2", "--workers=1"});
  ASSERT_EQ(again.code, 0) << again.err;
  ASSERT_EQ(Capstan({"predict", "--model=" + restored, "--data=" + rows, "--out=" + Path("after.csv")}).code, 0);
  EXPECT_EQ(ReadText(Path("before.csv")), ReadText(Path("after.csv")));
  EXPECT_GT(ReadText(Path("after.csv")).size(), 10000u);
}

TEST_F(Resume, EvalFollowsARunUntilItsEnd) {
  const std::string test = WriteRows("test.csv", 1000, 2);
  const std::string job = WriteJob("job", WriteRows("rows.csv", 20011), "batch { micro: 8 }");
  const std::string output = NewOutput();
  processes_.Start("train", {Program("capstan"), "train", job, "--output=" + output, "--epochs=3"});
  ASSERT_TRUE(AwaitTraining(output));
  processes_.Start("follow", {Program("capstan"), "eval", "--model=" + output, "--data=" + test, "--follow"});
  ExpectEnd("train", 0, kTrainLimit);
  ExpectEnd("follow", 0, Seconds(20));
  const std::string said = processes_.out("follow");
  EXPECT_GE(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, ::testing::HasSubstr("\"checkpoint\""));
}

TEST_F(Resume, EvalFollowsByAnyNameOfARunThatHasEnded) {
  const std::string test = WriteRows("test.csv", 500, 2);
  const std::string output = Train(WriteJob("job", WriteRows("rows.csv", 2000)), {"--epochs=2"})["output"];
  const std::string newest = *Checkpoints(output).rbegin();
  for (const std::string& model : {output, output + "/checkpoints", output + "/checkpoints/",
                                   output + "/checkpoints/" + *Checkpoints(output).begin()}) {
    SCOPED_TRACE(model);
    const Finished run = Run("capstan", {"eval", "--model=" + model, "--data=" + test, "--follow"}, Seconds(20));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  }
}

TEST_F(Resume, EvalFollowNoticesARunThatWasCutOff) {
  const std::string test = WriteRows("test.csv", 500, 2);
  const std::string job = WriteJob("job", WriteRows("rows.csv", 50021), "batch { micro: 8 }");
  for (const bool processes : {false, true}) {
    std::vector<std::string> flags = {"--checkpoint_steps=50", "--epochs=50"};
    if (processes) flags.insert(flags.end(), {"--servers=1", "--workers=1"});
    const std::string output = TrainAndKill(job, flags, 2);
    for (const std::string& model : {output, output + "/checkpoints"}) {
      const Finished run = Run("capstan", {"eval", "--model=" + model, "--data=" + test, "--follow"}, Seconds(40));
      EXPECT_EQ(run.code, 200) << run.err;
      EXPECT_THAT(run.err, ::testing::HasSubstr("was cut off"));
      EXPECT_THAT(run.out, ::testing::HasSubstr("\"checkpoint\""));
    }
  }
}

// The bytes of the newest one's rows are not what was written: nothing but their hash tells.
TEST_F(Resume, ASilentlyDamagedTableFileMakesItTheCheckpointBefore) {
  const std::string rows = WriteRows("rows.csv", 20011);
  const std::string job = WriteJob("job", rows, "batch { micro: 8 }");
  const std::string output = Train(job, {"--epochs=2", "--checkpoint_steps=100"})["output"];
  const std::string newest = *Checkpoints(output).rbegin();
  const std::string folder = output + "/checkpoints/" + newest;
  std::string table;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/shard-0000")) {
    if (entry.path().extension() == ".sst") table = entry.path().string();
  }
  std::string bytes = ReadText(table);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_EQ(WriteFileAtomically(PosixFileSystem(), table, bytes), absl::OkStatus());
  const std::string named = "not used: " + newest;
  const std::string data = "--data=" + rows;
  const Finished eval = Capstan({"eval", "--model=" + output, data});
  EXPECT_EQ(eval.code, 0) << eval.err;
  EXPECT_THAT(eval.err, ::testing::AllOf(::testing::HasSubstr(named), ::testing::HasSubstr(table)));
  EXPECT_EQ(Capstan({"predict", "--model=" + output, data, "--out=" + Path("scores.csv")}).code, 0);
  const Finished refused = Capstan({"eval", "--model=" + folder, data});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, ::testing::HasSubstr(table));
  const Finished warm =
      Capstan({"train", output + "/job.textproto", "--warm_start=" + output, "--output=" + NewOutput()});
  EXPECT_EQ(warm.code, 0) << warm.err;
  EXPECT_THAT(warm.err, ::testing::HasSubstr(named));
  const Finished resumed_by_name = Capstan({"train", "--resume=" + folder, "--output=" + output});
  EXPECT_EQ(resumed_by_name.code, 4);
  EXPECT_THAT(resumed_by_name.err, ::testing::HasSubstr(table));
  EXPECT_EQ(GoOn(output, {})["exit_code"], 0);
}

// Whatever keeps the scheduler from beginning, the process ends.
TEST_F(Resume, ARootThatCannotBeReadEndsTheRunAtOnce) {
  const std::string output = Train(WriteJob("job", WriteRows("rows.csv", 2000)), {})["output"];
  const std::string root = output + "/checkpoints/capstan-root.pb";
  ASSERT_TRUE(std::filesystem::remove(root));
  ASSERT_TRUE(std::filesystem::create_directory(root));
  const Finished run = Run("capstan", {"train", "--output=" + output, "--resume", "--epochs=3"}, Seconds(20));
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.err, ::testing::HasSubstr("capstan-root.pb"));
}

}  // namespace
}  // namespace capstan::testing
