// The progress line and the output folder.
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/launcher/progress.h"
#include "tools/launcher/run_folder.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

TEST(Progress, ShortForms) {
  struct Case {
    double count;
    const char* text;
  };
  const Case counts[] = {{0, "0"},          {999, "999"},     {999.6, "1.00k"},  {1200, "1.20k"},
                         {45'230, "45.2k"}, {99'960, "100k"}, {999'400, "999k"}, {3.1e6, "3.10M"},
                         {2e13, "20.0T"},   {5e15, "5000T"}};
  for (const Case& c : counts) EXPECT_EQ(ShortCount(c.count), c.text);
  const Case times[] = {{0, "0:00"},         {6.6, "0:07"},     {72, "1:12"},
                        {3599.7, "1:00:00"}, {7384, "2:03:04"}, {-1, "0:00"}};
  for (const Case& c : times) EXPECT_EQ(ShortTime(c.count), c.text);
}

ProgressSample Sample(double seconds, uint64_t examples) {
  ProgressSample sample;
  sample.seconds = seconds;
  sample.examples = examples;
  sample.total_examples = 1'000'000;
  sample.loss = 0.42314;
  sample.steps = 1234;
  sample.epochs = 3;
  sample.workers = sample.workers_alive = 2;
  return sample;
}

TEST(Progress, Rates) {
  const ProgressRates rates = RatesBetween(Sample(8, 320'000), Sample(10, 420'000));
  EXPECT_DOUBLE_EQ(rates.now, 50'000);
  EXPECT_DOUBLE_EQ(rates.mean, 42'000);
  EXPECT_DOUBLE_EQ(*rates.percent, 42.0);
  EXPECT_NEAR(*rates.seconds_left, 580'000 / 46'000.0, 1e-9);
  const ProgressRates first = RatesBetween(ProgressSample(), Sample(0, 0));
  EXPECT_EQ(first.now, 0);
  EXPECT_EQ(first.mean, 0);
  EXPECT_EQ(*first.percent, 0);
  EXPECT_FALSE(first.seconds_left);
  ProgressSample unknown = Sample(10, 5);
  unknown.total_examples = 0;
  EXPECT_FALSE(RatesBetween(ProgressSample(), unknown).percent);
  EXPECT_EQ(*RatesBetween(ProgressSample(), Sample(10, 2'000'000)).percent, 100.0);
}

TEST(Progress, TheLineFitsTheTerminal) {
  const ProgressSample sample = Sample(10, 420'000);
  const ProgressRates rates = RatesBetween(Sample(8, 320'000), sample);
  EXPECT_EQ(ProgressLine(sample, rates, 200),
            " 42.0%  50.0k/s (mean 42.0k/s)  loss 0.4231  0:13 left  2/2 workers  epoch 1/3  step 1234");
  EXPECT_EQ(ProgressLine(sample, rates, 60), " 42.0%  50.0k/s (mean 42.0k/s)  loss 0.4231  0:13 left");
  EXPECT_EQ(ProgressLine(sample, rates, 4), " 42.");
  ProgressSample unknown = sample;
  unknown.total_examples = 0;
  EXPECT_THAT(ProgressLine(unknown, RatesBetween(ProgressSample(), unknown), 99),
              HasSubstr("420k rows  42.0k/s"));
}

TEST(Progress, JsonHasTheSameFigures) {
  ProgressSample sample = Sample(10, 420'000);
  const auto json = nlohmann::json::parse(ProgressJson(sample, RatesBetween(Sample(8, 320'000), sample)));
  EXPECT_EQ(json["examples"], 420'000);
  EXPECT_EQ(json["examples_per_second"], 50'000.0);
  EXPECT_EQ(json["examples_per_second_mean"], 42'000.0);
  EXPECT_EQ(json["loss"], 0.42314);
  EXPECT_EQ(json["percent"], 42.0);
  sample.loss = NAN;
  EXPECT_TRUE(nlohmann::json::parse(ProgressJson(sample, {}))["loss"].is_null());
}

TEST(Progress, WithoutATerminalEachSampleIsALine) {
  std::FILE* out = std::tmpfile();
  {
    ProgressView view(out);
    view.Show(Sample(1, 1000));
    EXPECT_THAT(view.Show(Sample(2, 3000)), HasSubstr("\"examples_per_second\":2000.0"));
  }
  std::rewind(out);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), out));
  std::fclose(out);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("\"examples\":3000"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

class RunFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    old_ = std::filesystem::current_path();
    std::filesystem::create_directories(base_);
    std::filesystem::current_path(base_);
  }
  void TearDown() override {
    std::filesystem::current_path(old_);
    std::filesystem::remove_all(base_);
  }
  const std::filesystem::path base_ =
      std::filesystem::path(::testing::TempDir()) / ("run_folder_test." + std::to_string(getpid()));
  std::filesystem::path old_;
};

TEST_F(RunFolderTest, DefaultNamesNeverMeet) {
  const auto first = RunFolder::Create("", "adult", 1'800'000'000);
  const auto second = RunFolder::Create("", "adult", 1'800'000'000);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(first->path(), ::testing::MatchesRegex("runs/adult-[0-9]{8}-[0-9]{6}"));
  EXPECT_EQ(second->path(), first->path() + "-2");
  EXPECT_TRUE(std::filesystem::is_directory(first->path() + "/logs"));
}

TEST_F(RunFolderTest, AFolderInUseIsRefused) {
  auto folder = RunFolder::Create("out/here/", "job", 0);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->path(), "out/here");
  EXPECT_EQ(folder->log_path("server-0"), "out/here/logs/server-0.log");
  const absl::Status again = RunFolder::Create("out/here", "job", 0).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(again.message()), HasSubstr("'out/here' is in use (it holds 'logs')"));
  std::filesystem::create_directories("empty");
  EXPECT_TRUE(RunFolder::Create("empty", "job", 0).ok());
}

TEST_F(RunFolderTest, OneHolderAtATime) {
  auto first = RunFolder::Create("out", "job", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = RunFolder::Continue("out", 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(std::to_string(getpid())));
  first = absl::UnknownError("let go");
  EXPECT_TRUE(RunFolder::Continue("out", 0).ok());
}

TEST_F(RunFolderTest, AStaleLockAloneIsAnEmptyFolder) {
  { EXPECT_TRUE(RunFolder::Create("out", "job", 0).ok()); }
  std::filesystem::remove_all("out/logs");
  EXPECT_TRUE(RunFolder::Create("out", "job", 0).ok());
}

TEST_F(RunFolderTest, ItsFiles) {
  auto folder = RunFolder::Create("out", "job", 0);
  ASSERT_TRUE(folder.ok());
  ASSERT_TRUE(folder->WriteJob("name: \"job\"\n").ok());
  ASSERT_TRUE(folder->AppendMetrics("{\"a\":1}").ok());
  ASSERT_TRUE(folder->AppendMetrics("{\"a\":2}").ok());
  EXPECT_EQ(*ReadWholeFile(PosixFileSystem(), "out/metrics.jsonl", 100), "{\"a\":1}\n{\"a\":2}\n");
  RunResult result;
  result.status = "done";
  result.examples = 1000;
  result.seconds = 4;
  result.steps = 10;
  result.model_sha256 = "ab";
  result.eval.emplace();
  result.eval->auc = 0.9;
  ASSERT_TRUE(folder->WriteResult(result).ok());
  const auto json = nlohmann::json::parse(*ReadWholeFile(PosixFileSystem(), "out/result.json", 4096));
  EXPECT_EQ(json["status"], "done");
  EXPECT_EQ(json["examples_per_second"], 250.0);
  EXPECT_EQ(json["eval"]["auc"], 0.9);
  EXPECT_TRUE(json["eval"]["logloss"].is_null());
  EXPECT_FALSE(json.contains("reason"));
}

TEST(RunResultJson, AFailureHasItsReason) {
  RunResult result;
  result.status = "failed";
  result.reason = "bad byte \xff";
  result.exit_code = 3;
  const auto json = nlohmann::json::parse(ResultJson(result));
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("bad byte"));
  EXPECT_TRUE(json["eval"].is_null());
  EXPECT_TRUE(json["model_sha256"].is_null());
  EXPECT_EQ(json["examples_per_second"], 0.0);
}

}  // namespace
}  // namespace capstan
