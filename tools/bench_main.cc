// capstan-bench: how close Capstan comes to what the machine allows.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/exit_code.h"
#include "tools/bench/data_bench.h"
#include "tools/bench/store_bench.h"

DEFINE_bool(json, false, "Print one JSON object a line instead of columns.");
DEFINE_uint64(rows, 4'000'000,
              "Rows of the table. Range: 1000 and more; memory: about 500 bytes each at width 16.");
DEFINE_uint64(keys, 65'000, "Keys of a request. Range: 1 to --rows.");
DEFINE_uint32(width, 0, "Floats per row. 0: 16, then 64.");
DEFINE_double(seconds, 2, "Time for each comparison. Unit: s. More time, less noise.");

namespace capstan {
namespace {

void Report(const Figure& figure) { PrintFigure(figure, FLAGS_json, stdout); }

absl::Status BenchData() {
  DataBenchOptions options;
  if (!gflags::GetCommandLineFlagInfoOrDie("rows").is_default) options.rows = FLAGS_rows;
  options.seconds = FLAGS_seconds;
  return RunDataBench(options, Report);
}

absl::Status BenchStore() {
  StoreBenchOptions options;
  options.rows = FLAGS_rows;
  options.keys_per_request = FLAGS_keys;
  options.seconds = FLAGS_seconds;
  if (FLAGS_width != 0) options.widths = {FLAGS_width};
  return RunStoreBench(options, Report);
}

struct BenchRow {
  std::string_view name;
  absl::Status (*run)();
};
constexpr BenchRow kBenches[] = {
    {"data", BenchData},
    {"store", BenchStore},
};

int BenchMain(int argc, char** argv) {
  if (argc == 2) {
    for (const BenchRow& row : kBenches) {
      if (row.name != argv[1]) continue;
      const absl::Status status = row.run();
      if (status.ok()) return 0;
      fmt::print(stderr, "capstan-bench {}: {}\n", row.name, std::string(status.message()));
      return status.code() == absl::StatusCode::kInvalidArgument ? ToInt(ExitCode::kUsage)
                                                                 : ToInt(ExitCode::kModelError);
    }
  }
  fmt::print(stderr, "usage: capstan-bench BENCHMARK [--json …]; known benchmarks:");
  for (const BenchRow& row : kBenches) fmt::print(stderr, " {}", row.name);
  fmt::print(stderr, "\n");
  return ToInt(ExitCode::kUsage);
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "how close Capstan comes to what the machine allows.\n"
      "  capstan-bench data               reading rows, one core, no disk\n"
      "  capstan-bench store              row store and tables, one core, no network\n"
      "  capstan-bench store --json       one JSON object a line\n"
      "Each line: name, value, unit, share of the limit measured in the same run.");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return capstan::BenchMain(argc, argv);
}
