#include "data/dataset.h"

#include <atomic>

#include <fmt/core.h>

#include "data/data_file.h"
#include "data/schema.h"
#include "proto/control.pb.h"
#include "proto/job.pb.h"

namespace capstan {
namespace {

class FileDataset final : public Dataset {
 public:
  FileDataset(const DataConfig& config, const DataPlan& plan, InputMaker maker)
      : schema_(config), plan_(plan), maker_(std::move(maker)) {}

  absl::Status OpenFiles(FileSystem& fs, const DataConfig& config, const std::vector<std::string>& columns) {
    for (const DataPlan::File& file : plan_.file()) {
      CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<DataFile> opened,
                               DataFile::Open(fs, file.path(), config, schema_, columns));
      const InputFile& input = opened->input();
      if (input.disk_bytes() != file.bytes() || input.fingerprint() != file.fingerprint()) {
        return InvalidArgument(
            fmt::format("'{}' changed after it was scanned ({} bytes then, {} now); leave it alone "
                        "while a job runs, and start the job again",
                        file.path(), file.bytes(), input.disk_bytes()));
      }
      files_.push_back(std::move(opened));
    }
    for (const DataPlan::Split& split : plan_.split()) {
      if (split.file() >= files_.size()) {
        return InvalidArgument(
            fmt::format("the data plan has a split of file {}, and {} files", split.file(), files_.size()));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<ParsedSplit> ReadSplit(uint32_t number) const override {
    if (number >= static_cast<uint32_t>(plan_.split_size())) {
      return InvalidArgument(fmt::format("split {} of {}: there is none", number, plan_.split_size()));
    }
    const DataPlan::Split& split = plan_.split(static_cast<int>(number));
    ParsedSplit parsed;
    parsed.rows = maker_.NewBatch(split.rows());
    Batch& batch = parsed.rows;
    const auto add_row = [&](const RowValues& row, const std::string& problem) {
      const uint64_t id = split.first_row() + batch.rows;
      if (problem.empty()) {
        maker_.Append(row, id, &batch);
      } else {
        parsed.bad.push_back(batch.rows);
        maker_.AppendBad(id, &batch);
      }
    };
    const DataFile::Range range = {{split.offset(), split.first_line()}, split.bytes(), split.rows()};
    CAPSTAN_RETURN_IF_ERROR(files_[split.file()]->ReadRows(range, labels_.load(), add_row));
    maker_.Finish(&batch);
    batch.bad_rows = parsed.bad.size();
    return parsed;
  }

  void SetLabelsRequired(bool required) override { labels_.store(required); }

 private:
  const Schema schema_;
  const DataPlan plan_;
  const InputMaker maker_;
  std::vector<std::unique_ptr<DataFile>> files_;  // they refer to schema_
  std::atomic<bool> labels_ = true;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(FileSystem& fs, const DataConfig& config,
                                                       const DataPlan& plan, const Recipe& recipe) {
  CAPSTAN_RETURN_IF_ERROR(ValidateDataConfig(config));
  CAPSTAN_ASSIGN_OR_RETURN(InputMaker maker, InputMaker::Make(config, recipe));
  auto dataset = std::make_unique<FileDataset>(config, plan, std::move(maker));
  const std::vector<std::string> columns(recipe.column().begin(), recipe.column().end());
  CAPSTAN_RETURN_IF_ERROR(dataset->OpenFiles(fs, config, columns));
  return dataset;
}

}  // namespace capstan
