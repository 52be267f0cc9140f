// capstan-inspect: looks into checkpoints.
#include <fcntl.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/exit_code.h"
#include "common/version.h"
#include "tools/flags.h"
#include "tools/inspect/inspect.h"
#include "tools/print.h"

DEFINE_bool(json, false, "Print JSON instead of text for a person.");
DEFINE_string(table, "", "Tables: a regular expression over whole names. Default: all.");
DEFINE_uint32(top, 10, "Rows to list. Range: 0 to 1000000.");
DEFINE_string(by, "norm", "stat: what the top rows are chosen by: norm, count or age.");
DEFINE_string(column, "", "get: a column of the training file, with --value.");
DEFINE_string(value, "", "get: a value of that column as it stands in the file; nothing for a missing one.");
DEFINE_string(format, "", "export: npz, safetensors or csv.");
DEFINE_string(out, "", "The file or folder to write.");
DEFINE_bool(slots, false, "export: the optimizer's slots, update counts and last steps as well.");
DEFINE_uint32(shards, 0, "reshard: how many shards. Range: 1 to the number of partitions.");
DEFINE_string(what, "norm", "plot: norm, count or age.");

namespace capstan {
namespace {

InspectOptions OptionsOf(const CommandLine& line) {
  InspectOptions options;
  options.paths = line.positional;
  options.json = FLAGS_json;
  options.table = FLAGS_table;
  options.top = std::min(FLAGS_top, 1'000'000u);
  options.by = FLAGS_by;
  options.column = FLAGS_column;
  options.value = FLAGS_value;
  options.by_value = !FLAGS_column.empty();
  options.format = FLAGS_format;
  options.out = FLAGS_out;
  options.slots = FLAGS_slots;
  options.shards = FLAGS_shards;
  options.shards_given = FlagGiven("shards");
  options.what = FLAGS_what;
  return options;
}

Command Row(const char* name, const char* summary, const char* usage, std::vector<std::string> flags,
            size_t max_positional, int (*run)(const InspectOptions&)) {
  Command command;
  command.name = name;
  command.summary = summary;
  command.usage = usage;
  command.flags = std::move(flags);
  command.max_positional = max_positional;
  command.run = [name, run](const CommandLine& line) {
    const InspectOptions options = OptionsOf(line);
    return options.paths.empty() ? InspectWithoutPath(name) : run(options);
  };
  return command;
}

constexpr std::string_view kExitStatus =
    "0 done, 1 diff found a difference, 2 command line, 4 a checkpoint cannot be read, or a file not be written";
constexpr size_t kManyKeys = 100'000;

std::vector<Command> InspectCommands() {
  return {
      Row("ls", "list the checkpoints of a run",
          "  capstan-inspect ls runs/adult\n"
          "  capstan-inspect ls runs/adult --json\n"
          "One line each; what cannot be used says why. Exit status: 0, 2 usage, 4 unreadable.",
          {"json"}, 1, InspectLs),
      Row("show", "say what a checkpoint holds",
          "  capstan-inspect show runs/adult\n"
          "  capstan-inspect show runs/adult/checkpoints --json\n"
          "Tables, step, data position, lineage, schema. Exit status: 0, 2 usage, 4 unreadable.",
          {"json"}, 1, InspectShow),
      Row("stat", "histograms of row norms, update counts and ages",
          "  capstan-inspect stat runs/adult --table=wide\n"
          "  capstan-inspect stat runs/adult --top=5 --by=count --json\n"
          "Values that are not finite are counted. Exit status: 0, 2 usage, 4 unreadable.",
          {"table", "top", "by", "json"}, 1, InspectStat),
      Row("get", "print rows by key, or by a value of the training file",
          "  capstan-inspect get runs/adult wide 0 18446744073709551615\n"
          "  capstan-inspect get runs/adult --column=education --value=Bachelors\n"
          "  capstan-inspect get runs/adult wide --column=education --value=Bachelors --json\n"
          "A row that no update reached shows its initial values. Rows of libsvm data: --column=libsvm --value=INDEX.\n"
          "The key of a dense table is the number of a block of its elements, from 0 on.\n"
          "Exit status: 0, 2 usage, 4 unreadable.",
          {"column", "value", "json"}, kManyKeys, InspectGet),
      Row("diff", "compare two checkpoints row by row",
          "  capstan-inspect diff runs/adult/checkpoints runs/adult --top=3\n"
          "  capstan-inspect diff runs/adult runs/adult/checkpoints --table=wide --json\n"
          "Rows count with their slots and counters; tables and features with what they are. The top rows are those\n"
          "whose weights changed most. Exit status: 0 equal, 1 different, 2 usage, 4 unreadable.",
          {"table", "top", "json"}, 2, InspectDiff),
      Row("verify", "read everything and check every hash, count and digest",
          "  capstan-inspect verify runs/adult\n"
          "A missing mark of the run (capstan-made.pb) is a warning: the run then never removes that checkpoint.\n"
          "Exit status: 0 good, 2 usage, 4 damaged, unreadable, or of a newer release.",
          {"json"}, 1, InspectVerify),
      Row("export", "write tables for NumPy, PyTorch or a spreadsheet",
          "  capstan-inspect export runs/adult --format=npz --out=adult.npz\n"
          "  capstan-inspect export runs/adult --format=safetensors --out=adult.safetensors --slots\n"
          "  capstan-inspect export runs/adult --format=csv --table=wide --out=wide.csv\n"
          "  capstan-inspect export runs/adult --format=csv --table=wide --out=-\n"
          "Sparse tables: NAME.keys and NAME.weights; dense ones: NAME. Several tables as CSV: one file each.\n"
          "--out=- is stdout, for one table as CSV.\n"
          "Memory does not grow with the tables. Exit status: 0, 2 usage, 4 unreadable or unwritable.",
          {"format", "out", "table", "slots"}, 1, InspectExport),
      Row("merge", "make a chain of increments one full checkpoint",
          "  capstan-inspect merge runs/adult --out=merged\n"
          "The rows keep their bits; the source stays as it is. Exit status: 0, 2 usage, 4 unreadable or unwritable.",
          {"out"}, 1, InspectMerge),
      Row("reshard", "spread a checkpoint over another number of shards",
          "  capstan-inspect reshard runs/adult --shards=3 --out=three\n"
          "A resume does that by itself. Exit status: 0, 2 usage, 4 unreadable or unwritable.",
          {"shards", "out"}, 1, InspectReshard),
      Row("plot", "draw histograms as an SVG",
          "  capstan-inspect plot runs/adult --what=norm --out=norms.svg\n"
          "  capstan-inspect plot runs/adult --what=age --table=wide --out=ages.svg\n"
          "Exit status: 0, 2 usage, 4 unreadable or unwritable.",
          {"what", "table", "out"}, 1, InspectPlot),
  };
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = 1;
  google::InitGoogleLogging(argv[0]);
  // Asked first: RunCommands puts /dev/null where a standard stream is closed.
  const bool closed = fcntl(STDOUT_FILENO, F_GETFD) < 0;
  const int code = closed ? 0 : capstan::RunCommands("capstan-inspect", capstan::kCapstanVersion,
                                                     capstan::InspectCommands(), argc, argv, capstan::kExitStatus);
  if (code != 0 || (!closed && std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return code;
  capstan::Print(stderr, "capstan-inspect: stdout {}\n", closed ? "is closed" : "cannot be written");
  return capstan::ToInt(capstan::ExitCode::kCheckpoint);
}
