#include "data/records.h"

#include <algorithm>
#include <limits>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;  // stays in the L2 cache

const std::vector<std::string>& NoColumns() {
  static const std::vector<std::string> none;
  return none;
}

}  // namespace

std::string ColumnText(size_t field, const std::vector<std::string>& columns) {
  return field < columns.size() ? fmt::format("column '{}'", columns[field])
                                : fmt::format("column {}", field + 1);
}

absl::Status RecordError(const std::string& path, RecordCursor::Step step, const RecordCursor& cursor,
                         const std::vector<std::string>& columns) {
  if (step == RecordCursor::Step::kOpenQuote) {
    return InvalidArgument(
        fmt::format("{}:{}: {}: the quote that opens here is not closed within {} bytes or before "
                    "the end of the file; close it, or write a quote inside a field as \"\"",
                    path, cursor.error_line(), ColumnText(cursor.error_field(), columns), kMaxFieldBytes));
  }
  return InvalidArgument(
      fmt::format("{}:{}: a record of more than {} bytes; is this a text file with LF or CRLF line "
                  "ends?",
                  path, cursor.next_line(), kMaxCsvRecordBytes));
}

RecordStream::RecordStream(const InputFile& file, const CsvDialect& dialect,
                           const std::vector<std::string>& columns, Place from)
    : file_(file),
      dialect_(dialect),
      columns_(columns),
      window_bytes_(file.in_memory() ? std::numeric_limits<uint64_t>::max() : kWindowBytes),
      base_(from.offset) {
  cursor_.emplace(std::string_view(), false, dialect_, from.line);
}

absl::Status RecordStream::Fill(Place from) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::string_view window, file_.Read(from.offset, window_bytes_, &buffer_));
  base_ = from.offset;
  cursor_.emplace(window, from.offset + window.size() >= file_.size(), dialect_, from.line);
  return absl::OkStatus();
}

absl::StatusOr<bool> RecordStream::Next() {
  for (;;) {
    const RecordCursor::Step step = cursor_->Next();
    const Place rest = after();
    switch (step) {
      case RecordCursor::Step::kRecord:
        return true;
      case RecordCursor::Step::kEnd:
        if (rest.offset >= file_.size()) return false;
        break;
      case RecordCursor::Step::kPartial:
        if (rest.offset == base_) window_bytes_ *= 2;
        break;
      case RecordCursor::Step::kOpenQuote:
      case RecordCursor::Step::kTooLong:
        return RecordError(file_.path(), step, *cursor_, columns_);
    }
    CAPSTAN_RETURN_IF_ERROR(Fill(rest));
  }
}

absl::StatusOr<RecordIndex> RecordIndex::Build(const InputFile& file, const CsvDialect& dialect,
                                               const std::vector<std::string>& columns, Place from) {
  RecordIndex index;
  RecordStream stream(file, dialect, columns, from);
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, stream.Next());
    if (!more) break;
    if (index.rows_ % kStride == 0) index.marks_.push_back(stream.place());
    ++index.rows_;
  }
  index.end_ = stream.after();
  return index;
}

absl::StatusOr<Place> RecordIndex::PlaceOf(const InputFile& file, const CsvDialect& dialect,
                                           uint64_t row) const {
  if (row >= rows_) return end_;
  Place place = marks_[row / kStride];
  if (row % kStride == 0) return place;
  RecordStream stream(file, dialect, NoColumns(), place);
  for (uint64_t i = 0; i <= row % kStride; ++i) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, stream.Next());
    if (!more) return DataLoss(fmt::format("'{}' changed while it was read; start again", file.path()));
    place = stream.place();
  }
  return place;
}

}  // namespace capstan
