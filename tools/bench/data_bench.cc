#include "tools/bench/data_bench.h"

#include <cstring>
#include <memory>
#include <string>

#include "common/file_system.h"
#include "data/dataset.h"
#include "data/format.h"
#include "data/generator.h"
#include "proto/control.pb.h"

namespace capstan {
namespace {

constexpr char kFile[] = "rows.tsv";

std::string MakeRows(uint64_t rows, const std::function<void(const Figure&)>& report) {
  const ClickLog log(1);
  std::string text;
  const double seconds = CpuSecondsOf([&] {
    for (uint64_t row = 0; row < rows; ++row) log.AppendTsv(log.Row(row), &text);
  });
  Figure figure;
  figure.name = "data.generate";
  figure.value = static_cast<double>(rows) / seconds / 1e6;
  figure.unit = "Mrows/s";
  report(figure);
  return text;
}

uint64_t LineEnds(const std::string& text) {
  uint64_t count = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while ((at = static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)))) != nullptr) {
    ++count;
    ++at;
  }
  return count;
}

}  // namespace

absl::Status RunDataBench(const DataBenchOptions& options, const std::function<void(const Figure&)>& report) {
  if (options.rows < 1000) return InvalidArgument("--rows: the data benchmark wants 1000 and more");
  const std::string text = MakeRows(options.rows, report);
  const std::unique_ptr<FileSystem> fs = NewMemoryFileSystem();
  CAPSTAN_RETURN_IF_ERROR(WriteFileAtomically(*fs, kFile, text));
  DataConfig config;
  config.set_format(DataConfig::CRITEO);
  config = WithFormatDefaults(config);

  absl::Status status;  // of whatever fails first in the loops
  const auto note = [&status](const absl::Status& happened) {
    if (status.ok()) status = happened;
  };
  const auto compare = [&](const char* name, const std::function<void(size_t i)>& ours) {
    const SideBySide times = CompareInTurn(
        options.seconds, ours, [&](size_t) { KeepAlive(reinterpret_cast<const void*>(LineEnds(text))); });
    Figure figure;
    figure.name = name;
    figure.unit = "MB/s";
    figure.value = static_cast<double>(text.size()) / times.ours_seconds / 1e6;
    figure.limit_name = "looking for line ends";
    figure.limit = static_cast<double>(text.size()) / times.limit_seconds / 1e6;
    figure.ratio = times.ratio;
    if (status.ok()) report(figure);
  };
  compare("data.scan", [&](size_t) {
    DataPlan plan;
    Recipe recipe;
    note(ScanData(*fs, config, {kFile}, SplitRule(), &plan, &recipe));
  });
  CAPSTAN_RETURN_IF_ERROR(status);

  DataPlan plan;
  Recipe recipe;
  CAPSTAN_RETURN_IF_ERROR(ScanData(*fs, config, {kFile}, SplitRule(), &plan, &recipe));
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(*fs, config, plan, recipe));
  compare("data.parse", [&](size_t) {
    for (uint32_t split = 0; split < static_cast<uint32_t>(plan.split_size()); ++split) {
      const absl::StatusOr<ParsedSplit> rows = data->ReadSplit(split);
      note(rows.status());
      if (rows.ok()) KeepAlive(rows->rows.numeric.data());
    }
  });
  return status;
}

}  // namespace capstan
