// Delimited text by RFC 4180 and its usual relatives: finds records, then splits one into fields. No
// allocation per record, no knowledge of columns or types.
//
// A field that starts with '"' (after blanks, when trimming) is quoted: it may hold delimiters and line ends,
// "" is one quote, and only blanks may follow the closing quote when trimming. A quote further inside a field
// is an ordinary character. A record ends at LF, CRLF or the end of the text; a CR elsewhere is an ordinary
// character. Blank lines and lines that start with the comment prefix are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

struct CsvDialect {
  char delimiter = ',';
  bool quotes = true;          // false: '"' is an ordinary character (libsvm, Criteo)
  bool trim = true;            // spaces and tabs around unquoted fields, and around quotes
  std::string comment_prefix;  // empty: none
};

inline constexpr size_t kMaxFieldBytes = size_t{1} << 20;
inline constexpr size_t kMaxCsvRecordBytes = size_t{64} << 20;

// Walks over the records of `text`, which the caller keeps alive.
class RecordCursor {
 public:
  enum class Step {
    kRecord,     // record(), offset() and line() describe it
    kEnd,        // everything is consumed
    kPartial,    // the text ends within a record: read more from position() on (only if !at_end)
    kOpenQuote,  // a quote opened at error_line(), field error_field() never closes, or not within 1 MiB
    kTooLong,    // a record longer than 64 MiB
  };

  // `at_end`: nothing follows `text` in the file. `first_line`: 1-based number of its first line.
  RecordCursor(std::string_view text, bool at_end, const CsvDialect& dialect, uint64_t first_line);

  Step Next();

  std::string_view record() const { return record_; }  // without its line end
  size_t offset() const { return static_cast<size_t>(record_.data() - text_.data()); }
  uint64_t line() const { return record_line_; }
  size_t position() const { return position_; }  // where the next call goes on
  uint64_t next_line() const { return line_; }   // number of the line at position()
  uint64_t error_line() const { return error_line_; }
  size_t error_field() const { return error_field_; }  // 0-based

 private:
  bool Skipped(std::string_view line) const;
  Step QuotedRecord();
  Step Found(size_t end, size_t next);
  // Past the closing quote of the field whose quote is at `open`, or npos (`*step` says why). Adds the line
  // ends in between to *lines.
  size_t ClosingQuote(size_t open, uint64_t* lines, Step* step) const;

  const std::string_view text_;
  const bool at_end_;
  const CsvDialect& dialect_;
  size_t position_ = 0;
  size_t next_quote_ = 0;  // no quote in [position_, next_quote_)
  uint64_t line_;
  std::string_view record_;
  uint64_t record_line_ = 0;
  uint64_t error_line_ = 0;
  size_t error_field_ = 0;
};

enum class FieldProblem : uint8_t { kNone, kTextAfterQuote, kOpenQuote, kTooLong };

// The fields of one record. Views point into the record or into a buffer of this object: valid until either
// changes.
class FieldSplitter {
 public:
  // On a problem, fields() holds those before it, and problem_text() the start of the offending text.
  FieldProblem Split(std::string_view record, const CsvDialect& dialect);

  const std::vector<std::string_view>& fields() const { return fields_; }
  std::string_view problem_text() const { return problem_text_; }
  uint64_t problem_line() const { return problem_line_; }  // lines below the record's first

 private:
  FieldProblem SplitPlain(std::string_view record, const CsvDialect& dialect);
  FieldProblem SplitQuoted(std::string_view record, const CsvDialect& dialect);
  // Takes the quoted field whose text starts at `at`; returns the place after its closing quote, or npos.
  size_t TakeQuoted(std::string_view record, size_t at);

  std::vector<std::string_view> fields_;
  std::string unescaped_;  // never grows while views point into it
  std::string_view problem_text_;
  uint64_t problem_line_ = 0;
};

}  // namespace capstan
