#include "tools/split/split_command.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace capstan {
namespace {

using ::testing::HasSubstr;

SplitOptions Options(const std::string& data) {
  SplitOptions options;
  options.data = data;
  options.label = "bought";
  options.out_train = "train.csv";
  options.out_test = "test.csv";
  return options;
}

void Put(FileSystem& fs, const std::string& path, const std::string& text) {
  ASSERT_TRUE(WriteFileAtomically(fs, path, text).ok());
}

std::vector<std::string> Lines(FileSystem& fs, const std::string& path) {
  std::istringstream in(ReadWholeFile(fs, path, 1 << 20).value_or("cannot be read"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string ManyVisits(int rows) {
  std::string text = "age,bought\n";
  for (int i = 0; i < rows; ++i) text += std::to_string(i) + (i % 3 == 0 ? ",1\n" : ",0\n");
  return text;
}

TEST(Split, EveryRowGoesToOneSideInOrderAndAHeaderToBoth) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "my.csv", ManyVisits(1000));
  const absl::StatusOr<SplitReport> report = SplitFile(*fs, Options("my.csv"));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::vector<std::string> train = Lines(*fs, "train.csv"), test = Lines(*fs, "test.csv");
  ASSERT_EQ(train.size(), report->train_rows + 1);
  ASSERT_EQ(test.size(), report->test_rows + 1);
  EXPECT_EQ(train[0], "age,bought");
  EXPECT_EQ(test[0], "age,bought");
  EXPECT_EQ(report->train_rows + report->test_rows, 1000u);
  EXPECT_NEAR(static_cast<double>(report->test_rows), 200, 40);
  std::vector<int> ages;
  for (const auto* side : {&train, &test}) {
    int before = -1;
    for (size_t i = 1; i < side->size(); ++i) {
      ages.push_back(std::stoi((*side)[i]));
      EXPECT_LT(before, ages.back());
      before = ages.back();
    }
  }
  std::sort(ages.begin(), ages.end());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ages[static_cast<size_t>(i)], i);
}

TEST(Split, DependsOnTheSeedAndTheRowAloneSoThatAFileMayGrow) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "short.csv", ManyVisits(100));
  Put(*fs, "long.csv", ManyVisits(150));
  ASSERT_TRUE(SplitFile(*fs, Options("short.csv")).ok());
  const std::vector<std::string> first = Lines(*fs, "test.csv");
  ASSERT_TRUE(SplitFile(*fs, Options("long.csv")).ok());
  std::vector<std::string> longer = Lines(*fs, "test.csv");
  ASSERT_GE(longer.size(), first.size());
  longer.resize(first.size());
  EXPECT_EQ(longer, first);

  SplitOptions other = Options("short.csv");
  other.seed = 2;
  ASSERT_TRUE(SplitFile(*fs, other).ok());
  EXPECT_NE(Lines(*fs, "test.csv"), first);
}

TEST(Split, CopiesRecordsAsTheyStandQuotedLineEndsIncluded) {
  const auto fs = NewMemoryFileSystem();
  std::string text = "\xEF\xBB\xBFnote;bought\r\n";
  for (int i = 0; i < 40; ++i)
    text += "\"two\r\nlines; \"\"quoted\"\"\";" + std::to_string(i % 2) + "\r\n\r\n";
  Put(*fs, "my.csv", text);
  const absl::StatusOr<SplitReport> report = SplitFile(*fs, Options("my.csv"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->train_rows + report->test_rows, 40u);
  const std::string test = ReadWholeFile(*fs, "test.csv", 1 << 20).value();
  EXPECT_EQ(test.substr(0, 13), "note;bought\n\"");
  EXPECT_THAT(test, HasSubstr("\"two\r\nlines; \"\"quoted\"\"\";0\n\"two\r\nlines; \"\"quoted\"\"\";"));
}

TEST(Split, NoHeaderMeansNoLineIsDoubled) {
  const auto fs = NewMemoryFileSystem();
  std::string rows;
  for (int i = 0; i < 60; ++i) rows += std::to_string(i + 5) + "\t" + std::to_string(i % 2) + "\n";
  Put(*fs, "my.tsv", rows);
  SplitOptions options = Options("my.tsv");
  options.label = "2";
  const absl::StatusOr<SplitReport> report = SplitFile(*fs, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(Lines(*fs, "train.csv").size() + Lines(*fs, "test.csv").size(), 60u);

  Put(*fs, "my.libsvm", "1 1:1\n0 2:1\n1 1:1\n0 2:1\n1 1:1\n0 2:1\n1 1:1\n0 2:1\n1 1:1\n0 2:1\n");
  options = Options("my.libsvm");
  options.label = "";
  options.fraction = 0.5;
  const absl::StatusOr<SplitReport> sparse = SplitFile(*fs, options);
  ASSERT_TRUE(sparse.ok()) << sparse.status();
  EXPECT_EQ(sparse->train_rows + sparse->test_rows, 10u);
}

TEST(Split, SaysWhatIsWrongAndLeavesNoFile) {
  struct Case {
    const char* text;
    const char* label;
    double fraction;
    const char* wanted;
  };
  const Case cases[] = {
      {"age,bought\n1,0\n2,1\n3,0\n", "bougt", 0.2, "did you mean 'bought'?"},
      {"age,bought\n1,0\n2,1\n3,0\n", "", 0.2, "--label is missing"},
      {"age,bought\n1,0\n2,1\n3,0\n", "bought", 0.0, "--fraction=0 is not between 0 and 1"},
      {"age,bought\n1,0\n2,1\n3,0\n", "bought", 1e-9, "both sides want at least one"},
      {"age,bought\n1,0\n2,1\n3,\"0\n", "bought", 0.5, "my.csv:4"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.wanted);
    const auto fs = NewMemoryFileSystem();
    Put(*fs, "my.csv", c.text);
    SplitOptions options = Options("my.csv");
    options.label = c.label;
    options.fraction = c.fraction;
    const absl::StatusOr<SplitReport> report = SplitFile(*fs, options);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(std::string(report.status().message()), HasSubstr(c.wanted));
    for (const char* name : {"train.csv", "test.csv", "train.csv.tmp", "test.csv.tmp"}) {
      EXPECT_FALSE(fs->Exists(name).value()) << name;
    }
  }
  const auto fs = NewMemoryFileSystem();
  EXPECT_TRUE(absl::IsNotFound(SplitFile(*fs, Options("absent.csv")).status()));
  SplitOptions same = Options("my.csv");
  same.out_test = "my.csv";
  EXPECT_FALSE(CheckSplitOptions(same).ok());
}

}  // namespace
}  // namespace capstan
