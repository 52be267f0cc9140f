// capstan gen and capstan gap: files written, files read back, and what broken input is answered with.
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/exit_code.h"
#include "common/file_system.h"
#include "data/generator.h"
#include "tools/gen/gap_command.h"
#include "tools/gen/gen_command.h"
#include "tools/gen/predictions.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const ClickLog& LogOfSeedOne() {
  static const ClickLog* log = new ClickLog(1);
  return *log;
}

GenOptions SmallFile(const std::string& out) {
  GenOptions options;
  options.rows = 5000;
  options.start = 1000;
  options.out = out;
  options.threads = 2;
  return options;
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// Takes `fail_after` appended bytes, then fails like a full disk. Everything else goes to memory.
class FullDisk final : public FileSystem {
 public:
  explicit FullDisk(uint64_t fail_after) : left_(fail_after), memory_(NewMemoryFileSystem()) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, memory_->Create(path));
    return std::make_unique<LimitedFile>(this, std::move(file));
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) override {
    return memory_->Open(path);
  }
  absl::StatusOr<bool> Exists(const std::string& path) override { return memory_->Exists(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    return memory_->List(folder);
  }
  absl::Status MakeFolders(const std::string& path) override { return memory_->MakeFolders(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return memory_->Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override { return memory_->Remove(path); }
  absl::Status SyncFolder(const std::string& path) override { return memory_->SyncFolder(path); }
  absl::StatusOr<FileInfo> Stat(const std::string& path) override { return memory_->Stat(path); }
  absl::Status HardLink(const std::string& from, const std::string& to) override {
    return memory_->HardLink(from, to);
  }
  absl::StatusOr<uint64_t> FreeBytes(const std::string&) override { return left_; }

 private:
  class LimitedFile final : public WritableFile {
   public:
    LimitedFile(FullDisk* disk, std::unique_ptr<WritableFile> file) : disk_(disk), file_(std::move(file)) {}
    absl::Status Append(const void* data, size_t size) override {
      if (size > disk_->left_) return Unavailable("writing: No space left on device");
      disk_->left_ -= size;
      return file_->Append(data, size);
    }
    absl::Status Sync() override { return file_->Sync(); }
    absl::Status Close() override { return file_->Close(); }

   private:
    FullDisk* disk_;
    std::unique_ptr<WritableFile> file_;
  };

  uint64_t left_;
  std::unique_ptr<FileSystem> memory_;
};

TEST(GenerateFile, WritesTheRowsAndTheirOptimum) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  ASSERT_TRUE(fs->MakeFolders("/logs").ok());
  const absl::StatusOr<GenReport> report = GenerateFile(*fs, SmallFile("/logs/train.tsv"));
  ASSERT_TRUE(report.ok()) << report.status();

  std::string expected;
  uint64_t clicks = 0;
  for (uint64_t r = 1000; r < 6000; ++r) {
    const ClickRow row = LogOfSeedOne().Row(r);
    clicks += row.clicked ? 1 : 0;
    LogOfSeedOne().AppendTsv(row, &expected);
  }
  const absl::StatusOr<std::string> written = ReadWholeFile(*fs, "/logs/train.tsv", 1 << 24);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_TRUE(*written == expected);
  EXPECT_EQ(report->rows, 5000u);
  EXPECT_EQ(report->bytes, expected.size());
  EXPECT_EQ(report->clicks, clicks);
  EXPECT_EQ(report->auc_rows, 5000u);
  EXPECT_NEAR(report->best_auc.value(), 0.83, 0.02);
  EXPECT_NEAR(report->best_logloss, 0.42, 0.02);
  EXPECT_THAT(fs->List("/logs").value(), ElementsAre("train.tsv"));
}

TEST(GenerateFile, FiguresDoNotDependOnThreads) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  GenOptions options = SmallFile("/one.tsv");
  options.threads = 1;
  const GenReport one = GenerateFile(*fs, options).value();
  options.threads = 3;
  const GenReport three = GenerateFile(*fs, options).value();
  EXPECT_EQ(one.best_auc, three.best_auc);
  EXPECT_EQ(one.best_logloss, three.best_logloss);
}

TEST(GenerateFile, ReportsProgressUpToTheEnd) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  std::vector<uint64_t> seen;
  GenOptions options = SmallFile("/p.tsv");
  options.progress = [&](uint64_t done) { seen.push_back(done); };
  ASSERT_TRUE(GenerateFile(*fs, options).ok());
  EXPECT_THAT(seen, ElementsAre(4096u, 5000u));
}

TEST(GenerateFile, AFullDiskLeavesNeitherFileNorRemains) {
  FullDisk disk(uint64_t{1} << 20);  // enough for one block, not for the next
  const absl::StatusOr<GenReport> report = GenerateFile(disk, SmallFile("/train.tsv"));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(report.status()), HasSubstr("No space left"));
  EXPECT_FALSE(disk.Exists("/train.tsv").value());
  EXPECT_FALSE(disk.Exists("/train.tsv.tmp").value());
}

TEST(GenerateFile, NamesTheFolderThatIsMissing) {
  const std::string out = ::testing::TempDir() + "capstan_no_such_folder/train.tsv";
  const absl::StatusOr<GenReport> report = GenerateFile(PosixFileSystem(), SmallFile(out));
  EXPECT_EQ(report.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(report.status()), HasSubstr("capstan_no_such_folder'"));
}

struct OptionCase {
  const char* why;
  uint64_t rows;
  uint64_t start;
  const char* out;
  const char* flag;  // named in the message; empty: accepted
};

TEST(CheckGenOptions, FollowsTheTable) {
  constexpr OptionCase kCases[] = {
      {"an ordinary file", 10, 0, "a.tsv", ""},
      {"no file", 10, 0, "", "--out"},
      {"no rows", 0, 0, "a.tsv", "--rows"},
      {"the last rows there are", 10, kFirstReservedRow - 10, "a.tsv", ""},
      {"one row too far", 11, kFirstReservedRow - 10, "a.tsv", "--start"},
      {"a start that overflows", ~uint64_t{0}, ~uint64_t{0}, "a.tsv", "--start"},
  };
  for (const OptionCase& c : kCases) {
    SCOPED_TRACE(c.why);
    GenOptions options;
    options.rows = c.rows;
    options.start = c.start;
    options.out = c.out;
    const absl::Status status = CheckGenOptions(options);
    EXPECT_EQ(status.ok(), std::string(c.flag).empty());
    EXPECT_THAT(MessageOf(status), HasSubstr(c.flag));
  }
}

absl::StatusOr<Predictions> ReadText(std::string_view text) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  const absl::Status status = WriteFileAtomically(*fs, "/scores.csv", text);
  if (!status.ok()) return status;
  return ReadPredictions(*fs, "/scores.csv");
}

struct GoodFile {
  const char* why;
  const char* text;
  std::vector<uint64_t> rows;
  std::vector<double> scores;
};

TEST(ReadPredictions, AcceptsWhatPredictAndPeopleWrite) {
  const std::vector<GoodFile> files = {
      {"a score per line", "0.25\n0.5\n", {0, 1}, {0.25, 0.5}},
      {"no newline at the end", "0.25\n1", {0, 1}, {0.25, 1}},
      {"CRLF, blanks, exponent", " 0.25 \r\n2.5e-1\r\n", {0, 1}, {0.25, 0.25}},
      {"header", "score\n0.5\n", {0}, {0.5}},
      {"byte order mark and header", "\xEF\xBB\xBFscore\n0.5\n", {0}, {0.5}},
      {"byte order mark, no header",
       "\xEF\xBB\xBF"
       "0.5\n",
       {0},
       {0.5}},
      {"rows in order", "row,score\n0,0.5\n1,0\n", {0, 1}, {0.5, 0}},
      {"rows left out", "row,score\n3,0.5\n7,0.25\n", {3, 7}, {0.5, 0.25}},
      {"quoted header", "\"row\",\"score\"\n2,0.5\n", {2}, {0.5}},
      {"other columns before the score", "label,score\n1,0.5\n0,0.25\n", {0, 1}, {0.5, 0.25}},
  };
  for (const GoodFile& file : files) {
    SCOPED_TRACE(file.why);
    const absl::StatusOr<Predictions> read = ReadText(file.text);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rows, file.rows);
    EXPECT_EQ(read->scores, file.scores);
  }
}

struct BadFile {
  const char* why;
  std::string text;
  const char* message;
};

TEST(ReadPredictions, NamesFileLineAndText) {
  const std::vector<BadFile> files = {
      {"empty", "", "no prediction"},
      {"only a header", "score\n", "no prediction"},
      {"text", "0.5\nabc\n", "line 2: the score is 'abc'"},
      {"digits and more", "0.5x\n", "line 1: the score is '0.5x'"},
      {"blank line", "0.5\n\n0.5\n", "line 2: the score is ''"},
      {"above 1", "score\n0.5\n1.5\n", "line 3: the score is '1.5'"},
      {"a logit", "-2.25\n", "line 1: the score is '-2.25'"},
      {"not a number", "nan\n0.5\n", "line 1: the score is 'nan'"},
      {"infinite", "0.5\ninf\n", "line 2: the score is 'inf'"},
      {"row is no number", "row,score\nx,0.5\n", "line 2: the row number is 'x'"},
      {"row is missing", "row,score\n0.5\n", "line 2: the row number is '0.5'"},
      {"row is negative", "row,score\n-1,0.5\n", "line 2: the row number is '-1'"},
      {"row twice", "row,score\n4,0.5\n4,0.5\n", "line 3: row 4 comes after row 4"},
      {"control bytes do not reach the terminal", std::string("0.5\n\x1b[2J\n"), "'?[2J'"},
      {"a long field is cut", "0.5\n" + std::string(5000, '7') + "\n", "7…'"},
      {"binary data", std::string(200'000, 'x'), "line 1: longer than 65536 bytes"},
  };
  for (const BadFile& file : files) {
    SCOPED_TRACE(file.why);
    const absl::StatusOr<Predictions> read = ReadText(file.text);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(read.status()), HasSubstr("'/scores.csv'"));
    EXPECT_THAT(MessageOf(read.status()), HasSubstr(file.message));
  }
}

// Lines that cross the boundaries of the reader's chunks.
TEST(ReadPredictions, ReadsFilesLargerThanItsBuffer) {
  std::string text = "row,score\n";
  std::vector<uint64_t> rows;
  for (uint64_t i = 0; i < 200'000; ++i) {
    rows.push_back(i);
    text += fmt::format("{},{:.6f}\n", i, static_cast<double>(i % 1000) / 1000);
  }
  ASSERT_GT(text.size(), size_t{2} << 20);
  const absl::StatusOr<Predictions> read = ReadText(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rows, rows);
  EXPECT_EQ(read->scores[123'456], 0.456);
}

GapOptions GapOfFile(uint64_t start) {
  GapOptions options;
  options.predictions = "/scores.csv";
  options.start = start;
  options.threads = 2;
  return options;
}

TEST(MeasureGap, TheTrueProbabilitiesHaveNone) {
  std::string text = "row,score\n";
  for (uint64_t r = 0; r < 2000; r += 2) {
    text += fmt::format("{},{}\n", r, LogOfSeedOne().Row(kFirstTestRow + r).probability);
  }
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  ASSERT_TRUE(WriteFileAtomically(*fs, "/scores.csv", text).ok());
  const absl::StatusOr<GapResult> right = MeasureGap(*fs, GapOfFile(kFirstTestRow));
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->rows, 1000u);
  EXPECT_EQ(right->gap.auc, right->gap.best_auc);
  EXPECT_EQ(right->gap.logloss_gap, 0);

  // The same scores for other rows are worth nothing.
  const absl::StatusOr<GapResult> wrong = MeasureGap(*fs, GapOfFile(0));
  ASSERT_TRUE(wrong.ok()) << wrong.status();
  EXPECT_LT(wrong->gap.auc.value(), 0.6);
  EXPECT_GT(wrong->gap.logloss_gap, 0.1);
}

TEST(MeasureGap, RefusesRowsThatDoNotExist) {
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  ASSERT_TRUE(WriteFileAtomically(*fs, "/scores.csv", "row,score\n10,0.5\n").ok());
  EXPECT_TRUE(MeasureGap(*fs, GapOfFile(kFirstReservedRow - 11)).ok());
  EXPECT_THAT(MessageOf(MeasureGap(*fs, GapOfFile(kFirstReservedRow - 10)).status()), HasSubstr("row 10"));
  EXPECT_THAT(MessageOf(MeasureGap(*fs, GapOfFile(kFirstReservedRow)).status()), HasSubstr("--start"));
  EXPECT_THAT(MessageOf(MeasureGap(*fs, GapOptions{}).status()), HasSubstr("--predictions"));
  GapOptions elsewhere = GapOfFile(0);
  elsewhere.predictions = "/none.csv";
  EXPECT_EQ(MeasureGap(*fs, elsewhere).status().code(), absl::StatusCode::kNotFound);
}

TEST(RunGenAndGap, ReportAndExitCodes) {
  const std::string folder = ::testing::TempDir() + "capstan_gen_command_test";
  ASSERT_TRUE(PosixFileSystem().MakeFolders(folder).ok());
  GenOptions gen = SmallFile(folder + "/rows.tsv");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunGen(gen), ToInt(ExitCode::kDone));
  const std::string report = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(report, HasSubstr("rows 1000 to 5999 of seed 1"));
  EXPECT_THAT(report, HasSubstr("best possible AUC"));
  EXPECT_THAT(report, HasSubstr("--start=1000000000"));
  EXPECT_THAT(report, Not(HasSubstr("evenly spaced")));

  ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), folder + "/scores.csv", "0.25\n0.5\n").ok());
  GapOptions gap;
  gap.predictions = folder + "/scores.csv";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunGap(gap), ToInt(ExitCode::kDone));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("2 predictions"));

  ASSERT_TRUE(WriteFileAtomically(PosixFileSystem(), folder + "/scores.csv", "0.25\n5\n").ok());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunGap(gap), ToInt(ExitCode::kData));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("scores.csv': line 2"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunGap(GapOptions{}), ToInt(ExitCode::kUsage));
  gen.rows = 0;
  EXPECT_EQ(RunGen(gen), ToInt(ExitCode::kUsage));
  gen = SmallFile(folder + "/missing/rows.tsv");
  EXPECT_EQ(RunGen(gen), ToInt(ExitCode::kData));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("capstan gen: --rows"));

  for (const char* name : {"/rows.tsv", "/scores.csv", ""}) {
    EXPECT_TRUE(PosixFileSystem().Remove(folder + name).ok()) << name;
  }
}

}  // namespace
}  // namespace capstan
