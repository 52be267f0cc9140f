// capstan-bench, run as a program on few rows: its figures mean nothing here, but they are all there.
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace capstan {
namespace {

using ::testing::HasSubstr;

struct BenchResult {
  int code = -1;
  std::string text;
};

BenchResult RunBenchProgram(const std::string& arguments) {
  BenchResult result;
  std::FILE* const out = popen((std::string(CAPSTAN_BIN_DIR "/capstan-bench ") + arguments).c_str(), "r");
  if (out == nullptr) return result;
  std::array<char, 4096> some;
  for (size_t got = 1; got > 0;) {
    got = std::fread(some.data(), 1, some.size(), out);
    result.text.append(some.data(), got);
  }
  const int status = pclose(out);
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  return result;
}

// By name; one JSON object a line.
std::map<std::string, nlohmann::json> FiguresOf(std::string text) {
  std::map<std::string, nlohmann::json> figures;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
    const nlohmann::json line = nlohmann::json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
    text.erase(0, end + 1);
    EXPECT_TRUE(line.is_object()) << line;
    if (line.is_object()) figures[line.value("name", "")] = line;
  }
  return figures;
}

TEST(BenchProgram, CheckpointPrintsEveryFigureBesideItsLimit) {
  const BenchResult run = RunBenchProgram("checkpoint --rows=20000 --seconds=0.1 --json");
  ASSERT_EQ(run.code, 0) << run.text;
  const std::map<std::string, nlohmann::json> figures = FiguresOf(run.text);
  std::string names;
  for (const auto& [name, figure] : figures) {
    names += name + " ";
    for (const char* number : {"value", "limit", "ratio"}) {
      ASSERT_TRUE(figure.contains(number)) << figure;
      EXPECT_TRUE(std::isfinite(figure[number].get<double>()) && figure[number].get<double>() > 0) << figure;
    }
    EXPECT_NE(figure.value("limit_name", ""), "") << figure;
  }
  EXPECT_EQ(names,
            "checkpoint.busy.pull_max checkpoint.busy.pull_p50 checkpoint.busy.pull_p99 checkpoint.busy.step "
            "checkpoint.busy.step_mean "
            "checkpoint.full.16 checkpoint.full_cpu.16 checkpoint.increment.16.1% checkpoint.increment.16.10% "
            "checkpoint.increment.16.100% checkpoint.increment_time.16.1% checkpoint.increment_time.16.10% "
            "checkpoint.increment_time.16.100% checkpoint.longest_slice checkpoint.memory ");
}

TEST(BenchProgram, OptionsOutOfRangeAreRefused) {
  const BenchResult rows = RunBenchProgram("checkpoint --rows=999 2>&1");
  EXPECT_EQ(rows.code, 2);
  EXPECT_THAT(rows.text, HasSubstr("--rows=999; it must be 1000 or more"));
  const BenchResult width = RunBenchProgram("checkpoint --width=5000 2>&1");
  EXPECT_EQ(width.code, 2);
  EXPECT_THAT(width.text, HasSubstr("--width=5000 is outside 1 to 4096"));
}

}  // namespace
}  // namespace capstan
