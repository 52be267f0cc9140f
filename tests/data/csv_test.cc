#include "data/csv.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace capstan {
namespace {

using Row = std::vector<std::string>;
using Rows = std::vector<Row>;

CsvDialect Dialect(char delimiter, bool trim, std::string comment = "") {
  CsvDialect dialect;
  dialect.delimiter = delimiter;
  dialect.trim = trim;
  dialect.comment_prefix = std::move(comment);
  return dialect;
}

Rows ParseCsvText(const std::string& text, const CsvDialect& dialect) {
  Rows rows;
  RecordCursor cursor(text, true, dialect, 1);
  FieldSplitter splitter;
  while (cursor.Next() == RecordCursor::Step::kRecord) {
    const FieldProblem problem = splitter.Split(cursor.record(), dialect);
    EXPECT_EQ(problem, FieldProblem::kNone) << text;
    rows.emplace_back(splitter.fields().begin(), splitter.fields().end());
  }
  return rows;
}

struct CsvCase {
  const char* why;
  std::string text;
  Rows rows;
};

// The rows are those that csv.reader of Python 3.11 gives (blank lines, which it returns as [], left out).
const CsvCase kUntrimmed[] = {
    {"plain", "a,b,c\n1,2,3\n", {{"a", "b", "c"}, {"1", "2", "3"}}},
    {"no newline at the end", "a,b\n1,2", {{"a", "b"}, {"1", "2"}}},
    {"CRLF", "a,b\r\n1,2\r\n", {{"a", "b"}, {"1", "2"}}},
    {"CRLF, the last one cut after CR", "a,b\r\n1,2\r", {{"a", "b"}, {"1", "2"}}},
    {"mixed line ends", "a,b\r\n1,2\n3,4\r\n", {{"a", "b"}, {"1", "2"}, {"3", "4"}}},
    {"blank lines", "a,b\n\n\r\n1,2\n\n", {{"a", "b"}, {"1", "2"}}},
    {"empty fields", ",,\na,,\n,,b\n", {{"", "", ""}, {"a", "", ""}, {"", "", "b"}}},
    {"one column", "a\nb\n", {{"a"}, {"b"}}},
    {"quoted", "\"a\",\"b\"\n", {{"a", "b"}}},
    {"quoted delimiter", "\"a,b\",c\n", {{"a,b", "c"}}},
    {"quoted LF", "\"a\nb\",c\n1,2\n", {{"a\nb", "c"}, {"1", "2"}}},
    {"quoted CRLF is kept as it is", "\"a\r\nb\",c\r\n", {{"a\r\nb", "c"}}},
    {"quoted blank line", "\"a\n\nb\",c\n", {{"a\n\nb", "c"}}},
    {"doubled quote", "\"a\"\"b\",c\n", {{"a\"b", "c"}}},
    {"only a doubled quote", "\"\"\"\",c\n", {{"\"", "c"}}},
    {"two doubled quotes", "\"\"\"\"\"\",c\n", {{"\"\"", "c"}}},
    {"doubled quotes at both ends", "\"\"\"a\"\"\",c\n", {{"\"a\"", "c"}}},
    {"quoted empty", "\"\",\"\"\n", {{"", ""}}},
    {"quoted empty alone is a record", "\"\"\n", {{""}}},
    {"quote inside an unquoted field", "a\"b,c\n", {{"a\"b", "c"}}},
    {"quotes inside and at the end of an unquoted field", "5\" x 3\",c\n", {{"5\" x 3\"", "c"}}},
    {"such a quote hides no line end", "a\"b,c\nd,e\"\n", {{"a\"b", "c"}, {"d", "e\""}}},
    {"quoted field last, no newline", "a,\"b\"", {{"a", "b"}}},
    {"quoted field last, CRLF", "a,\"b\"\r\nc,d\r\n", {{"a", "b"}, {"c", "d"}}},
    {"blanks are kept", " a , b \n", {{" a ", " b "}}},
    {"a quote after a blank is an ordinary character", "a, \"b\"\n", {{"a", " \"b\""}}},
    {"trailing delimiter", "a,b,\n", {{"a", "b", ""}}},
    {"several escaped fields in a record", "\"a\"\"\",\"\"\"b\",\"c\"\n", {{"a\"", "\"b", "c"}}},
    {"UTF-8 passes through", "na\xc3\xafve,\xe2\x82\xac\n", {{"na\xc3\xafve", "\xe2\x82\xac"}}},
};

TEST(Csv, GivesWhatPythonGives) {
  for (const CsvCase& c : kUntrimmed) EXPECT_EQ(ParseCsvText(c.text, Dialect(',', false)), c.rows) << c.why;
}

const CsvCase kTrimmed[] = {
    {"spaces and tabs around", " a ,\tb\t\n", {{"a", "b"}}},
    {"inner blanks stay", "a b, c\td \n", {{"a b", "c\td"}}},
    {"blanks around quotes", " \"a\" , \"b,c\" \n", {{"a", "b,c"}}},
    {"blanks inside quotes stay", "\" a \",b\n", {{" a ", "b"}}},
    {"a line of blanks is blank", "a,b\n  \t \n1,2\n", {{"a", "b"}, {"1", "2"}}},
    {"a field of blanks is empty", "a,  ,b\n", {{"a", "", "b"}}},
    {"blank before CRLF", "a,b \r\n", {{"a", "b"}}},
};

TEST(Csv, TrimsAroundUnquotedFields) {
  for (const CsvCase& c : kTrimmed) EXPECT_EQ(ParseCsvText(c.text, Dialect(',', true)), c.rows) << c.why;
}

TEST(Csv, TakesAnyDelimiter) {
  for (const char delimiter : {';', '\t', '|', ' ', ':', '\x01'}) {
    const std::string d(1, delimiter);
    const std::string text = "a" + d + "\"b" + d + "\"\"\n\"" + d + d + "c\n";
    EXPECT_EQ(ParseCsvText(text, Dialect(delimiter, true)), (Rows{{"a", "b" + d + "\"\n", "", "c"}}))
        << delimiter;
  }
}

TEST(Csv, TabsAreMissingValuesWhereTheyDelimit) {
  EXPECT_EQ(ParseCsvText("\t\t\na\t b\t\n", Dialect('\t', true)), (Rows{{"", "", ""}, {"a", "b", ""}}));
}

TEST(Csv, SkipsCommentsOnlyAtTheStartOfARecord) {
  EXPECT_EQ(ParseCsvText("|x \"\na,b\n|,2\n1,|\n\"a\n|b\",c\n", Dialect(',', true, "|")),
            (Rows{{"a", "b"}, {"1", "|"}, {"a\n|b", "c"}}));
}

TEST(Csv, QuotesMayBeTurnedOff) {
  CsvDialect dialect = Dialect('\t', true);
  dialect.quotes = false;
  EXPECT_EQ(ParseCsvText("\"a\tb\n\"\tc\n", dialect), (Rows{{"\"a", "b"}, {"\"", "c"}}));
}

TEST(Csv, CountsLines) {
  const CsvDialect dialect = Dialect(',', true, "#");
  RecordCursor cursor("#c\n\na,b\n\"x\n\ny\",2\n\n3,4", true, dialect, 10);
  std::vector<uint64_t> lines;
  while (cursor.Next() == RecordCursor::Step::kRecord) lines.push_back(cursor.line());
  EXPECT_EQ(lines, (std::vector<uint64_t>{12, 13, 17}));
}

// However the text is cut into windows, a record is found whole or asked for again.
TEST(Csv, EveryCutIsEitherPartialOrTheSameRecord) {
  const std::string text = "a,\"b\"\"\n,\"\r\n\"\"\"\",2\nc\"d,e\r\n\n\"x\"";
  const CsvDialect dialect = Dialect(',', true);
  const Rows whole = ParseCsvText(text, dialect);
  ASSERT_EQ(whole.size(), 4u);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    std::vector<std::string> records, expected;
    RecordCursor first(std::string_view(text).substr(0, cut), false, dialect, 1);
    while (first.Next() == RecordCursor::Step::kRecord) records.emplace_back(first.record());
    RecordCursor rest(std::string_view(text).substr(first.position()), true, dialect, first.next_line());
    while (rest.Next() == RecordCursor::Step::kRecord) records.emplace_back(rest.record());
    RecordCursor all(text, true, dialect, 1);
    while (all.Next() == RecordCursor::Step::kRecord) expected.emplace_back(all.record());
    EXPECT_EQ(records, expected) << "cut at " << cut;
    EXPECT_EQ(rest.next_line(), all.next_line()) << "cut at " << cut;
  }
}

struct BrokenCase {
  const char* why;
  const char* record;
  FieldProblem problem;
  size_t field;
  const char* text;
};
constexpr BrokenCase kBroken[] = {
    {"text after the quote", "a,\"b\"c,d", FieldProblem::kTextAfterQuote, 1, "c"},
    {"blank after the quote, untrimmed", "\"a\" ,b", FieldProblem::kTextAfterQuote, 0, " "},
    {"a quote after the quote and a blank", "\"a\" \"b\",c", FieldProblem::kTextAfterQuote, 0, " \"b\""},
    {"open quote", "a,b,\"c", FieldProblem::kOpenQuote, 2, "\"c"},
};

TEST(Csv, NamesTheBrokenField) {
  for (const BrokenCase& c : kBroken) {
    FieldSplitter splitter;
    EXPECT_EQ(splitter.Split(c.record, Dialect(',', false)), c.problem) << c.why;
    EXPECT_EQ(splitter.fields().size(), c.field) << c.why;
    EXPECT_EQ(splitter.problem_text(), c.text) << c.why;
  }
}

TEST(Csv, FieldsHaveALimit) {
  for (const bool quoted : {false, true}) {
    const std::string quote = quoted ? "\"" : "";
    FieldSplitter splitter;
    const std::string longest = quote + std::string(kMaxFieldBytes, 'x') + quote;
    EXPECT_EQ(splitter.Split("a," + longest + ",b", Dialect(',', true)), FieldProblem::kNone);
    const std::string longer = quote + std::string(kMaxFieldBytes + 1, 'x') + quote;
    EXPECT_EQ(splitter.Split("a," + longer + ",b", Dialect(',', true)), FieldProblem::kTooLong);
    EXPECT_EQ(splitter.fields().size(), 1u);
  }
}

TEST(Csv, AnOpenQuoteIsFoundWithoutReadingOn) {
  const CsvDialect dialect = Dialect(',', true);
  const std::string text = "a,b\nc,\n\"d\",\"\ne" + std::string(2 * kMaxFieldBytes, 'x');
  for (const bool at_end : {false, true}) {
    RecordCursor cursor(text, at_end, dialect, 1);
    EXPECT_EQ(cursor.Next(), RecordCursor::Step::kRecord);
    EXPECT_EQ(cursor.Next(), RecordCursor::Step::kRecord);
    EXPECT_EQ(cursor.Next(), RecordCursor::Step::kOpenQuote);
    EXPECT_EQ(cursor.error_line(), 3u);
    EXPECT_EQ(cursor.error_field(), 1u);
  }
}

TEST(Csv, RecordsHaveALimit) {
  const CsvDialect dialect = Dialect(',', true);
  const std::string text(kMaxCsvRecordBytes + 1, ',');
  EXPECT_EQ(RecordCursor(text, false, dialect, 1).Next(), RecordCursor::Step::kTooLong);
  EXPECT_EQ(RecordCursor(text, true, dialect, 1).Next(), RecordCursor::Step::kTooLong);
}

}  // namespace
}  // namespace capstan
