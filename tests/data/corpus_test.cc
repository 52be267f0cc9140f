// Every file of tests/corpus/data is refused with a message that says where and what.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/data/data_testing.h"

namespace capstan {
namespace {

using testing_data::ConfigOf;
using testing_data::Message;

const std::string kCorpus = std::string(CAPSTAN_SOURCE_DIR) + "/tests/corpus/data/";

struct CorpusCase {
  const char* file;
  const char* config;
  const char* message;  // %: the file's path
};
constexpr CorpusCase kCorpusCases[] = {
    {"open_quote.csv", "people", "%:3: column 'job': the quote that opens here is not closed"},
    {"open_quote_in_header.csv", "people", "%:1: column 2: the quote that opens here is not closed"},
    {"text_after_quote.csv", "people", "%:3: column 'job': 'erk' follows the closing quote"},
    {"text_after_quote_below.csv", "people", "%:3: column 'job': ' x' follows the closing quote"},
    {"too_few_columns.csv", "people", "%:3: too few columns: 3, and the header has 4"},
    {"too_many_columns.csv", "people", "%:3: too many columns: 5, and the header has 4"},
    {"number_is_text.csv", "people",
     "%:4: column 'age': 'forty' is not a number (rows that are bad: 1 of 2;"},
    {"number_is_hexadecimal.csv", "people", "%:2: column 'age': '0x1e' is not a number"},
    {"number_has_tail.csv", "people", "%:2: column 'age': '30 years' is not a number"},
    {"number_with_decimal_comma.csv", "people", "%:2: column 'age': '30,5' is not a number"},
    {"number_is_nan.csv", "people", "%:3: column 'age': 'nan' is not a finite number"},
    {"number_is_infinite.csv", "people", "%:2: column 'age': '-inf' is not a finite number"},
    {"number_too_large.csv", "people", "%:2: column 'age': '1e39' is outside the range of a 32-bit float"},
    {"number_missing.csv", "people", "%:3: column 'age': the value is missing"},
    {"label_missing.csv", "people", "%:2: column 'y': the label is missing"},
    {"label_unknown.csv", "people",
     "%:3: column 'y': 'maybe' is neither in data.label.positive ('yes') nor in"},
    {"label_is_text.csv", "numbers", "%:2: column 'y': 'yes' is not a number; list the values that mean 1"},
    {"label_never_positive.csv", "positives", "data.label.positive: no row of '%' has a label among '>50K'"},
    {"weight_negative.csv", "people", "%:2: column 'w': '-1' is negative"},
    {"weight_missing.csv", "people", "%:3: column 'w': the weight is missing"},
    {"header_misspelt.csv", "people",
     "data.feature[0].column: 'age' is not in '%'; its columns are 'ages', 'job', 'w', 'y', did you mean "
     "'ages'?"},
    {"header_without_label.csv", "people",
     "data.label.column: 'y' is not in '%'; its columns are 'age', 'job', 'w'"},
    {"header_twice.csv", "people", "data.feature[0].column: '%' has two columns 'age', the 1. and the 3."},
    {"header_only.csv", "people", "'%' has a header line but no rows below it"},
    {"header_is_a_row.csv", "numbers", "%:1: this line is a header; set data.header: HEADER_YES"},
    {"other_delimiter.csv", "people",
     "'age' is not in '%'; its columns are 'age;job;w;y'; is data.delimiter right?"},
    {"empty.csv", "people", "'%' is empty"},
    {"only_blank_lines.csv", "people", "'%' has no rows, only blank or comment lines"},
    {"old_mac_line_ends.csv", "people", "%:1: a CR that no LF follows; convert the line ends"},
    {"utf16.csv", "people", "'%' is UTF-16 text; convert it: iconv"},
    {"ending_unknown.dat", "log", "data.format: the ending of '%' does not tell its format"},
    {"truncated.csv.gz", "people", "'%': the gzip data ends too early, at byte 50"},
    {"damaged.csv.gz", "people", "'%': damaged gzip data near byte"},
    {"not_gzip.csv.gz", "people", "'%' ends in .gz but is not gzip data (byte 0)"},
    {"zip_archive.csv", "people", "'%' is a zip archive or a spreadsheet"},
    {"bad_number_inside.csv.gz", "people", "%:3: column 'age': '?x' is not a number"},
    {"index_is_text.libsvm", "sparse", "%:2: 'one:1': 'one' is not an index"},
    {"value_is_text.libsvm", "sparse", "%:4: '1:x': 'x' is not a number"},
    {"index_twice.libsvm", "sparse", "%:1: index 1 occurs twice in the row"},
    {"no_value.libsvm", "sparse", "%:2: '7' is not index:value"},
    {"label_is_text.libsvm", "sparse", "%:1: label: 'yes' is not a number"},
    {"no_label.libsvm", "sparse", "%:2: label: the label is missing"},
    {"too_few_columns.criteo.txt", "clicks", "%:2: too few columns: 38, and wanted are 40"},
    {"count_is_text.criteo.txt", "clicks", "%:2: column 'I1': 'x' is not a number"},
    {"there_is_no_such_file.csv", "people", "opening '%': No such file or directory"},
};

std::string WithPath(std::string message, const std::string& path) {
  const size_t at = message.find('%');
  return at == std::string::npos ? message : message.replace(at, 1, path);
}

TEST(Corpus, EveryBrokenFileIsRefusedByName) {
  for (const CorpusCase& c : kCorpusCases) {
    const absl::StatusOr<std::string> text =
        ReadWholeFile(PosixFileSystem(), kCorpus + c.config + ".textproto", 1 << 16);
    ASSERT_TRUE(text.ok()) << text.status();
    const std::string path = kCorpus + c.file;
    const absl::Status status = testing_data::Scan(PosixFileSystem(), ConfigOf(*text), {path}).status();
    EXPECT_FALSE(status.ok()) << c.file;
    EXPECT_NE(Message(status).find(WithPath(c.message, path)), std::string::npos)
        << "wanted: " << WithPath(c.message, path) << "\ngot:    " << Message(status);
  }
}

TEST(Corpus, EveryFileHasALine) {
  std::set<std::string> named = {"README.md"};
  for (const CorpusCase& c : kCorpusCases) {
    named.insert(c.file);
    named.insert(std::string(c.config) + ".textproto");
  }
  const absl::StatusOr<std::vector<std::string>> files = PosixFileSystem().List(kCorpus);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const std::string& file : *files) EXPECT_EQ(named.count(file), 1u) << file;
}

// Damage of every kind at every place: an answer or an error, never a crash (the sanitizers watch).
TEST(Corpus, NoCutOrFlippedByteCrashes) {
  const std::string good = "age,job,w,y\n30,\"cl\"\"e,rk\",1,yes\r\n\n4e1,\"a\nb\",2,no\n";
  const absl::StatusOr<std::string> text =
      ReadWholeFile(PosixFileSystem(), kCorpus + "people.textproto", 1 << 16);
  ASSERT_TRUE(text.ok()) << text.status();
  DataConfig config = ConfigOf(*text);
  config.set_max_bad_rows(1000);
  const auto fs = NewMemoryFileSystem();
  size_t read = 0;
  const auto try_it = [&](const std::string& bytes) {
    testing_data::Put(*fs, "a.csv", bytes);
    const absl::StatusOr<testing_data::Scanned> scanned = testing_data::Scan(*fs, config, {"a.csv"});
    if (!scanned.ok()) return;
    const auto splits = testing_data::ReadAll(*fs, config, *scanned);
    ASSERT_TRUE(splits.ok()) << splits.status() << "\n" << bytes;
    ++read;
  };
  for (size_t i = 0; i < good.size(); ++i) {
    try_it(good.substr(0, i));
    try_it(good.substr(i));
    for (const char byte : {'"', ',', '\n', '\r', '\0', ' ', '\xff'}) {
      std::string damaged = good;
      damaged[i] = byte;
      try_it(damaged);
      damaged.insert(i, 1, byte);
      try_it(damaged);
    }
  }
  EXPECT_GT(read, 100u) << "most damage leaves a readable row";
}

}  // namespace
}  // namespace capstan
