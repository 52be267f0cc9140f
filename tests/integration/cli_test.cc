// The command line, from outside: what a person or a script sees.
#include <cstdlib>
#include <sstream>

#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class CliTest : public IntegrationTest {
 protected:
  std::vector<std::string> KeysOf(const nlohmann::json& object) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    return keys;  // sorted
  }
  std::vector<std::string> LinesOf(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
};

struct UsageCase {
  const char* program;
  std::vector<std::string> arguments;
  int code;
  const char* says;  // on stderr, or on stdout where the code is 0
};

TEST_F(CliTest, Usage) {
  const std::vector<UsageCase> cases = {
      {"capstan", {}, 2, "train"},
      {"capstan", {"--help"}, 0, "predict"},
      {"capstan", {"--version"}, 0, "."},
      {"capstan", {"tarin"}, 2, "train"},
      {"capstan", {"train", "--help"}, 0, "--consistency"},
      {"capstan", {"train", "--epoch=3"}, 2, "--epochs"},
      {"capstan", {"train", "--epochs=three"}, 2, "three"},
      {"capstan", {"train"}, 2, "--data"},
      {"capstan", {"train", "no-such-job"}, 2, "no-such-job"},
      {"capstan", {"train", "one", "two"}, 2, "two"},
      {"capstan", {"eval"}, 2, "--model"},
      {"capstan", {"eval", "--model=nowhere", "--data=x"}, 4, "nowhere"},
      {"capstan", {"predict", "--model=nowhere"}, 2, "--data"},
      {"capstan", {"gen", "--out=x"}, 2, "--rows"},
      {"capstan", {"gap"}, 2, "predictions"},
      {"capstan-ps", {"--help"}, 0, "--shards"},
      {"capstan-ps", {}, 2, "--scheduler"},
      {"capstan-ps", {"--scheduler=127.0.0.1:1", "--shard=2"}, 2, "--shards"},
      {"capstan-ps", {"--scheduler=127.0.0.1:1", "--shards=0"}, 2, "--shards=0"},
      {"capstan-ps", {"--scheduler=nonsense"}, 2, "nonsense"},
      {"capstan-worker", {"--help"}, 0, "--join_timeout_ms"},
      {"capstan-worker", {}, 2, "--scheduler"},
      {"capstan-worker", {"--scheduler=127.0.0.1:1", "extra"}, 2, "extra"},
      {"capstan-scheduler", {"--help"}, 0, "--bind"},
      {"capstan-scheduler", {}, 2, "--job"},
      {"capstan-scheduler", {"--job=no-such-job"}, 2, "no-such-job"},
      {"capstan-scheduler", {"--job=x", "--bind=nonsense"}, 2, "nonsense"},
  };
  for (const UsageCase& c : cases) {
    const Finished run = Run(c.program, c.arguments, Seconds(20));
    const std::string line = fmt::format("{} {}", c.program, c.arguments.empty() ? "" : c.arguments.back());
    EXPECT_EQ(run.code, c.code) << line << "\n" << run.err;
    EXPECT_THAT(c.code == 0 ? run.out : run.err, HasSubstr(c.says)) << line;
  }
}

TEST_F(CliTest, AJobThatCannotRunExitsTwoAndNamesTheKey) {
  const std::string rows = WriteRows("rows.csv", 101);
  const std::string good = WriteJob("good", rows);
  const std::string broken = WriteJob("broken", rows, "learning_rate: 3");
  Finished run = Capstan({"train", broken, "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("broken:"), HasSubstr("learning_rate")));
  run = Capstan({"train", good, "--workers=5", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("5 workers for 4 ranks"));
  run = Capstan({"train", good, "--consistency=eventual", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("eventual"));
  run = Capstan({"train", good, "--set=epochs", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  run = Run("capstan-scheduler", {"--job=" + good, "--workers=5", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("5 workers for 4 ranks"));
}

TEST_F(CliTest, TrainingThatDivergesFailsByName) {
  const std::string rows = WriteRows("rows.csv", 301);
  const std::string job = WriteJob("wild", rows);
  const Finished run = Capstan({"train", job, "--epochs=30", "--set", "optimizer.name=sgd", "--set",
                                "optimizer.learning_rate=1000000", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 1) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("is not finite"), HasSubstr("optimizer.learning_rate")));
}

TEST_F(CliTest, AStreamThatIsClosedOrFullDoesNotAbortARun) {
  const std::string job = WriteJob("quiet", WriteRows("rows.csv", 101));
  const std::string capstan = CAPSTAN_BIN_DIR "/capstan";
  for (const char* streams : {">/dev/full 2>/dev/full", ">&- 2>&-"}) {
    EXPECT_EQ(std::system(fmt::format("{} train {} --output={} {}", capstan, job, NewOutput(), streams).c_str()), 0)
        << streams;
  }
}

TEST_F(CliTest, AResultReplacesNeitherItsInputNorADevice) {
  const std::string rows = WriteRows("rows.csv", 101);
  const std::string output = NewOutput();
  ASSERT_EQ(Capstan({"train", WriteJob("kept", rows), "--output=" + output}).code, 0);
  Finished run = Capstan({"predict", "--model=" + output, "--data=" + rows, "--out=" + rows});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("is the input"));
  run = Capstan({"gen", "--rows=10", "--out=/dev/full"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("not an ordinary file"));
}

TEST_F(CliTest, ABadDataFileExitsThreeAndNamesThePlace) {
  WriteText(Path("bad.csv"), "label,size,age,colour,town\n1,0.5,40,c1,t1\n0,much,40,c1,t1\n");
  const std::string job = WriteJob("job", Path("bad.csv"));
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{}, {"--servers=1", "--workers=2"}}) {
    std::vector<std::string> arguments = {"train", job, "--output=" + NewOutput()};
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    const Finished run = Capstan(arguments);
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("bad.csv:3:"), HasSubstr("size"), HasSubstr("much")));
  }
  const Finished missing = Capstan({"train", job, "--data=" + Path("none.csv"), "--output=" + NewOutput()});
  EXPECT_EQ(missing.code, 2) << missing.err;  // the job names a file that is not there
  EXPECT_THAT(missing.err, AllOf(HasSubstr("data.train"), HasSubstr("none.csv")));
}

TEST_F(CliTest, AFolderInUseIsRefused) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 301));
  const std::string output = Train(job, {}).value("output", "");
  const std::string before = ReadText(output + "/result.json");
  for (const char* flag : {"--workers=1", "--servers=1"}) {
    const Finished again = Capstan({"train", job, flag, "--output=" + output});
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, AllOf(HasSubstr(output), HasSubstr("in use")));
  }
  EXPECT_EQ(ReadText(output + "/result.json"), before);
}

TEST_F(CliTest, TheOutputFolderSaysEverything) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 3001), "batch { global: 128 }");
  const std::string test = WriteRows("test.csv", 1000, 2);
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{}, {"--servers=2", "--workers=2"}}) {
    std::vector<std::string> flags = {"--eval_data=" + test, "--seed=9",
                                      "--set=optimizer.learning_rate=0.01"};
    flags.insert(flags.end(), layout.begin(), layout.end());
    nlohmann::json result = Train(job, flags);
    const std::string output = result.value("output", "");
    result.erase("output");
    EXPECT_THAT(KeysOf(result), ElementsAre("checkpoint", "eval", "examples", "examples_per_second",
                                            "exit_code", "model_sha256", "seconds", "status", "steps"));
    EXPECT_THAT(KeysOf(result["eval"]), ElementsAre("accuracy", "auc", "calibration", "logloss", "rows"));
    EXPECT_EQ(result["examples"], 6002);
    EXPECT_EQ(result["eval"]["rows"], 1000);
    EXPECT_GT(result["seconds"], 0.0);
    EXPECT_GT(result["examples_per_second"], 0.0);
    EXPECT_THAT(ShaOf(result), MatchesRegex("[0-9a-f]{64}"));
    const std::vector<std::string> metrics = LinesOf(ReadText(output + "/metrics.jsonl"));
    ASSERT_FALSE(metrics.empty());
    for (const std::string& line : metrics) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    EXPECT_EQ(nlohmann::json::parse(metrics.back())["examples"], 6002);
    // The job that it wrote makes the same model again, without any flag.
    EXPECT_EQ(ShaOf(Train(output + "/job.textproto", {})), result["model_sha256"]);
    if (!layout.empty()) {
      for (const char* process : {"scheduler", "server-0", "server-1", "worker-0", "worker-1"}) {
        EXPECT_EQ(access((output + "/logs/" + process + ".log").c_str(), R_OK), 0) << process;
      }
    }
  }
}

TEST_F(CliTest, AFullDiskIsSaidAndEndsTheRun) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 2001));
  for (const char* layout : {"--workers=1", "--servers=1"}) {
    const std::string output = NewOutput();
    // A file may have 8 KiB (16 blocks of 512 bytes); the model has more. The signal for it is ignored, so
    // that writing fails as on a full disk.
    const std::string command =
        fmt::format("trap '' XFSZ; ulimit -f 16; exec '{}' train '{}' {} --output='{}'", Program("capstan"),
                    job, layout, output);
    const Finished run = Run("/bin/sh", {"-c", command});
    EXPECT_EQ(run.code, 4) << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("storing the model"), HasSubstr("File too large"))) << layout;
  }
}

TEST_F(CliTest, FromGeneratedLogToGap) {
  const std::string train = Path("train.tsv"), test = Path("test.tsv"), scores = Path("scores.csv");
  EXPECT_EQ(Capstan({"gen", "--rows=20000", "--out=" + train}).code, 0);
  const Finished gen = Capstan({"gen", "--rows=5000", "--start=1000000000", "--out=" + test});
  EXPECT_EQ(gen.code, 0);
  EXPECT_THAT(gen.out + gen.err, HasSubstr("AUC"));
  const nlohmann::json result = Train(CAPSTAN_SOURCE_DIR "/examples/clicks_wide_deep.textproto",
                                      {"--data=" + train, "--eval_data=" + test, "--epochs=2",
                                       "--set=model.wide_deep.hidden=32", "--set=batch.global=256"});
  const std::string output = result.value("output", "");
  const Finished eval = Capstan({"eval", "--model=" + output, "--data=" + test});
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_EQ(nlohmann::json::parse(eval.out)["auc"], result["eval"]["auc"]);
  EXPECT_EQ(nlohmann::json::parse(eval.out)["logloss"], result["eval"]["logloss"]);
  EXPECT_GT(result["eval"]["auc"], 0.6);
  const Finished predict = Capstan({"predict", "--model=" + output, "--data=" + test, "--out=" + scores});
  ASSERT_EQ(predict.code, 0) << predict.err;
  EXPECT_EQ(LinesOf(ReadText(scores)).size(), 5001u);
  const Finished gap = Capstan({"gap", scores, "--start=1000000000"});
  EXPECT_EQ(gap.code, 0) << gap.err;
  EXPECT_THAT(gap.out + gap.err, HasSubstr("gap"));
}

TEST_F(CliTest, PredictionsComeInTheOrderOfTheInputAndAgreeWithEval) {
  const std::string job = WriteJob("job", WriteRows("rows.csv", 4001));
  const std::string test = WriteRows("test.csv", 3001, 3);
  const nlohmann::json result = Train(job, {"--eval_data=" + test});
  const Finished predict = Capstan({"predict", "--model=" + result.value("output", ""), "--data=" + test});
  ASSERT_EQ(predict.code, 0) << predict.err;
  const std::vector<std::string> scored = LinesOf(predict.out), rows = LinesOf(ReadText(test));
  ASSERT_EQ(scored.size(), 3002u);
  EXPECT_EQ(scored[0], "row,score");
  std::vector<double> positive, negative;
  for (size_t i = 1; i < scored.size(); ++i) {
    size_t row = 0;
    double score = 0;
    ASSERT_EQ(std::sscanf(scored[i].c_str(), "%zu,%lf", &row, &score), 2) << scored[i];
    ASSERT_EQ(row, i - 1);
    (rows[i][0] == '1' ? positive : negative).push_back(score);
  }
  double wins = 0;  // the AUC by its definition
  for (const double p : positive) {
    for (const double n : negative) wins += p > n ? 1 : p == n ? 0.5 : 0;
  }
  const double auc = wins / (static_cast<double>(positive.size()) * static_cast<double>(negative.size()));
  EXPECT_NEAR(auc, result["eval"].value("auc", 0.0), 1e-9);
  EXPECT_GT(auc, 0.75);
}

TEST_F(CliTest, AFileWithoutAJobTrains) {
  const std::string rows = WriteRows("rows.csv", 3001);
  const std::string output = NewOutput();
  const Finished run =
      Capstan({"train", "--data=" + rows, "--eval_data=" + rows, "--label=label", "--output=" + output});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_GT(ResultOf(output)["eval"].value("auc", 0.0), 0.6) << run.err;
  const Finished typo = Capstan({"train", "--data=" + rows, "--label=lable", "--output=" + NewOutput()});
  EXPECT_NE(typo.code, 0);
  EXPECT_THAT(typo.err, AllOf(HasSubstr("lable"), HasSubstr("label")));
}

}  // namespace
}  // namespace capstan::testing
