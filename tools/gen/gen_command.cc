#include "tools/gen/gen_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "common/exit_code.h"
#include "data/generator.h"
#include "data/generator_blocks.h"
#include "models/bayes.h"
#include "tools/gen/command_util.h"
#include "tools/output_path.h"
#include "tools/print.h"

namespace capstan {

namespace {

std::string FolderOfOutput(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Writes blocks and keeps what the report needs of them. Sums go block by block in row order, so the figures
// do not depend on the threads.
class BlockWriter {
 public:
  BlockWriter(WritableFile* file, const GenOptions& options)
      : file_(file), options_(options), auc_stride_((options.rows + kMaxAucRows - 1) / kMaxAucRows) {
    report_.rows = options.rows;
  }

  absl::Status Write(const ClickBlock& block) {
    double loss = 0;
    for (const double p : block.probabilities) {
      loss -= p * std::log(p) + (1 - p) * std::log1p(-p);
      if (seen_++ % auc_stride_ == 0) auc_probabilities_.push_back(p);
    }
    loss_ += loss;
    report_.clicks += block.clicks;
    report_.bytes += block.tsv.size();
    CAPSTAN_RETURN_IF_ERROR(file_->Append(block.tsv.data(), block.tsv.size()));
    if (options_.progress) options_.progress(seen_);
    return absl::OkStatus();
  }

  GenReport Report() const {
    GenReport report = report_;
    report.best_logloss = loss_ / static_cast<double>(report.rows);
    report.best_auc = ExpectedAuc(auc_probabilities_, auc_probabilities_);
    report.auc_rows = auc_probabilities_.size();
    return report;
  }

 private:
  WritableFile* file_;
  const GenOptions& options_;
  const uint64_t auc_stride_;
  uint64_t seen_ = 0;
  double loss_ = 0;
  std::vector<double> auc_probabilities_;
  GenReport report_;
};

absl::Status WriteRows(FileSystem& fs, const GenOptions& options, const std::string& path,
                       GenReport* report) {
  absl::StatusOr<std::unique_ptr<WritableFile>> created = fs.Create(path);
  if (absl::IsNotFound(created.status())) {
    return NotFound(fmt::format("there is no folder '{}' to write {} into; make it first, or change --out",
                                FolderOfOutput(path), options.out));
  }
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, std::move(created));
  const ClickLog log(options.seed);
  BlockWriter writer(file.get(), options);
  const auto begin = std::chrono::steady_clock::now();
  CAPSTAN_RETURN_IF_ERROR(MakeClickBlocks(log, options.start, options.rows, ThreadsOrAll(options.threads),
                                          [&](const ClickBlock& block) { return writer.Write(block); }));
  CAPSTAN_RETURN_IF_ERROR(file->Sync());
  CAPSTAN_RETURN_IF_ERROR(file->Close());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  *report = writer.Report();
  report->seconds = seconds.count();
  return absl::OkStatus();
}

// A line on stderr that is rewritten a few times a second.
class ProgressLine {
 public:
  explicit ProgressLine(uint64_t rows) : rows_(rows) {}

  void Update(uint64_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (done < rows_ && now - shown_ < std::chrono::milliseconds(250)) return;
    shown_ = now;
    const std::chrono::duration<double> seconds = now - begin_;
    Print(stderr, "\r{:3.0f} % of {} rows, {:.0f} rows/s {}",
               100.0 * static_cast<double>(done) / static_cast<double>(rows_), rows_,
               static_cast<double>(done) / std::max(seconds.count(), 1e-9), done < rows_ ? "" : "\n");
  }

 private:
  using Moment = std::chrono::steady_clock::time_point;
  const uint64_t rows_;
  const Moment begin_ = std::chrono::steady_clock::now();
  Moment shown_ = begin_;
};

std::string AucLine(const GenReport& report) {
  if (!report.best_auc) return "not defined: there is no pair of rows\n";
  std::string line = fmt::format("{:.5f}", *report.best_auc);
  if (report.auc_rows < report.rows) line += fmt::format("  (over {} evenly spaced rows)", report.auc_rows);
  return line + "\n";
}

std::string NextSteps(const GenOptions& options) {
  if (options.start >= kFirstTestRow) {
    return fmt::format(
        "next: score these rows and see how far from the best possible the scores are:\n"
        "  capstan predict --model=DIR --data={0} --out=scores.csv\n"
        "  capstan gap --predictions=scores.csv --seed={1} --start={2}\n",
        options.out, options.seed, options.start);
  }
  return fmt::format(
      "next: make test rows of the same log, far from the training rows:\n"
      "  capstan gen --rows=100000 --seed={0} --start={1} --out=test.tsv\n"
      "then name both files when training: capstan train JOB --data={2} --eval_data=test.tsv\n",
      options.seed, kFirstTestRow, options.out);
}

void PrintReport(const GenOptions& options, const GenReport& report) {
  const auto rows = static_cast<double>(report.rows);
  Print(
      "wrote {}: rows {} to {} of seed {}, {:.1f} MB in {:.1f} s ({:.0f} rows/s)\n"
      "  click rate              {:.5f}\n"
      "  best possible AUC       {}"
      "  best possible log loss  {:.5f}  (nats)\n"
      "{}",
      options.out, options.start, options.start + report.rows - 1, options.seed,
      static_cast<double>(report.bytes) / 1e6, report.seconds, rows / std::max(report.seconds, 1e-9),
      static_cast<double>(report.clicks) / rows, AucLine(report), report.best_logloss, NextSteps(options));
}

}  // namespace

absl::Status CheckGenOptions(const GenOptions& options) {
  if (options.out.empty())
    return InvalidArgument("--out is missing: give the file to write, as in --out=train.tsv");
  if (options.rows == 0) return InvalidArgument("--rows is 0; give the number of rows, as in --rows=1000000");
  if (options.start >= kFirstReservedRow || options.rows > kFirstReservedRow - options.start) {
    return InvalidArgument(
        fmt::format("--start={} and --rows={} reach row 2^62; rows from there on calibrate the log",
                    options.start, options.rows));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenReport> GenerateFile(FileSystem& fs, const GenOptions& options) {
  CAPSTAN_RETURN_IF_ERROR(CheckGenOptions(options));
  const std::string temporary = options.out + ".tmp";
  GenReport report;
  absl::Status status = WriteRows(fs, options, temporary, &report);
  if (status.ok()) status = fs.Rename(temporary, options.out);
  if (!status.ok()) {
    // The cause is what the user needs; a .tmp file that cannot be removed either is replaced by the next
    // run.
    fs.Remove(temporary).IgnoreError();
    return status;
  }
  CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(FolderOfOutput(options.out)));
  return report;
}

int RunGen(const GenOptions& options) {
  if (const absl::Status status = CheckGenOptions(options); !status.ok()) {
    return ReportFailure("gen", status, ExitCode::kUsage);
  }
  if (const absl::Status status = CheckOutputPath(options.out, {}); !status.ok()) {
    return ReportFailure("gen", status, ExitCode::kUsage);
  }
  GenOptions with_progress = options;
  ProgressLine line(options.rows);
  with_progress.progress = nullptr;
  if (isatty(STDERR_FILENO) != 0) with_progress.progress = [&line](uint64_t done) { line.Update(done); };
  const absl::StatusOr<GenReport> report = GenerateFile(PosixFileSystem(), with_progress);
  if (!report.ok()) return ReportFailure("gen", report.status(), ExitCode::kData);
  PrintReport(options, *report);
  return ToInt(ExitCode::kDone);
}

}  // namespace capstan
