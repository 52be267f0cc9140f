#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/data/data_testing.h"

namespace capstan {
namespace {

using testing_data::ConfigOf;
using testing_data::DataDir;
using testing_data::Message;
using testing_data::Put;
using testing_data::ReadAll;
using testing_data::Scan;
using testing_data::Scanned;

constexpr char kPeople[] = R"(
  label { column: "y" }
  feature { column: "age" }
  feature { column: "city" kind: CATEGORICAL }
)";

Batch ReadOne(FileSystem& fs, const DataConfig& config, const Scanned& scanned, bool labels = true) {
  const absl::StatusOr<std::vector<ParsedSplit>> splits = ReadAll(fs, config, scanned, labels);
  EXPECT_TRUE(splits.ok()) << splits.status();
  Batch all;
  for (const ParsedSplit& split : *splits) {
    const Batch& rows = split.rows;
    all.rows += rows.rows;
    all.numeric_width = rows.numeric_width;
    all.numeric.insert(all.numeric.end(), rows.numeric.begin(), rows.numeric.end());
    all.labels.insert(all.labels.end(), rows.labels.begin(), rows.labels.end());
    all.weights.insert(all.weights.end(), rows.weights.begin(), rows.weights.end());
    all.row_ids.insert(all.row_ids.end(), rows.row_ids.begin(), rows.row_ids.end());
    all.sparse.resize(rows.sparse.size());
    for (size_t i = 0; i < rows.sparse.size(); ++i) {
      all.sparse[i].keys.insert(all.sparse[i].keys.end(), rows.sparse[i].keys.begin(),
                                rows.sparse[i].keys.end());
    }
  }
  return all;
}

Scanned MustScan(FileSystem& fs, const DataConfig& config, const std::vector<std::string>& files,
                 SplitRule rule = {}, Recipe recipe = {}) {
  absl::StatusOr<Scanned> scanned = Scan(fs, config, files, rule, std::move(recipe));
  EXPECT_TRUE(scanned.ok()) << scanned.status();
  return scanned.ok() ? *std::move(scanned) : Scanned();
}

TEST(Dataset, StandardizesAndHashes) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "age,city,y\n1,Paris,0\n3,\"Paris\",1\n,,0\n5,Rome,1\n");
  const DataConfig config = ConfigOf(kPeople);
  const Scanned scanned = MustScan(*fs, config, {"a.csv"});
  ASSERT_EQ(scanned.recipe.numeric_size(), 1);
  EXPECT_EQ(scanned.recipe.numeric(0).count(), 3u);
  EXPECT_DOUBLE_EQ(scanned.recipe.numeric(0).mean(), 3);
  EXPECT_DOUBLE_EQ(scanned.recipe.numeric(0).stddev(), std::sqrt(8.0 / 3));
  const Batch all = ReadOne(*fs, config, scanned);
  const auto z = static_cast<float>(2 / std::sqrt(8.0 / 3));
  EXPECT_EQ(all.numeric, (std::vector<float>{-z, 0, 0, z}));
  EXPECT_EQ(all.labels, (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(all.weights, (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(all.row_ids, (std::vector<uint64_t>{0, 1, 2, 3}));
  const std::vector<uint64_t>& keys = all.sparse[0].keys;
  EXPECT_EQ(keys[0], keys[1]) << "quoting does not change a key";
  EXPECT_NE(keys[0], keys[2]);
  EXPECT_NE(keys[0], keys[3]);
  EXPECT_NE(keys[2], keys[3]);
}

struct MissingCase {
  const char* why;
  const char* feature;
  std::vector<float> inputs;  // of the values 2, missing, 4
};
const MissingCase kMissingCases[] = {
    {"mean is zero once standardized", "normalize: STANDARDIZE", {-1, 0, 1}},
    {"raw: the fitted mean", "normalize: NONE", {2, 3, 4}},
    {"raw zero", "normalize: NONE missing: MISSING_ZERO", {2, 0, 4}},
    {"zero in the output's unit", "normalize: STANDARDIZE missing: MISSING_ZERO", {-1, 0, 1}},
    {"indicator right after", "normalize: STANDARDIZE missing: MISSING_INDICATOR", {-1, 0, 0, 1, 1, 0}},
    {"raw with indicator", "normalize: NONE missing: MISSING_INDICATOR", {2, 0, 3, 1, 4, 0}},
    {"log1p of two values is ±1 too", "normalize: LOG1P_STANDARDIZE", {-1, 0, 1}},
};

TEST(Dataset, MissingPolicies) {
  for (const MissingCase& c : kMissingCases) {
    for (const char* text : {"", "?", "\"\"", "\"?\""}) {
      const auto fs = NewMemoryFileSystem();
      Put(*fs, "a.csv", std::string("x,y\n2,0\n") + text + ",1\n4,0\n");
      const DataConfig config = ConfigOf(
          std::string("missing_value: '?' label { column: 'y' } feature { column: 'x' ") + c.feature + " }");
      const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"}));
      EXPECT_EQ(all.numeric_width, ShapeOf(config).numeric_width) << c.why;
      ASSERT_EQ(all.numeric.size(), c.inputs.size()) << c.why;
      for (size_t i = 0; i < c.inputs.size(); ++i)
        EXPECT_FLOAT_EQ(all.numeric[i], c.inputs[i]) << c.why << " " << text;
    }
  }
}

TEST(Dataset, MissingIsAKeyThatNoTextHas) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "age,city,y\n1,,1\n1,missing,1\n1,NA,0\n1,?,0\n");
  DataConfig config = ConfigOf(kPeople);
  std::vector<uint64_t> keys = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"})).sparse[0].keys;
  EXPECT_NE(keys[0], keys[3]) << "'?' is text until it is listed";
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
  config.add_missing_value("?");
  keys = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"})).sparse[0].keys;
  EXPECT_EQ(keys[0], keys[3]);
  EXPECT_NE(keys[0], keys[2]);
}

TEST(Dataset, SaltsSeparateOrShareKeys) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "a,b,y\nx,x,1\n");
  const DataConfig config = ConfigOf(R"(
    label { column: "y" }
    feature { column: "a" kind: CATEGORICAL }
    feature { column: "b" kind: CATEGORICAL }
    feature { column: "a" name: "a2" kind: CATEGORICAL salt: "shared" }
    feature { column: "b" name: "b2" kind: CATEGORICAL salt: "shared" })");
  const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"}));
  EXPECT_NE(all.sparse[0].keys[0], all.sparse[1].keys[0]);
  EXPECT_EQ(all.sparse[2].keys[0], all.sparse[3].keys[0]);
  EXPECT_EQ(ShapeOf(config).sparse_names, (std::vector<std::string>{"a", "b", "a2", "b2"}));
}

TEST(Dataset, OneColumnFeedsSeveralFeatures) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,y\n1,0\n3,1\n");
  const DataConfig config = ConfigOf(R"(
    label { column: "y" }
    feature { column: "x" }
    feature { column: "x" name: "raw" normalize: NONE }
    feature { column: "x" name: "id" kind: CATEGORICAL })");
  const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"}));
  EXPECT_EQ(all.numeric, (std::vector<float>{-1, 1, 1, 3}));
  EXPECT_EQ(all.sparse.size(), 1u);
}

TEST(Dataset, ConstantColumnsBecomeZero) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,y\n0.1,0\n0.1,1\n0.1,1\n");
  const DataConfig config = ConfigOf("label { column: 'y' } feature { column: 'x' }");
  EXPECT_EQ(ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"})).numeric, (std::vector<float>{0, 0, 0}));
}

TEST(Dataset, LabelsAndWeights) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,w,y\n1,0,yes\n1,2.5,YES\n1,1,no\n");
  const DataConfig config = ConfigOf(
      "label { column: 'y' positive: 'yes' positive: 'YES' negative: 'no' } weight_column: 'w' feature { "
      "column: 'x' }");
  const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"}));
  EXPECT_EQ(all.labels, (std::vector<float>{1, 1, 0}));
  EXPECT_EQ(all.weights, (std::vector<float>{0, 2.5, 1}));
}

TEST(Dataset, NumericLabelsAreOneAboveZero) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,y\n1,-1\n1,0\n1,+1\n1,0.5\n1,1e3\n");
  const DataConfig config = ConfigOf("label { column: 'y' } feature { column: 'x' }");
  EXPECT_EQ(ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"})).labels,
            (std::vector<float>{0, 0, 1, 1, 1}));
}

TEST(Dataset, HeaderRules) {
  struct HeaderCase {
    const char* why;
    const char* config;
    const char* text;
  };
  const HeaderCase cases[] = {
      {"auto: first line", "", "x,y\n7,1\n5,0\n"},
      {"byte order mark and CRLF", "", "\xef\xbb\xbfx,y\r\n7,1\r\n5,0\r\n"},
      {"quoted names", "", "\"x\",\"y\"\n7,1\n5,0\n"},
      {"comment above it", "comment_prefix: '#'", "# made by hand\nx,y\n7,1\n5,0"},
      {"auto: named columns mean none", "column: 'x' column: 'y'", "7,1\n5,0\n"},
      {"names replace the header's", "column: 'x' column: 'y' header: HEADER_YES", "a,b\n7,1\n5,0\n"},
      {"semicolons", "delimiter: ';'", "x;y\n7;1\n5;0\n"},
      {"another order", "", "y,z,x\n1,?,7\n0,?,5\n"},
  };
  for (const HeaderCase& c : cases) {
    const auto fs = NewMemoryFileSystem();
    Put(*fs, "a.csv", c.text);
    const DataConfig config =
        ConfigOf(std::string("label { column: 'y' } feature { column: 'x' normalize: NONE } ") + c.config);
    const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv"}));
    EXPECT_EQ(all.numeric, (std::vector<float>{7, 5})) << c.why;
    EXPECT_EQ(all.labels, (std::vector<float>{1, 0})) << c.why;
  }
}

TEST(Dataset, ColumnsWithoutAnyNameAreNumbered) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "1,7\n0,5\n");
  const DataConfig config =
      ConfigOf("header: HEADER_NO label { column: '1' } feature { column: '2' normalize: NONE }");
  const Scanned train = MustScan(*fs, config, {"a.csv"});
  EXPECT_EQ(ReadOne(*fs, config, train).numeric, (std::vector<float>{7, 5}));
  Put(*fs, "new.csv", "9\n8\n");
  SplitRule rule;
  rule.labels = false;
  const Scanned predict = MustScan(*fs, config, {"new.csv"}, rule, train.recipe);
  EXPECT_EQ(ReadOne(*fs, config, predict, false).numeric, (std::vector<float>{9, 8}));
}

TEST(Dataset, FilesOfOneSetMayOrderTheirColumnsDifferently) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "x,y\n7,1\n");
  Put(*fs, "b.csv", "other,y,x\n?,0,5\n?,1,6\n");
  const DataConfig config = ConfigOf("label { column: 'y' } feature { column: 'x' normalize: NONE }");
  const Batch all = ReadOne(*fs, config, MustScan(*fs, config, {"a.csv", "b.csv"}));
  EXPECT_EQ(all.numeric, (std::vector<float>{7, 5, 6}));
  EXPECT_EQ(all.row_ids, (std::vector<uint64_t>{0, 1, 2}));
}

TEST(Dataset, BadRowsAreCountedListedAndLeftOut) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "age,city,y\n1,A,1\nabc,B,0\n3,C\n5,D,1\n");
  DataConfig config = ConfigOf(kPeople);
  config.set_max_bad_rows(1);
  const absl::Status refused = Scan(*fs, config, {"a.csv"}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(refused),
            "a.csv:3: column 'age': 'abc' is not a number (rows that are bad: 2 of 4; data.max_bad_rows "
            "allows 1: mend "
            "them, or "
            "set data.max_bad_rows: 2 to leave them out)");
  config.set_max_bad_rows(2);
  SplitRule rule;
  const Scanned scanned = MustScan(*fs, config, {"a.csv"}, rule);
  EXPECT_EQ(scanned.recipe.numeric(0).count(), 2u) << "bad rows are no part of the statistics";
  std::vector<uint64_t> kept;
  uint64_t bad = 0;
  const absl::StatusOr<std::vector<ParsedSplit>> splits = ReadAll(*fs, config, scanned);
  ASSERT_TRUE(splits.ok()) << splits.status();
  for (const ParsedSplit& split : *splits) {
    std::vector<uint32_t> order(split.rows.rows);
    std::iota(order.rbegin(), order.rend(), 0u);
    const Batch batch = GatherRows(split.rows, order, split.bad);
    kept.insert(kept.end(), batch.row_ids.begin(), batch.row_ids.end());
    bad += batch.bad_rows;
    EXPECT_EQ(batch.WeightSum(), batch.rows);
  }
  EXPECT_EQ(bad, 2u);
  EXPECT_EQ(kept, (std::vector<uint64_t>{0, 3}));
}

TEST(Dataset, SplitsFollowTheRule) {
  const auto fs = NewMemoryFileSystem();
  std::string text = "x,y\n";
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + (i % 2 == 0 ? ",0\n" : ",\"1\"\n");
  Put(*fs, "a.csv", text);
  Put(*fs, "b.csv", "x,y\n5,1\n");
  const DataConfig config = ConfigOf("label { column: 'y' } feature { column: 'x' normalize: NONE }");
  struct RuleCase {
    uint32_t ranks, max_rows;
    uint32_t limit;
  };
  for (const RuleCase& c : {RuleCase{1, 16384, 125}, RuleCase{4, 16384, 31}, RuleCase{1, 10, 10},
                            RuleCase{1, 1, 1}, RuleCase{1000, 16384, 1}}) {
    SplitRule rule;
    rule.ranks = c.ranks;
    rule.max_rows = c.max_rows;
    const Scanned scanned = MustScan(*fs, config, {"a.csv", "b.csv"}, rule);
    uint64_t rows = 0;
    for (const DataPlan::Split& split : scanned.plan.split()) {
      EXPECT_LE(split.rows(), c.limit);
      EXPECT_GE(split.rows(), 1u);
      EXPECT_EQ(split.first_row(), rows);
      EXPECT_EQ(split.first_line(), split.file() == 0 ? rows + 2 : 2);
      rows += split.rows();
    }
    EXPECT_EQ(rows, 1001u);
    EXPECT_EQ(scanned.plan.rows(), 1001u);
    const Batch all = ReadOne(*fs, config, scanned);
    for (uint32_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(all.numeric[i], static_cast<float>(i));
      ASSERT_EQ(all.row_ids[i], i);
    }
  }
}

TEST(Dataset, AChangedFileIsRefused) {
  const auto fs = NewMemoryFileSystem();
  const DataConfig config = ConfigOf("label { column: 'y' } feature { column: 'x' }");
  for (const char* changed : {"x,y\n1,0\n2,0\n", "x,y\n1,0\n2,1\n3,1\n"}) {
    Put(*fs, "a.csv", "x,y\n1,0\n2,1\n");
    const Scanned scanned = MustScan(*fs, config, {"a.csv"});
    Put(*fs, "a.csv", changed);
    const absl::Status status = Dataset::Open(*fs, config, scanned.plan, scanned.recipe).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find("'a.csv' changed after it was scanned"), std::string::npos) << status;
  }
}

TEST(Dataset, PredictNeedsNoLabelAndGivesTheSameBits) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "age,city,y\n1,Paris,0\n4,Rome,1\n9,Oslo,1\n");
  Put(*fs, "new.csv", "city,age\nParis,1\nRome,4\nOslo,9\n");
  const DataConfig config = ConfigOf(kPeople);
  const Scanned train = MustScan(*fs, config, {"a.csv"});
  EXPECT_NE(Message(Scan(*fs, config, {"new.csv"}, {}, train.recipe).status())
                .find("data.label.column: 'y' is not in"),
            std::string::npos);
  SplitRule rule;
  rule.labels = false;
  const Scanned predict = MustScan(*fs, config, {"new.csv"}, rule, train.recipe);
  const Batch one = ReadOne(*fs, config, train);
  const Batch other = ReadOne(*fs, config, predict, false);
  EXPECT_EQ(one.numeric, other.numeric);
  EXPECT_EQ(one.sparse[0].keys, other.sparse[0].keys);
  EXPECT_FALSE(ReadAll(*fs, config, predict, true).ok()) << "labels are required by default";
}

TEST(Dataset, EvalIsNotFitted) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.csv", "age,city,y\n1,Paris,0\n4,Rome,1\n");
  Put(*fs, "b.csv", "age,city,y\n100,Bern,0\n");
  const DataConfig config = ConfigOf(kPeople);
  const Scanned train = MustScan(*fs, config, {"a.csv"});
  const Scanned eval = MustScan(*fs, config, {"b.csv"}, {}, train.recipe);
  EXPECT_EQ(train.recipe.SerializeAsString(), eval.recipe.SerializeAsString());
  EXPECT_FLOAT_EQ(ReadOne(*fs, config, eval).numeric[0], 65);
}

TEST(Dataset, ThreadsReadAtOnce) {
  const auto fs = NewMemoryFileSystem();
  std::string text = "age,city,y\n";
  for (int i = 0; i < 2000; ++i) text += fmt::format("{},\"c{}\",{}\n", i * 37 % 101, i % 19, i % 2);
  Put(*fs, "a.csv", text);
  const DataConfig config = ConfigOf(kPeople);
  SplitRule rule;
  rule.max_rows = 50;
  const Scanned scanned = MustScan(*fs, config, {"a.csv"}, rule);
  const auto dataset = Dataset::Open(*fs, config, scanned.plan, scanned.recipe);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto splits = static_cast<uint32_t>(scanned.plan.split_size());
  std::vector<std::vector<ParsedSplit>> seen(4);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      seen[t].resize(splits);
      for (uint32_t i = 0; i < splits; ++i) {
        const uint32_t split = (i * 7 + t * 13) % splits;  // 7 and 40 have no common factor: each once
        absl::StatusOr<ParsedSplit> read = (*dataset)->ReadSplit(split);
        if (read.ok()) seen[t][split] = *std::move(read);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < splits; ++i) {
    ASSERT_EQ(seen[0][i].rows.rows, scanned.plan.split(static_cast<int>(i)).rows());
    for (size_t t = 1; t < seen.size(); ++t) {
      EXPECT_EQ(seen[t][i].rows.numeric, seen[0][i].rows.numeric);
      EXPECT_EQ(seen[t][i].rows.sparse[0].keys, seen[0][i].rows.sparse[0].keys);
    }
  }
}

DataConfig AdultConfig() {
  DataConfig config = ConfigOf(R"(
    format: CSV comment_prefix: "|" missing_value: "?"
    label { column: "income" positive: ">50K" positive: ">50K." negative: "<=50K" negative: "<=50K." })");
  const char* columns[] = {"age",
                           "workclass",
                           "fnlwgt",
                           "education",
                           "education_num",
                           "marital_status",
                           "occupation",
                           "relationship",
                           "race",
                           "sex",
                           "capital_gain",
                           "capital_loss",
                           "hours_per_week",
                           "native_country",
                           "income"};
  const std::string numeric[] = {"age",          "fnlwgt",       "education_num",
                                 "capital_gain", "capital_loss", "hours_per_week"};
  for (const char* column : columns) {
    config.add_column(column);
    if (std::string(column) == "income") continue;
    FeatureConfig* feature = config.add_feature();
    feature->set_column(column);
    if (std::find(std::begin(numeric), std::end(numeric), column) == std::end(numeric)) {
      feature->set_kind(FeatureConfig::CATEGORICAL);
    }
  }
  return config;
}

TEST(Dataset, AdultAsPublished) {
  const std::string folder = DataDir();
  if (folder.empty()) GTEST_SKIP() << "no public data sets here; CAPSTAN_DATA_DIR names their folder";
  FileSystem& fs = PosixFileSystem();
  const DataConfig config = AdultConfig();
  SplitRule rule;
  rule.ranks = 4;
  const Scanned train = MustScan(fs, config, {folder + "/adult/adult.data.gz"}, rule);
  const Scanned test = MustScan(fs, config, {folder + "/adult/adult.test.gz"}, rule, train.recipe);
  ASSERT_EQ(train.plan.rows(), 32561u);
  ASSERT_EQ(test.plan.rows(), 16281u);
  EXPECT_EQ(test.plan.split(0).first_line(), 2u) << "below the comment";
  EXPECT_NEAR(train.recipe.numeric(0).mean(), 38.58165,
              1e-4);  // age; figures from the data set's own summary
  EXPECT_NEAR(train.recipe.numeric(5).mean(), 40.43746, 1e-4);  // hours_per_week
  EXPECT_EQ(train.recipe.numeric(0).count(), 32561u);
  const Batch train_rows = ReadOne(fs, config, train);
  const Batch test_rows = ReadOne(fs, config, test);
  const auto positives = [](const Batch& rows) {
    return std::count(rows.labels.begin(), rows.labels.end(), 1.0f);
  };
  EXPECT_EQ(positives(train_rows), 7841);
  EXPECT_EQ(positives(test_rows), 3846);
  EXPECT_EQ(train_rows.WeightSum(), 32561);
  const auto distinct = [](std::vector<uint64_t> keys) {
    std::sort(keys.begin(), keys.end());
    return std::unique(keys.begin(), keys.end()) - keys.begin();
  };
  EXPECT_EQ(distinct(train_rows.sparse[0].keys), 9) << "8 work classes and missing";
  EXPECT_EQ(distinct(train_rows.sparse[6].keys), 2) << "sex";
}

}  // namespace
}  // namespace capstan
