// One input file bound to a schema: its header, its columns, and its rows as values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "data/csv.h"
#include "data/input_file.h"
#include "data/records.h"
#include "data/schema.h"

namespace capstan {

class DataConfig;

// Immutable after Open: thread-safe. `schema` is kept by the caller and outlives this.
class DataFile {
 public:
  // A run of whole records.
  struct Range {
    Place from;
    uint64_t bytes = 0;
    uint32_t rows = 0;
  };
  // Called once per row, in file order. `problem` is empty for a good row; for a bad one it is the whole
  // message, starting with "file:line: ", and `row` means nothing.
  using RowFunction = std::function<void(const RowValues& row, const std::string& problem)>;

  // `known_columns`: of the training file; they name the columns of a file that names none itself. Fails,
  // naming the file, if it is missing, empty, has no row, or lacks a column that a feature reads.
  static absl::StatusOr<std::unique_ptr<DataFile>> Open(FileSystem& fs, const std::string& path,
                                                        const DataConfig& config, const Schema& schema,
                                                        const std::vector<std::string>& known_columns);

  const InputFile& input() const { return *input_; }
  const std::vector<std::string>& columns() const { return columns_; }
  // OK if rows can be read with (without) their labels; else why not.
  absl::Status CheckBinding(bool labels) const { return BindingFor(labels).status(); }

  absl::StatusOr<RecordIndex> BuildIndex() const;
  absl::StatusOr<Range> RangeOf(const RecordIndex& index, uint64_t first_row, uint32_t rows) const;

  // Fails only for what cannot be one row's fault: the disk, an open quote, a file that changed under us.
  absl::Status ReadRows(const Range& range, bool labels, const RowFunction& on_row) const;

 private:
  explicit DataFile(const Schema& schema) : schema_(schema) {}

  const absl::StatusOr<Binding>& BindingFor(bool labels) const { return labels ? labelled_ : unlabelled_; }
  absl::Status NameColumns(const DataConfig& config, const std::vector<std::string>& known_columns,
                           const std::vector<std::string>& first_record, uint64_t line);
  bool ParseCsv(std::string_view record, const Binding& binding, FieldSplitter* splitter, RowValues* row,
                uint64_t* line, std::string* problem) const;

  const Schema& schema_;
  std::unique_ptr<InputFile> input_;
  CsvDialect dialect_;
  bool header_ = false;
  Place body_;                        // after the header
  std::vector<std::string> columns_;  // libsvm: "libsvm"
  absl::StatusOr<Binding> labelled_ = Binding();
  absl::StatusOr<Binding> unlabelled_ = Binding();
};

}  // namespace capstan
