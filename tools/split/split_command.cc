#include "tools/split/split_command.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "common/hash.h"
#include "data/format.h"
#include "data/guess.h"
#include "data/input_file.h"
#include "data/records.h"
#include "proto/job.pb.h"
#include "tools/print.h"

namespace capstan {
namespace {

constexpr uint64_t kSplitTag = 0x53504c4954524f57;  // keeps these draws apart from all others of the seed

bool GoesToTest(uint64_t seed, uint64_t row, double fraction) {
  return static_cast<double>(Mix64(Mix64(seed ^ kSplitTag) ^ row) >> 11) * 0x1p-53 < fraction;
}

bool ReadsLibsvm(const std::string& path) {
  DataConfig config;
  config.add_train(path);
  return IsLibsvm(config);
}

// Collects lines for a file that appears under its name only when all of them are on the disk.
class LineFile {
 public:
  LineFile(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  ~LineFile() {
    if (file_ == nullptr || renamed_) return;
    file_.reset();
    fs_.Remove(path_ + ".tmp").IgnoreError();  // the error that brought us here is the one to report
  }

  absl::Status Create() {
    CAPSTAN_ASSIGN_OR_RETURN(file_, fs_.Create(path_ + ".tmp"));
    return absl::OkStatus();
  }
  absl::Status Append(std::string_view line) {
    buffer_.append(line);
    buffer_.push_back('\n');
    return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Finish() {
    CAPSTAN_RETURN_IF_ERROR(Flush());
    CAPSTAN_RETURN_IF_ERROR(file_->Sync());
    CAPSTAN_RETURN_IF_ERROR(file_->Close());
    CAPSTAN_RETURN_IF_ERROR(fs_.Rename(path_ + ".tmp", path_));
    renamed_ = true;
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;

  absl::Status Flush() {
    const absl::Status written = file_->Append(buffer_.data(), buffer_.size());
    buffer_.clear();
    return written;
  }

  FileSystem& fs_;
  const std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  bool renamed_ = false;
};

std::string SideWithoutRows(const SplitReport& report, double fraction) {
  return fmt::format(
      "{} rows cut by --fraction={} give {} to train on and {} to test on, and both sides want at least one",
      report.train_rows + report.test_rows, fraction, report.train_rows, report.test_rows);
}

}  // namespace

absl::Status CheckSplitOptions(const SplitOptions& options) {
  if (options.data.empty()) return InvalidArgument("--data is missing: the file to cut in two");
  if (options.label.empty() && !ReadsLibsvm(options.data))
    return InvalidArgument("--label is missing: the column that holds what is to be predicted");
  if (options.out_train.empty())
    return InvalidArgument("--out_train is missing: the file for the rows to train on");
  if (options.out_test.empty())
    return InvalidArgument("--out_test is missing: the file for the rows to test on");
  if (options.out_train == options.out_test || options.out_train == options.data ||
      options.out_test == options.data) {
    return InvalidArgument("--data, --out_train and --out_test must be three different files");
  }
  if (!(options.fraction > 0 && options.fraction < 1)) {
    return InvalidArgument(fmt::format("--fraction={} is not between 0 and 1", options.fraction));
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitReport> SplitFile(FileSystem& fs, const SplitOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckSplitOptions(options));
  DataConfig config;
  CAPSTAN_RETURN_IF_ERROR(GuessSchema(fs, options.data, options.label, &config).status());
  CAPSTAN_ASSIGN_OR_RETURN(const DataConfig::Format format, FormatOf(config, options.data));
  const CsvDialect dialect = DialectOf(config, format);
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> input, InputFile::Open(fs, options.data));
  LineFile train(fs, options.out_train), test(fs, options.out_test);
  CAPSTAN_RETURN_IF_ERROR(train.Create());
  CAPSTAN_RETURN_IF_ERROR(test.Create());

  const std::vector<std::string> unnamed;
  RecordStream stream(*input, dialect, unnamed, {input->first_byte(), 1});
  bool header = format != DataConfig::LIBSVM && HasHeader(config);
  SplitReport report;
  for (;;) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool more, stream.Next());
    if (!more) break;
    const bool to_test =
        !header && GoesToTest(options.seed, report.train_rows + report.test_rows, options.fraction);
    if (header || !to_test) CAPSTAN_RETURN_IF_ERROR(train.Append(stream.record()));
    if (header || to_test) CAPSTAN_RETURN_IF_ERROR(test.Append(stream.record()));
    if (!header) ++(to_test ? report.test_rows : report.train_rows);
    header = false;
  }
  if (report.train_rows == 0 || report.test_rows == 0)
    return InvalidArgument(SideWithoutRows(report, options.fraction));
  CAPSTAN_RETURN_IF_ERROR(train.Finish());
  CAPSTAN_RETURN_IF_ERROR(test.Finish());
  return report;
}

int RunSplit(const SplitOptions& options) {
  const auto complain = [](const absl::Status& status, ExitCode code) {
    Print(stderr, "capstan split: {}\n", std::string(status.message()));
    return ToInt(code);
  };
  if (const absl::Status status = CheckSplitOptions(options); !status.ok())
    return complain(status, ExitCode::kUsage);
  const absl::StatusOr<SplitReport> report = SplitFile(PosixFileSystem(), options);
  if (!report.ok()) return complain(report.status(), ExitCode::kData);
  Print(stderr, "{} rows to train on in '{}', {} to test on in '{}'\n", report->train_rows,
             options.out_train, report->test_rows, options.out_test);
  return ToInt(ExitCode::kDone);
}

}  // namespace capstan
