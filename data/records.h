// The records of a whole file: read in order through a window of a few MiB, counted, and found again by
// number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "data/csv.h"
#include "data/input_file.h"

namespace capstan {

// A place between two records.
struct Place {
  uint64_t offset = 0;  // bytes into the (decompressed) file
  uint64_t line = 1;    // 1-based number of the line that starts there
};

// "column 'age'" if the name is known, else "column 3" (from 1).
std::string ColumnText(size_t field, const std::vector<std::string>& columns);

// kInvalidArgument for a cursor that stopped at kOpenQuote or kTooLong: file, line and column.
absl::Status RecordError(const std::string& path, RecordCursor::Step step, const RecordCursor& cursor,
                         const std::vector<std::string>& columns);

// Reads forward from a place. One thread; the file, dialect and columns (names for messages) are kept by the
// caller.
class RecordStream {
 public:
  RecordStream(const InputFile& file, const CsvDialect& dialect, const std::vector<std::string>& columns,
               Place from);

  // False at the end of the file.
  absl::StatusOr<bool> Next();
  std::string_view record() const { return cursor_->record(); }
  Place place() const { return {base_ + cursor_->offset(), cursor_->line()}; }  // of the record
  Place after() const {
    return {base_ + cursor_->position(), cursor_->next_line()};
  }  // where the next one may start

 private:
  absl::Status Fill(Place from);

  const InputFile& file_;
  const CsvDialect& dialect_;
  const std::vector<std::string>& columns_;
  uint64_t window_bytes_;
  uint64_t base_ = 0;  // file offset of the window
  std::string buffer_;
  std::optional<RecordCursor> cursor_;
};

// How many records a file has, and where each starts, in a quarter of a byte per record.
class RecordIndex {
 public:
  // Walks over every record from `from` on. Costs one read of the file.
  static absl::StatusOr<RecordIndex> Build(const InputFile& file, const CsvDialect& dialect,
                                           const std::vector<std::string>& columns, Place from);

  uint64_t rows() const { return rows_; }
  // Where record `row` starts; for row == rows(), the end of the file. Reads at most a few records.
  absl::StatusOr<Place> PlaceOf(const InputFile& file, const CsvDialect& dialect, uint64_t row) const;

 private:
  static constexpr uint64_t kStride = 64;

  uint64_t rows_ = 0;
  Place end_;
  std::vector<Place> marks_;  // of records 0, kStride, 2·kStride, …
};

}  // namespace capstan
