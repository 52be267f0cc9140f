#include "data/data_file.h"

#include <algorithm>

#include <fmt/core.h>

#include "data/format.h"
#include "data/libsvm.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

absl::Status NoRows(const InputFile& input, bool header) {
  if (input.size() == 0) return InvalidArgument(fmt::format("'{}' is empty", input.path()));
  if (header)
    return InvalidArgument(fmt::format("'{}' has a header line but no rows below it", input.path()));
  return InvalidArgument(fmt::format("'{}' has no rows, only blank or comment lines", input.path()));
}

std::string ProblemText(FieldProblem problem, const FieldSplitter& splitter,
                        const std::vector<std::string>& columns) {
  const std::string column = ColumnText(splitter.fields().size(), columns);
  switch (problem) {
    case FieldProblem::kTextAfterQuote:
      return fmt::format("{}: '{}' follows the closing quote; write a quote inside a field as \"\"", column,
                         splitter.problem_text());
    case FieldProblem::kOpenQuote:
      return fmt::format("{}: the quote that opens here is not closed", column);
    case FieldProblem::kTooLong:
      return fmt::format("{}: a field of more than {} bytes, '{}…'", column, kMaxFieldBytes,
                         splitter.problem_text());
    case FieldProblem::kNone:
      break;
  }
  return "";
}

// The header, or the first row, as strings of its own.
absl::StatusOr<std::vector<std::string>> SplitFirst(const std::string& path, std::string_view record,
                                                    uint64_t line, const CsvDialect& dialect) {
  FieldSplitter splitter;
  const FieldProblem problem = splitter.Split(record, dialect);
  if (problem != FieldProblem::kNone) {
    return InvalidArgument(
        fmt::format("{}:{}: {}", path, line + splitter.problem_line(), ProblemText(problem, splitter, {})));
  }
  return std::vector<std::string>(splitter.fields().begin(), splitter.fields().end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataFile>> DataFile::Open(FileSystem& fs, const std::string& path,
                                                         const DataConfig& given, const Schema& schema,
                                                         const std::vector<std::string>& known_columns) {
  const DataConfig config = WithFormatDefaults(given);
  std::unique_ptr<DataFile> file(new DataFile(schema));
  CAPSTAN_ASSIGN_OR_RETURN(const DataConfig::Format format, FormatOf(config, path));
  if ((format == DataConfig::LIBSVM) != schema.libsvm()) {
    return InvalidArgument(
        fmt::format("'{}' has format {}, the job's features are those of {}; set data.format", path,
                    DataConfig::Format_Name(format), schema.libsvm() ? "LIBSVM" : "columns"));
  }
  CAPSTAN_ASSIGN_OR_RETURN(file->input_, InputFile::Open(fs, path));
  file->dialect_ = DialectOf(config, format);
  file->body_ = {file->input_->first_byte(), 1};
  file->header_ = !schema.libsvm() && HasHeader(config);
  static const std::vector<std::string> unnamed;
  RecordStream stream(*file->input_, file->dialect_, unnamed, file->body_);
  CAPSTAN_ASSIGN_OR_RETURN(const bool any, stream.Next());
  if (!any) return NoRows(*file->input_, false);
  if (schema.libsvm()) {
    file->columns_ = {"libsvm"};
    return file;
  }
  const uint64_t line = stream.place().line;
  if (stream.record().find('\r') != std::string_view::npos &&
      stream.record().find('"') == std::string_view::npos) {
    return InvalidArgument(fmt::format(
        "{}:{}: a CR that no LF follows; convert the line ends to LF: tr '\\r' '\\n'", path, line));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> first,
                           SplitFirst(path, stream.record(), line, file->dialect_));
  if (file->header_) file->body_ = stream.after();
  CAPSTAN_RETURN_IF_ERROR(file->NameColumns(config, known_columns, first, line));
  return file;
}

absl::Status DataFile::NameColumns(const DataConfig& config, const std::vector<std::string>& known_columns,
                                   const std::vector<std::string>& first_record, uint64_t line) {
  const std::string& path = input_->path();
  const std::vector<std::string> listed(config.column().begin(), config.column().end());
  std::vector<std::string> columns = listed.empty() ? known_columns : listed;
  if (header_ && listed.empty()) columns = first_record;
  if (header_ && columns.size() != first_record.size()) {
    return InvalidArgument(fmt::format("{}:{}: the header has {} columns, data.column names {}", path, line,
                                       first_record.size(), columns.size()));
  }
  if (!header_ && !listed.empty() && first_record == listed) {
    return InvalidArgument(
        fmt::format("{}:{}: this line is a header; set data.header: HEADER_YES", path, line));
  }
  if (columns.empty()) {  // neither named nor known: 1, 2, 3, … from the left
    for (size_t i = 1; i <= first_record.size(); ++i) columns.push_back(fmt::format("{}", i));
  }
  columns_ = columns;
  labelled_ = schema_.Bind(path, columns, true);
  const auto label = std::find(columns.begin(), columns.end(), schema_.label_column());
  if (!header_ && first_record.size() + 1 == columns.size() && label != columns.end()) {
    columns.erase(label);  // rows to predict, which have everything but the label
  }
  unlabelled_ = schema_.Bind(path, std::move(columns), false);
  return unlabelled_.status();
}

absl::StatusOr<RecordIndex> DataFile::BuildIndex() const {
  CAPSTAN_ASSIGN_OR_RETURN(RecordIndex index, RecordIndex::Build(*input_, dialect_, columns_, body_));
  if (index.rows() == 0) return NoRows(*input_, header_);
  return index;
}

absl::StatusOr<DataFile::Range> DataFile::RangeOf(const RecordIndex& index, uint64_t first_row,
                                                  uint32_t rows) const {
  Range range;
  CAPSTAN_ASSIGN_OR_RETURN(range.from, index.PlaceOf(*input_, dialect_, first_row));
  CAPSTAN_ASSIGN_OR_RETURN(const Place to, index.PlaceOf(*input_, dialect_, first_row + rows));
  range.bytes = to.offset - range.from.offset;
  range.rows = rows;
  return range;
}

bool DataFile::ParseCsv(std::string_view record, const Binding& binding, FieldSplitter* splitter,
                        RowValues* row, uint64_t* line, std::string* problem) const {
  const FieldProblem bad = splitter->Split(record, dialect_);
  if (bad != FieldProblem::kNone) {
    *problem = ProblemText(bad, *splitter, binding.columns);
    *line += splitter->problem_line();
    return false;
  }
  const size_t count = splitter->fields().size();
  if (count != binding.columns.size()) {
    *problem = fmt::format("too {} columns: {}, and {} {}", count < binding.columns.size() ? "few" : "many",
                           count, header_ ? "the header has" : "wanted are", binding.columns.size());
    return false;
  }
  return schema_.ParseRow(splitter->fields(), binding, row, problem);
}

absl::Status DataFile::ReadRows(const Range& range, bool labels, const RowFunction& on_row) const {
  CAPSTAN_RETURN_IF_ERROR(CheckBinding(labels));
  const Binding& binding = *BindingFor(labels);
  std::string scratch, problem;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string_view text,
                           input_->Read(range.from.offset, range.bytes, &scratch));
  RecordCursor cursor(text, true, dialect_, range.from.line);
  FieldSplitter splitter;
  LibsvmRow libsvm_row;
  RowValues row;
  uint32_t rows = 0;
  RecordCursor::Step step = cursor.Next();
  for (; step == RecordCursor::Step::kRecord && rows < range.rows; ++rows, step = cursor.Next()) {
    problem.clear();
    uint64_t line = cursor.line();
    const bool good = schema_.libsvm() ? ParseLibsvm(cursor.record(), &libsvm_row, &problem) &&
                                             schema_.ParseRow(libsvm_row, labels, &row, &problem)
                                       : ParseCsv(cursor.record(), binding, &splitter, &row, &line, &problem);
    if (!good) problem = fmt::format("{}:{}: {}", input_->path(), line, problem);
    on_row(row, problem);
  }
  if (step == RecordCursor::Step::kOpenQuote || step == RecordCursor::Step::kTooLong) {
    return RecordError(input_->path(), step, cursor, columns_);
  }
  if (rows == range.rows && step == RecordCursor::Step::kEnd) return absl::OkStatus();
  return DataLoss(
      fmt::format("{}:{}: {} rows are wanted from here, {} were found; the file changed after it was scanned",
                  input_->path(), range.from.line, range.rows,
                  step == RecordCursor::Step::kEnd ? fmt::format("{}", rows) : "more"));
}

}  // namespace capstan
