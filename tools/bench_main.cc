// capstan-bench: how close Capstan comes to what the machine allows.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/exit_code.h"
#include "tools/bench/pushpull_bench.h"
#include "tools/bench/checkpoint_bench.h"
#include "tools/bench/data_bench.h"
#include "tools/bench/store_bench.h"
#include "tools/bench/train_bench.h"
#include "tools/train/programs.h"
#include "tools/print.h"

DEFINE_bool(json, false, "Print one JSON object a line instead of columns.");
DEFINE_uint64(rows, 4'000'000,
              "Rows of the table. Range: 1000 and more; memory: about 500 bytes each at width 16.");
DEFINE_uint64(keys, 65'000, "Keys of a request. Range: 1 to --rows.");
DEFINE_uint32(width, 0, "Floats per row. 0: 16, then 64.");
DEFINE_double(seconds, 2, "Time for each comparison. Unit: s. More time, less noise.");

DEFINE_string(transport, "tcp", "pushpull: tcp or ipc, on this machine.");
DEFINE_string(endpoint, "", "pushpull-server: where to listen. Not for people.");

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

absl::Status BenchPushPull() {
  PushPullBenchOptions options;
  options.rows = FLAGS_rows;
  options.keys_per_request = FLAGS_keys;
  options.seconds = FLAGS_seconds;
  options.transport = FLAGS_transport;
  if (FLAGS_width != 0) options.widths = {FLAGS_width};
  return RunPushPullBench(options, Report);
}

absl::Status BenchTrain() {
  TrainBenchOptions options;
  if (!gflags::GetCommandLineFlagInfoOrDie("rows").is_default) options.rows = FLAGS_rows;
  options.programs = FolderOfThisProgram();
  return RunTrainBench(options, Report);
}

absl::Status BenchCheckpoint() {
  CheckpointBenchOptions options;
  if (!gflags::GetCommandLineFlagInfoOrDie("rows").is_default) options.rows = FLAGS_rows;
  if (FLAGS_width != 0) options.width = FLAGS_width;
  if (!gflags::GetCommandLineFlagInfoOrDie("seconds").is_default) options.seconds = FLAGS_seconds;
  options.writer = FolderOfThisProgram() + "/capstan-checkpoint-writer";
  return RunCheckpointBench(options, Report);
}

absl::Status ServePushPull() { return ServeBenchShard(FLAGS_endpoint); }

struct BenchRow {
  std::string_view name;
  absl::Status (*run)();
};
constexpr BenchRow kBenches[] = {
    {"data", BenchData},
    {"store", BenchStore},
    {"pushpull", BenchPushPull},
    {"train", BenchTrain},
    {"checkpoint", BenchCheckpoint},
};

int BenchMain(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "pushpull-server") {
    const absl::Status served = ServePushPull();
    if (!served.ok()) Print(stderr, "pushpull-server: {}\n", std::string(served.message()));
    return served.ok() ? 0 : ToInt(ExitCode::kModelError);
  }
  if (argc == 2) {
    for (const BenchRow& row : kBenches) {
      if (row.name != argv[1]) continue;
      const absl::Status status = row.run();
      if (status.ok()) return 0;
      Print(stderr, "capstan-bench {}: {}\n", row.name, std::string(status.message()));
      return status.code() == absl::StatusCode::kInvalidArgument ? ToInt(ExitCode::kUsage)
                                                                 : ToInt(ExitCode::kModelError);
    }
  }
  Print(stderr, "usage: capstan-bench BENCHMARK [--json …]; known benchmarks:");
  for (const BenchRow& row : kBenches) Print(stderr, " {}", row.name);
  Print(stderr, "\n");
  return ToInt(ExitCode::kUsage);
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "how close Capstan comes to what the machine allows.\n"
      "  capstan-bench data               reading rows, one core, no disk\n"
      "  capstan-bench store              row store and tables, one core, no network\n"
      "  capstan-bench pushpull           pull and push through a server process\n"
      "  capstan-bench train              Wide & Deep on generated rows, whole runs\n"
      "  capstan-bench checkpoint         a table stored while updates go on, against SstFileWriter\n"
      "  capstan-bench store --json       one JSON object a line\n"
      "Each line: name, value, unit, share of the limit measured in the same run.");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return capstan::BenchMain(argc, argv);
}
