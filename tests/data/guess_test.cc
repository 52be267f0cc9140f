#include "data/guess.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/data/data_testing.h"

namespace capstan {
namespace {

using testing_data::DataDir;
using testing_data::Message;
using testing_data::Put;
using testing_data::ReadAll;
using testing_data::Scan;
using testing_data::Scanned;

std::string Described(const DataConfig& config) {
  std::string text;
  for (const FeatureConfig& feature : config.feature()) {
    if (!text.empty()) text += " ";
    text += feature.has_name() ? feature.name() : feature.column();
    text += feature.kind() == FeatureConfig::CATEGORICAL ? ":c" : ":n";
    if (feature.missing() == FeatureConfig::MISSING_INDICATOR) text += "?";
  }
  return text;
}

struct GuessCase {
  const char* why;
  const char* path;
  const char* text;
  const char* label;
  const char* features;
  const char* positive;
  const char* delimiter;
  DataConfig::Header header;
};
constexpr GuessCase kGuessCases[] = {
    {"numbers, texts, few whole numbers", "a.csv", "x,n,c,y\n1.5,1,a,0\n2.5,2,b,1\n", "y",
     "x:n n:n n#id:c c:c", "1", ",", DataConfig::HEADER_YES},
    {"semicolons and commas inside", "a.csv", "x;c;y\n1,5;\"a;b\";no\n2,5;c;no\n3,5;c;yes\n", "y", "x:c c:c",
     "yes", ";", DataConfig::HEADER_YES},
    {"bars, no ending that says so", "a.txt", "x|y\n1.5|A\n2.5|B\n3.5|A\n", "y", "x:n", "B", "|",
     DataConfig::HEADER_YES},
    {"tabs without the ending", "a.csv", "x\ty\n0.5\t1\n1.5\t2\n", "y", "x:n", "2", "\t",
     DataConfig::HEADER_YES},
    {"missing numbers", "a.csv", "x,y\n0.5,0\n?,1\nNA,1\n,0\n", "y", "x:n?", "1", ",",
     DataConfig::HEADER_YES},
    {"no header: columns are numbered", "a.csv", "0.5,a,1\n1.5,b,0\n", "3", "1:n 2:c", "1", ",",
     DataConfig::HEADER_NO},
    {"all text, the label's name tells", "a.csv", "c,y\na,x\nb,x\nc,z\n", "y", "c:c", "z", ",",
     DataConfig::HEADER_YES},
    {"an index column without a name", "a.csv", ",x,y\n0,1.5,0\n1,2.5,1\n", "y", "x:n", "1", ",",
     DataConfig::HEADER_YES},
    {"yes before rarity", "a.csv", "x,y\n.5,Yes\n1,Yes\n2,No\n", "y", "x:n", "Yes", ",",
     DataConfig::HEADER_YES},
    {"an empty column is left out", "a.csv", "x,e,y\n.5,,0\n1,?,1\n", "y", "x:n", "1", ",",
     DataConfig::HEADER_YES},
};

TEST(Guess, DecidesAsATableSays) {
  for (const GuessCase& c : kGuessCases) {
    const auto fs = NewMemoryFileSystem();
    Put(*fs, c.path, c.text);
    DataConfig config;
    const absl::StatusOr<std::string> report = GuessSchema(*fs, c.path, c.label, &config);
    ASSERT_TRUE(report.ok()) << c.why << ": " << report.status();
    EXPECT_EQ(Described(config), c.features) << c.why;
    ASSERT_EQ(config.label().positive_size(), 1) << c.why;
    EXPECT_EQ(config.label().positive(0), c.positive) << c.why;
    EXPECT_EQ(config.delimiter(), c.delimiter) << c.why;
    EXPECT_EQ(config.header(), c.header) << c.why;
    EXPECT_NE(report->find(std::string("'") + c.positive + "' means 1"), std::string::npos) << *report;
    EXPECT_TRUE(Scan(*fs, config, {c.path}).ok()) << c.why << ": " << Scan(*fs, config, {c.path}).status();
  }
}

TEST(Guess, KeepsWhatIsSet) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,n,y\n1.5,1,0\n2.5,2,1\n");
  DataConfig config = testing_data::ConfigOf(
      "delimiter: ',' missing_value: 'none' label { positive: '0' } feature { column: 'n' kind: CATEGORICAL "
      "}");
  ASSERT_TRUE(GuessSchema(*fs, "a.csv", "y", &config).ok());
  EXPECT_EQ(Described(config), "n:c");
  EXPECT_EQ(config.label().positive(0), "0");
  EXPECT_EQ(config.missing_value_size(), 1);
}

TEST(Guess, SaysWhatIsMissing) {
  struct ErrorCase {
    const char* text;
    const char* label;
    const char* message;
  };
  constexpr ErrorCase kCases[] = {
      {"age,y\n1,0\n2,1\n", "ags",
       "data.label.column: 'ags' is not in 'a.csv'; its columns are 'age', 'y', did you mean 'age'?"},
      {"age,y\n1,0\n2,1\n3,2\n", "y",
       "has 3 different values in its first rows ('0', '1', '2'), and two are wanted"},
      {"age,y\n1,0\n2,0\n", "y", "has 1 different values"},
      {"y\n0\n1\n", "y", "'a.csv' has no column besides 'y' to learn from"},
      {"1,2\n3,4\n", "y", "(it seems to have no header)"},
  };
  for (const ErrorCase& c : kCases) {
    const auto fs = NewMemoryFileSystem();
    Put(*fs, "a.csv", c.text);
    DataConfig config;
    const absl::Status status = GuessSchema(*fs, "a.csv", c.label, &config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_NE(Message(status).find(c.message), std::string::npos) << status;
  }
}

TEST(Guess, LibsvmNeedsNone) {
  const auto fs = NewMemoryFileSystem();
  DataConfig config;
  ASSERT_TRUE(GuessSchema(*fs, "a.libsvm.gz", "", &config).ok());
  EXPECT_EQ(config.format(), DataConfig::LIBSVM);
}

TEST(Guess, PublicFilesWorkAsTheyAre) {
  const std::string folder = DataDir();
  if (folder.empty()) GTEST_SKIP() << "no public data sets here; CAPSTAN_DATA_DIR names their folder";
  struct PublicCase {
    const char* path;
    const char* label;
    uint64_t rows;
    int64_t positives;
  };
  constexpr PublicCase kCases[] = {{"/adult/adult.data.gz", "15", 32561, 7841},
                                   {"/bank_marketing/bank-full.csv.gz", "y", 45211, 5289},
                                   {"/bank_marketing/bank-additional-full.csv.gz", "y", 41188, 4640},
                                   {"/higgs7k/binary.train.gz", "1", 7000, 3716}};
  for (const PublicCase& c : kCases) {
    DataConfig config;
    const std::string path = folder + c.path;
    const absl::StatusOr<std::string> report = GuessSchema(PosixFileSystem(), path, c.label, &config);
    ASSERT_TRUE(report.ok()) << report.status();
    const absl::StatusOr<Scanned> scanned = Scan(PosixFileSystem(), config, {path});
    ASSERT_TRUE(scanned.ok()) << scanned.status() << *report;
    EXPECT_EQ(scanned->plan.rows(), c.rows);
    const absl::StatusOr<std::vector<ParsedSplit>> splits = ReadAll(PosixFileSystem(), config, *scanned);
    ASSERT_TRUE(splits.ok()) << splits.status();
    int64_t positives = 0;
    for (const ParsedSplit& split : *splits) {
      positives += std::count(split.rows.labels.begin(), split.rows.labels.end(), 1.0f);
    }
    EXPECT_EQ(positives, c.positives) << c.path << "\n" << *report;
  }
}

}  // namespace
}  // namespace capstan
