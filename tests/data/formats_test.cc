// Numbers, gzip, libsvm, Criteo, and which format a file has.
#include <zlib.h>

#include <cfloat>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "data/format.h"
#include "data/input_file.h"
#include "data/libsvm.h"
#include "data/schema.h"
#include "data/number.h"
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

struct NumberCase {
  const char* text;
  NumberProblem problem;
  double value;
};
constexpr NumberCase kNumbers[] = {
    {"0", NumberProblem::kNone, 0},
    {"-17", NumberProblem::kNone, -17},
    {"+17", NumberProblem::kNone, 17},
    {"007", NumberProblem::kNone, 7},
    {"123456789012345", NumberProblem::kNone, 123456789012345},
    {"1234567890123456789", NumberProblem::kNone, 1234567890123456789.0},
    {"1.5", NumberProblem::kNone, 1.5},
    {".5", NumberProblem::kNone, 0.5},
    {"5.", NumberProblem::kNone, 5},
    {"1e3", NumberProblem::kNone, 1000},
    {"1E-3", NumberProblem::kNone, 0.001},
    {"+1.5e+2", NumberProblem::kNone, 150},
    {"3e38", NumberProblem::kNone, 3e38},
    {"1e-300", NumberProblem::kNone, 1e-300},
    {"", NumberProblem::kNotANumber, 0},
    {"-", NumberProblem::kNotANumber, 0},
    {"+", NumberProblem::kNotANumber, 0},
    {"+-1", NumberProblem::kNotANumber, 0},
    {"--1", NumberProblem::kNotANumber, 0},
    {"1 ", NumberProblem::kNotANumber, 0},
    {" 1", NumberProblem::kNotANumber, 0},
    {"1,5", NumberProblem::kNotANumber, 0},
    {"1_000", NumberProblem::kNotANumber, 0},
    {"0x10", NumberProblem::kNotANumber, 0},
    {"1e", NumberProblem::kNotANumber, 0},
    {"1.5f", NumberProblem::kNotANumber, 0},
    {"abc", NumberProblem::kNotANumber, 0},
    {"nan", NumberProblem::kNotFinite, 0},
    {"NaN", NumberProblem::kNotFinite, 0},
    {"inf", NumberProblem::kNotFinite, 0},
    {"-Infinity", NumberProblem::kNotFinite, 0},
    {"3.5e38", NumberProblem::kTooLarge, 0},
    {"-1e999", NumberProblem::kTooLarge, 0},
};

TEST(Number, FollowsTheTable) {
  for (const NumberCase& c : kNumbers) {
    double value = 0;
    EXPECT_EQ(ParseNumber(c.text, &value), c.problem) << c.text;
    EXPECT_EQ(value, c.value) << c.text;
  }
}

std::string Gzip(const std::string& text) {
  z_stream z = {};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<unsigned char*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

absl::StatusOr<std::string> Unpacked(const std::string& contents,
                                     uint64_t limit = InputFile::kMaxUnpackedBytes,
                                     const std::string& path = "a.gz") {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, path, contents);
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, InputFile::Open(*fs, path, limit));
  std::string scratch;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string_view text, file->Read(0, UINT64_MAX, &scratch));
  return std::string(text);
}

TEST(InputFile, UnpacksMembersAndPadding) {
  std::string large;
  for (int i = 0; large.size() < 3'000'000; ++i) large += std::to_string(i * 7919) + ",x\n";
  EXPECT_EQ(*Unpacked(Gzip("hello")), "hello");
  EXPECT_EQ(*Unpacked(Gzip("hello") + Gzip("") + Gzip(" world")), "hello world");
  EXPECT_EQ(*Unpacked(Gzip("hello") + std::string(512, '\0')), "hello");
  EXPECT_EQ(*Unpacked(Gzip(large)), large);
  EXPECT_EQ(*Unpacked(Gzip("plain name"), 100, "a.csv"), "plain name")
      << "told by its bytes, not by its name";
  EXPECT_EQ(*Unpacked(Gzip(std::string(100, 'x')), 100), std::string(100, 'x')) << "exactly at the limit";
}

TEST(InputFile, RefusesBrokenGzipByName) {
  const std::string good =
      Gzip("some text that is long enough to be cut somewhere in its middle, twice over");
  std::string flipped = good;
  flipped[good.size() - 6] = static_cast<char>(flipped[good.size() - 6] ^ 1);  // in the CRC
  struct GzipCase {
    const char* why;
    std::string contents;
    uint64_t limit;
    absl::StatusCode code;
    std::string message;
  };
  const GzipCase cases[] = {
      {"cut", good.substr(0, 40), 1000, absl::StatusCode::kDataLoss,
       "'a.gz': the gzip data ends too early, at byte 40"},
      {"cut in the trailer", good.substr(0, good.size() - 1), 1000, absl::StatusCode::kDataLoss,
       "ends too early"},
      {"cut in the second member", good + good.substr(0, 20), 1000, absl::StatusCode::kDataLoss,
       "ends too early"},
      {"damaged", flipped, 1000, absl::StatusCode::kDataLoss, "'a.gz': damaged gzip data near byte"},
      {"something behind", good + "text", 1000, absl::StatusCode::kDataLoss,
       "after the end of the gzip data"},
      {"not gzip", "a,b\n1,2\n", 1000, absl::StatusCode::kDataLoss,
       "'a.gz' ends in .gz but is not gzip data"},
      {"too large", good, 10, absl::StatusCode::kResourceExhausted, "more than 10 bytes come out"},
      {"one byte too large", Gzip(std::string(101, 'x')), 100, absl::StatusCode::kResourceExhausted,
       "more than 100"},
  };
  for (const GzipCase& c : cases) {
    const absl::Status status = Unpacked(c.contents, c.limit).status();
    EXPECT_EQ(status.code(), c.code) << c.why << ": " << status;
    EXPECT_NE(Message(status).find(c.message), std::string::npos) << c.why << ": " << status;
  }
}

TEST(InputFile, GzipAndPlainGiveTheSameRows) {
  const auto fs = NewMemoryFileSystem();
  std::string text = "\xef\xbb\xbfx,c,y\r\n";
  for (int i = 0; i < 5000; ++i)
    text += std::to_string(i) + ",\"v\n" + std::to_string(i % 7) + "\"," + (i % 3 ? "0\r\n" : "1\r\n");
  Put(*fs, "a.csv", text);
  Put(*fs, "a.csv.gz", Gzip(text.substr(0, 999)) + Gzip(text.substr(999)));
  const DataConfig config =
      ConfigOf("label { column: 'y' } feature { column: 'x' } feature { column: 'c' kind: CATEGORICAL }");
  const absl::StatusOr<Scanned> plain = Scan(*fs, config, {"a.csv"});
  const absl::StatusOr<Scanned> packed = Scan(*fs, config, {"a.csv.gz"});
  ASSERT_TRUE(plain.ok() && packed.ok()) << plain.status() << packed.status();
  EXPECT_EQ(plain->recipe.SerializeAsString(), packed->recipe.SerializeAsString());
  EXPECT_EQ(plain->plan.rows(), 5000u);
  const auto one = ReadAll(*fs, config, *plain), other = ReadAll(*fs, config, *packed);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  ASSERT_EQ(one->size(), other->size());
  for (size_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ((*one)[i].rows.numeric, (*other)[i].rows.numeric);
    EXPECT_EQ((*one)[i].rows.sparse[0].keys, (*other)[i].rows.sparse[0].keys);
    EXPECT_EQ((*one)[i].rows.labels, (*other)[i].rows.labels);
  }
}

struct LibsvmCase {
  const char* text;
  bool good;
  std::string label_or_problem;
  std::vector<uint64_t> indices;
  std::vector<float> values;
};
const LibsvmCase kLibsvmCases[] = {
    {"1 1:1 3:0.5", true, "1", {1, 3}, {1, 0.5}},
    {"-1\t0:2  7:-1e2 ", true, "-1", {0, 7}, {2, -100}},
    {"+1 3:1 1:1", true, "+1", {3, 1}, {1, 1}},
    {"0", true, "0", {}, {}},
    {"1 qid:7 2:1 # a comment 3:4", true, "1", {2}, {1}},
    {"2:1", true, "", {2}, {1}},
    {"1 18446744073709551615:1", true, "1", {UINT64_MAX}, {1}},
    {"1 18446744073709551616:1",
     false,
     "'18446744073709551616:1': '18446744073709551616' is not an index (0 … 2^64-1)",
     {},
     {}},
    {"1 -1:1", false, "'-1:1': '-1' is not an index (0 … 2^64-1)", {}, {}},
    {"1 a:1", false, "'a:1': 'a' is not an index (0 … 2^64-1)", {}, {}},
    {"1 :1", false, "':1': '' is not an index (0 … 2^64-1)", {}, {}},
    {"1 3:x", false, "'3:x': 'x' is not a number", {}, {}},
    {"1 3:", false, "'3:': '' is not a number", {}, {}},
    {"1 3:nan", false, "'3:nan': 'nan' is not a finite number", {}, {}},
    {"1 3:1e39", false, "'3:1e39': '1e39' is outside the range of a 32-bit float", {}, {}},
    {"1 3", false, "'3' is not index:value", {}, {}},
    {"1 3:1 2:1 3:2", false, "index 3 occurs twice in the row", {}, {}},
    {"1 3:1 3:1", false, "index 3 occurs twice in the row", {}, {}},
};

TEST(Libsvm, FollowsTheTable) {
  for (const LibsvmCase& c : kLibsvmCases) {
    LibsvmRow row;
    std::string problem;
    ASSERT_EQ(ParseLibsvm(c.text, &row, &problem), c.good) << c.text << ": " << problem;
    if (!c.good) {
      EXPECT_EQ(problem, c.label_or_problem);
      continue;
    }
    EXPECT_EQ(row.label, c.label_or_problem) << c.text;
    EXPECT_EQ(row.indices, c.indices) << c.text;
    EXPECT_EQ(row.values, c.values) << c.text;
  }
}

TEST(Libsvm, RowsBecomeKeysAndValues) {
  const auto fs = NewMemoryFileSystem();
  Put(*fs, "a.svm", "# made by hand\n+1 1:1 5:1\n\n-1 5:1\n");
  Put(*fs, "b.svm", "1 1:2 5:1\n0\n");
  const DataConfig config = ConfigOf("train: 'a.svm' split_rows: 100");
  EXPECT_EQ(ShapeOf(config).sparse_names, (std::vector<std::string>{"libsvm"}));
  const absl::StatusOr<Scanned> scanned = Scan(*fs, config, {"a.svm", "b.svm"});
  ASSERT_TRUE(scanned.ok()) << scanned.status();
  const auto splits = ReadAll(*fs, config, *scanned);
  ASSERT_TRUE(splits.ok()) << splits.status();
  ASSERT_EQ(splits->size(), 4u);
  const SparseColumn& first = (*splits)[0].rows.sparse[0];
  const SparseColumn& second = (*splits)[1].rows.sparse[0];
  const SparseColumn& third = (*splits)[2].rows.sparse[0];
  EXPECT_EQ(first.keys.size(), 2u);
  EXPECT_TRUE(first.values.empty()) << "all are 1";
  EXPECT_EQ(second.keys, (std::vector<uint64_t>{first.keys[1]}));
  EXPECT_EQ(third.keys, first.keys);
  EXPECT_EQ(third.values, (std::vector<float>{2, 1}));
  EXPECT_EQ((*splits)[3].rows.sparse[0].offsets, (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ((*splits)[0].rows.labels, (std::vector<float>{1}));
  EXPECT_EQ((*splits)[1].rows.labels, (std::vector<float>{0}));
  // What a person looks a row up by.
  const Schema schema(config);
  const auto named = schema.KeysOfValue("libsvm", "5");
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].second, second.keys[0]);
  for (const char* const bad : {"", "x", "-1", "5 ", "1.0", "18446744073709551616"}) {
    EXPECT_TRUE(schema.KeysOfValue("libsvm", bad).empty()) << bad;
  }
  EXPECT_TRUE(schema.KeysOfValue("income", "5").empty());
}

TEST(Libsvm, PublicFiles) {
  const std::string folder = DataDir();
  if (folder.empty()) GTEST_SKIP() << "no public data sets here; CAPSTAN_DATA_DIR names their folder";
  const DataConfig config = ConfigOf("format: LIBSVM");
  for (const auto& [path, rows, nonzeros] : {std::tuple("/a9a/a9a.train.libsvm.gz", 32561u, 451592u),
                                             std::tuple("/agaricus/agaricus.txt.train.gz", 6513u, 143286u)}) {
    const absl::StatusOr<Scanned> scanned = Scan(PosixFileSystem(), config, {folder + path});
    ASSERT_TRUE(scanned.ok()) << scanned.status();
    EXPECT_EQ(scanned->plan.rows(), rows);
    const auto splits = ReadAll(PosixFileSystem(), config, *scanned);
    ASSERT_TRUE(splits.ok()) << splits.status();
    size_t keys = 0;
    for (const ParsedSplit& split : *splits) keys += split.rows.sparse[0].keys.size();
    EXPECT_EQ(keys, nonzeros) << path;
  }
}

TEST(Criteo, HasItsColumnsAndDefaults) {
  const auto fs = NewMemoryFileSystem();
  std::string row = "1\t-1\t\t3";
  for (int i = 4; i <= 13; ++i) row += fmt::format("\t{}", i);
  for (int i = 1; i <= 26; ++i) row += i == 2 ? std::string("\t") : fmt::format("\t0a\"b{}", i);
  Put(*fs, "day.txt", fmt::format("{}\n0{}\n", row, row.substr(1)));
  Put(*fs, "test.txt", row.substr(2) + "\n");
  const DataConfig config = ConfigOf("format: CRITEO");
  ASSERT_TRUE(ValidateDataConfig(config).ok()) << ValidateDataConfig(config);
  EXPECT_EQ(ShapeOf(config).numeric_width, 26u);
  EXPECT_EQ(ShapeOf(config).sparse_names.size(), 26u);
  const absl::StatusOr<Scanned> train = Scan(*fs, config, {"day.txt"});
  ASSERT_TRUE(train.ok()) << train.status();
  EXPECT_DOUBLE_EQ(train->recipe.numeric(0).mean(), -std::log1p(1.0));
  const auto splits = ReadAll(*fs, config, *train);
  ASSERT_TRUE(splits.ok()) << splits.status();
  const Batch& first = (*splits)[0].rows;
  EXPECT_EQ(first.labels, (std::vector<float>{1}));
  EXPECT_EQ(first.numeric[3], 1) << "I2 is missing";
  EXPECT_EQ(first.numeric[1], 0);
  SplitRule rule;
  rule.labels = false;
  const absl::StatusOr<Scanned> predict = Scan(*fs, config, {"test.txt"}, rule, train->recipe);
  ASSERT_TRUE(predict.ok()) << predict.status();
  const auto unlabelled = ReadAll(*fs, config, *predict, false);
  ASSERT_TRUE(unlabelled.ok()) << unlabelled.status();
  EXPECT_EQ((*unlabelled)[0].rows.numeric, first.numeric);
  for (size_t i = 0; i < 26; ++i) EXPECT_EQ((*unlabelled)[0].rows.sparse[i].keys, first.sparse[i].keys);
}

TEST(Format, IsToldByTheEnding) {
  const DataConfig config;
  EXPECT_EQ(*FormatOf(config, "a.csv"), DataConfig::CSV);
  EXPECT_EQ(*FormatOf(config, "x/a.tsv.gz"), DataConfig::TSV);
  EXPECT_EQ(*FormatOf(config, "a.libsvm"), DataConfig::LIBSVM);
  EXPECT_EQ(*FormatOf(config, "a.svm.gz"), DataConfig::LIBSVM);
  for (const char* path : {"a.txt", "a.data.gz", "csv", "a.gz"}) {
    const absl::Status status = FormatOf(config, path).status();
    EXPECT_NE(Message(status).find("set data.format to CSV, TSV, LIBSVM or CRITEO"), std::string::npos)
        << path;
  }
}

}  // namespace
}  // namespace capstan
