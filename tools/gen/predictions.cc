#include "tools/gen/predictions.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <string_view>

#include <fmt/core.h>

namespace capstan {

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kMaxLineBytes = size_t{1} << 16;
constexpr size_t kShownBytes = 40;  // of a bad field, in messages
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

using LineVisitor = std::function<absl::Status(uint64_t line, std::string_view text)>;

// Calls `visit` with each line and its number from 1, without line ends. A last line without a line end
// counts.
absl::Status ForEachLine(const RandomAccessFile& file, const LineVisitor& visit) {
  std::string pending;  // the start of a line whose end has not been read
  std::vector<char> chunk(kReadBytes);
  uint64_t line = 0;
  const auto finish_line = [&](std::string_view text) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    return visit(++line, text);
  };
  for (uint64_t offset = 0; offset < file.size();) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(chunk.size(), file.size() - offset));
    CAPSTAN_RETURN_IF_ERROR(file.Read(offset, chunk.data(), size));
    offset += size;
    std::string_view rest(chunk.data(), size);
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      pending.append(rest.substr(0, end));
      CAPSTAN_RETURN_IF_ERROR(finish_line(pending));
      pending.clear();
      rest.remove_prefix(end + 1);
    }
    pending.append(rest);
    if (pending.size() > kMaxLineBytes) {
      return InvalidArgument(fmt::format("line {}: longer than {} bytes; is this a file of predictions?",
                                         line + 1, kMaxLineBytes));
    }
  }
  return pending.empty() ? absl::OkStatus() : finish_line(pending);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view FirstField(std::string_view line) { return Trimmed(line.substr(0, line.find(','))); }

std::string_view LastField(std::string_view line) {
  const size_t comma = line.rfind(',');
  return Trimmed(comma == std::string_view::npos ? line : line.substr(comma + 1));
}

// The whole of `text` as a number.
template <typename Number>
bool ParseWhole(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, kShownBytes)) shown.push_back(c >= ' ' && c <= '~' ? c : '?');
  return text.size() > kShownBytes ? shown + "…" : shown;
}

bool LooksLikeHeader(std::string_view line) {
  const std::string_view field = LastField(line);
  double number = 0;
  if (field.empty() || ParseWhole(field, &number)) return false;
  const char c = field.front();
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '"';
}

class PredictionsParser {
 public:
  absl::Status Visit(uint64_t line, std::string_view text) {
    if (line == 1) {
      if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
      if (LooksLikeHeader(text)) {
        const std::string_view first = FirstField(text);
        has_row_numbers_ = text.find(',') != std::string_view::npos && (first == "row" || first == "\"row\"");
        return absl::OkStatus();
      }
    }
    double score = 0;
    const std::string_view field = LastField(text);
    if (!ParseWhole(field, &score) || !(score >= 0 && score <= 1)) {
      return InvalidArgument(fmt::format(
          "line {}: the score is '{}'; it must be a probability from 0 to 1, as capstan predict writes", line,
          Shown(field)));
    }
    uint64_t row = parsed_.rows.size();
    if (has_row_numbers_) CAPSTAN_RETURN_IF_ERROR(ParseRow(line, text, &row));
    parsed_.rows.push_back(row);
    parsed_.scores.push_back(score);
    return absl::OkStatus();
  }

  Predictions Take() { return std::move(parsed_); }

 private:
  absl::Status ParseRow(uint64_t line, std::string_view text, uint64_t* row) const {
    const std::string_view field = FirstField(text);
    if (text.find(',') == std::string_view::npos || !ParseWhole(field, row)) {
      return InvalidArgument(
          fmt::format("line {}: the row number is '{}'; the header names a column 'row', so each line must "
                      "start with one",
                      line, Shown(field)));
    }
    if (!parsed_.rows.empty() && *row <= parsed_.rows.back()) {
      return InvalidArgument(fmt::format("line {}: row {} comes after row {}; row numbers must grow", line,
                                         *row, parsed_.rows.back()));
    }
    return absl::OkStatus();
  }

  bool has_row_numbers_ = false;
  Predictions parsed_;
};

}  // namespace

absl::StatusOr<Predictions> ReadPredictions(FileSystem& fs, const std::string& path) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs.Open(path));
  PredictionsParser parser;
  CAPSTAN_RETURN_IF_ERROR(While(
      fmt::format("'{}'", path),
      ForEachLine(*file, [&](uint64_t line, std::string_view text) { return parser.Visit(line, text); })));
  Predictions predictions = parser.Take();
  if (predictions.scores.empty()) {
    return InvalidArgument(
        fmt::format("'{}': there is no prediction in it; one score per line was expected", path));
  }
  return predictions;
}

}  // namespace capstan
