#include "data/csv.h"

#include <algorithm>
#include <cstring>

namespace capstan {
namespace {

constexpr size_t kNotFound = std::string_view::npos;

size_t FindByte(std::string_view text, char byte, size_t from) {
  if (from >= text.size()) return kNotFound;
  const void* found = std::memchr(text.data() + from, byte, text.size() - from);
  return found == nullptr ? kNotFound : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

uint64_t CountLineEnds(std::string_view text) {
  return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

// A tab or a space may itself be the delimiter; it is no blank then.
bool IsBlank(char c, const CsvDialect& dialect) {
  return dialect.trim && (c == ' ' || c == '\t') && c != dialect.delimiter;
}

size_t SkipBlanks(std::string_view text, size_t at, const CsvDialect& dialect) {
  while (at < text.size() && IsBlank(text[at], dialect)) ++at;
  return at;
}

std::string_view Trimmed(std::string_view field, const CsvDialect& dialect) {
  if (!dialect.trim) return field;
  while (!field.empty() && IsBlank(field.front(), dialect)) field.remove_prefix(1);
  while (!field.empty() && IsBlank(field.back(), dialect)) field.remove_suffix(1);
  return field;
}

}  // namespace

RecordCursor::RecordCursor(std::string_view text, bool at_end, const CsvDialect& dialect, uint64_t first_line)
    : text_(text), at_end_(at_end), dialect_(dialect), line_(first_line) {
  if (!dialect.quotes) next_quote_ = text.size();
}

bool RecordCursor::Skipped(std::string_view line) const {
  if (!dialect_.comment_prefix.empty() && line.starts_with(dialect_.comment_prefix)) return true;
  if (line.empty()) return true;
  return IsBlank(line[0], dialect_) && Trimmed(line, dialect_).empty();
}

RecordCursor::Step RecordCursor::Found(size_t end, size_t next) {
  record_ = text_.substr(position_, end - position_);
  record_line_ = line_;
  position_ = next;
  return Step::kRecord;
}

RecordCursor::Step RecordCursor::Next() {
  while (position_ < text_.size()) {
    const size_t newline = FindByte(text_, '\n', position_);
    if (newline == kNotFound && !at_end_) {
      return text_.size() - position_ > kMaxCsvRecordBytes ? Step::kTooLong : Step::kPartial;
    }
    size_t end = newline == kNotFound ? text_.size() : newline;
    const size_t next = newline == kNotFound ? text_.size() : newline + 1;
    if (end > position_ && text_[end - 1] == '\r') --end;
    if (Skipped(text_.substr(position_, end - position_))) {
      position_ = next;
      ++line_;
      continue;
    }
    if (next_quote_ < position_ || (next_quote_ == position_ && dialect_.quotes)) {
      next_quote_ = std::min(FindByte(text_, '"', position_), text_.size());
    }
    if (next_quote_ < end) return QuotedRecord();
    if (end - position_ > kMaxCsvRecordBytes) return Step::kTooLong;
    const Step step = Found(end, next);
    ++line_;
    return step;
  }
  return Step::kEnd;
}

size_t RecordCursor::ClosingQuote(size_t open, uint64_t* lines, Step* step) const {
  // A loop over bytes: quoted fields are short, and a call of memchr costs more than it saves.
  const size_t limit = std::min(text_.size(), open + kMaxFieldBytes + 2);
  for (size_t at = open + 1; at < limit; ++at) {
    *lines += text_[at] == '\n' ? 1 : 0;
    if (text_[at] != '"') continue;
    if (at + 1 == text_.size() && !at_end_) break;  // the next byte may be its twin
    if (at + 1 == text_.size() || text_[at + 1] != '"') return at + 1;
    ++at;
  }
  *step = at_end_ || limit < text_.size() ? Step::kOpenQuote : Step::kPartial;
  return kNotFound;
}

RecordCursor::Step RecordCursor::QuotedRecord() {
  uint64_t lines = 0;
  size_t at = position_;
  for (size_t field = 0;; ++field) {
    const size_t start = SkipBlanks(text_, at, dialect_);
    if (start < text_.size() && text_[start] == '"') {
      Step why = Step::kPartial;
      error_line_ = line_ + lines;
      at = ClosingQuote(start, &lines, &why);
      if (at == kNotFound) {
        error_field_ = field;
        return why;
      }
    }
    while (at < text_.size() && text_[at] != dialect_.delimiter && text_[at] != '\n') ++at;
    if (at < text_.size() && text_[at] == dialect_.delimiter) {
      ++at;
      continue;
    }
    if (at - position_ > kMaxCsvRecordBytes) return Step::kTooLong;
    if (at == text_.size() && !at_end_) return Step::kPartial;
    const size_t end = at > position_ && text_[at - 1] == '\r' ? at - 1 : at;
    const Step step = Found(end, std::min(at + 1, text_.size()));
    line_ += lines + 1;
    return step;
  }
}

FieldProblem FieldSplitter::Split(std::string_view record, const CsvDialect& dialect) {
  fields_.clear();
  problem_line_ = 0;
  if (dialect.quotes && FindByte(record, '"', 0) != kNotFound) return SplitQuoted(record, dialect);
  return SplitPlain(record, dialect);
}

FieldProblem FieldSplitter::SplitPlain(std::string_view record, const CsvDialect& dialect) {
  for (size_t at = 0;;) {
    const size_t end = std::min(FindByte(record, dialect.delimiter, at), record.size());
    const std::string_view field = Trimmed(record.substr(at, end - at), dialect);
    if (field.size() > kMaxFieldBytes) {
      problem_text_ = field.substr(0, 40);
      return FieldProblem::kTooLong;
    }
    fields_.push_back(field);
    if (end == record.size()) return FieldProblem::kNone;
    at = end + 1;
  }
}

size_t FieldSplitter::TakeQuoted(std::string_view record, size_t at) {
  const size_t first = unescaped_.size();
  bool escaped = false;
  for (size_t from = at;;) {
    const size_t quote = FindByte(record, '"', from);
    if (quote == kNotFound) return kNotFound;
    if (quote + 1 < record.size() && record[quote + 1] == '"') {
      unescaped_.append(record, from, quote + 1 - from);
      escaped = true;
      from = quote + 2;
      continue;
    }
    if (escaped) unescaped_.append(record, from, quote - from);
    fields_.push_back(escaped ? std::string_view(unescaped_).substr(first) : record.substr(at, quote - at));
    return quote + 1;
  }
}

FieldProblem FieldSplitter::SplitQuoted(std::string_view record, const CsvDialect& dialect) {
  unescaped_.clear();
  unescaped_.reserve(record.size());
  for (size_t at = 0;;) {
    const size_t start = SkipBlanks(record, at, dialect);
    size_t end = kNotFound;
    if (start < record.size() && record[start] == '"') {
      const size_t closed = TakeQuoted(record, start + 1);
      problem_text_ = record.substr(start, 40);
      if (closed == kNotFound) return FieldProblem::kOpenQuote;
      end = std::min(FindByte(record, dialect.delimiter, closed), record.size());
      if (SkipBlanks(record, closed, dialect) < end) {
        fields_.pop_back();
        problem_text_ = record.substr(closed, std::min<size_t>(end - closed, 40));
        problem_line_ = CountLineEnds(record.substr(0, closed));
        return FieldProblem::kTextAfterQuote;
      }
    } else {
      end = std::min(FindByte(record, dialect.delimiter, at), record.size());
      fields_.push_back(Trimmed(record.substr(at, end - at), dialect));
    }
    if (fields_.back().size() > kMaxFieldBytes) {
      problem_text_ = fields_.back().substr(0, 40);
      fields_.pop_back();
      return FieldProblem::kTooLong;
    }
    if (end == record.size()) return FieldProblem::kNone;
    at = end + 1;
  }
}

}  // namespace capstan
