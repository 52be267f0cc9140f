// `capstan`: train, evaluate, predict, and make data.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/version.h"
#include "kernels/gpu/gpu_info.h"
#include "tools/eval/eval_commands.h"
#include "tools/flags.h"
#include "tools/gen/gap_command.h"
#include "tools/gen/gen_command.h"
#include "tools/split/split_command.h"
#include "tools/train/train_command.h"

// train
DEFINE_string(data, "",
              "Files to read, separated by commas (split: one); plain or .gz. train: instead of the job's data.train.");
DEFINE_string(eval_data, "", "Files to evaluate on after training, separated by commas.");
DEFINE_string(label, "", "Column that holds what is to be predicted.");
DEFINE_uint32(epochs, 1, "Passes over the training data. Range: 1 to 100000. Default: as the job file says.");
DEFINE_uint32(servers, 1,
              "Server processes. Range: 1 to 1024. Without this flag everything runs in one process.");
DEFINE_uint32(workers, 1, "Worker processes; without --servers, worker threads. At most the job's ranks.");
DEFINE_uint32(shards, 1,
              "Shards per server, one thread each. Range: 1 to 256. Default: as the job file says.");
DEFINE_uint64(
    seed, 1,
    "Seed of initial values and shuffling (train), of the log (gen, gap), of the cut (split). Default: 1, or as "
    "the job file says.");
DEFINE_string(consistency, "",
              "sync, ssp:K (at most K steps apart) or async. Default: as the job file says.");
DEFINE_string(output, "", "Output folder; one in use is refused. Default: runs/<job>-<time>.");
DEFINE_uint64(checkpoint_steps, 0, "A checkpoint every so many steps; 0: not by steps. Default: as the job file says.");
DEFINE_uint64(checkpoint_examples, 0, "A checkpoint every so many examples; 0: not by examples. Default: as the job file says.");
DEFINE_uint64(checkpoint_seconds, 0, "A checkpoint every so many seconds; 0: not by time. Default: as the job file says.");
DEFINE_string(resume, "",
              "Goes on from a checkpoint: of --output (without a value; from the beginning if it has none yet), or of the run, "
              "checkpoints folder or checkpoint given here, in --output.");
DEFINE_string(warm_start, "", "Run or checkpoint whose weights a new job begins with.");
DEFINE_string(tables, "", "Tables that --warm_start takes: a regular expression over whole names. Default: all.");
DEFINE_string(freeze, "", "Tables that do not change: a regular expression over whole names.");
// eval, predict
DEFINE_string(model, "", "A run, its checkpoints folder, or one checkpoint; the newest good one is used.");
DEFINE_string(
    out, "",
    "File to write. eval: the figures as JSON, besides stdout; predict: the scores ('-' or nothing: "
    "stdout); gen: the rows.");
DEFINE_bool(follow, false, "eval: measures every new checkpoint of a run until the run has ended.");
DEFINE_uint32(follow_seconds, 3600,
              "Longest wait of --follow for a new checkpoint; then exit code 204. Unit: s. Range: 1 to 86400.");
DEFINE_uint32(threads, 0, "Threads. 0: one per processor. No result depends on it.");
DEFINE_uint64(max_bad_rows, 0, "More bad rows than this end the command. Default: as the model was trained.");
// split
DEFINE_double(fraction, 0.2, "Part of the rows that goes to the test file, about. Range: above 0, below 1.");
DEFINE_string(out_train, "", "File for the rows to train on.");
DEFINE_string(out_test, "", "File for the rows to test on.");
// gen, gap
DEFINE_uint64(rows, 0, "Rows to generate.");
DEFINE_uint64(start, 0, "Number of the first row: training rows begin at 0, test rows at 1000000000.");
DEFINE_string(predictions, "", "Scores to judge, as capstan predict writes them; --predictions= may be left out.");

namespace capstan {
namespace {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename T>
std::optional<T> IfGiven(const char* flag, T value) {
  if (!FlagGiven(flag)) return std::nullopt;
  return value;
}

int Train(const CommandLine& line) {
  TrainOptions options;
  if (!line.positional.empty()) options.job = line.positional[0];
  options.data = SplitAtCommas(FLAGS_data);
  options.eval_data = SplitAtCommas(FLAGS_eval_data);
  options.label = FLAGS_label;
  options.epochs = IfGiven<uint32_t>("epochs", FLAGS_epochs);
  options.servers = IfGiven<uint32_t>("servers", FLAGS_servers);
  options.workers = IfGiven<uint32_t>("workers", FLAGS_workers);
  options.shards = IfGiven<uint32_t>("shards", FLAGS_shards);
  options.seed = IfGiven<uint64_t>("seed", FLAGS_seed);
  options.consistency = FLAGS_consistency;
  options.sets = line.sets;
  options.output = FLAGS_output;
  options.checkpoint_steps = IfGiven<uint64_t>("checkpoint_steps", FLAGS_checkpoint_steps);
  options.checkpoint_examples = IfGiven<uint64_t>("checkpoint_examples", FLAGS_checkpoint_examples);
  options.checkpoint_seconds = IfGiven<uint64_t>("checkpoint_seconds", FLAGS_checkpoint_seconds);
  options.resume = FLAGS_resume;
  options.warm_start = FLAGS_warm_start;
  options.tables = FLAGS_tables;
  options.freeze = FLAGS_freeze;
  return RunTrain(options);
}

EvalCommandOptions EvalOptionsFromFlags() {
  EvalCommandOptions options;
  options.model = FLAGS_model;
  options.data = SplitAtCommas(FLAGS_data);
  options.out = FLAGS_out;
  options.threads = FLAGS_threads;
  options.max_bad_rows = IfGiven<uint64_t>("max_bad_rows", FLAGS_max_bad_rows);
  options.follow = FLAGS_follow;
  options.follow_seconds = std::clamp<uint32_t>(FLAGS_follow_seconds, 1, 86400);
  return options;
}

int Gen(const CommandLine&) {
  GenOptions options;
  options.rows = FLAGS_rows;
  options.seed = FLAGS_seed;
  options.start = FLAGS_start;
  options.out = FLAGS_out;
  options.threads = FLAGS_threads;
  return RunGen(options);
}

int Gap(const CommandLine& line) {
  GapOptions options;
  options.predictions = FLAGS_predictions;
  if (!line.positional.empty()) options.predictions = line.positional[0];
  options.seed = FLAGS_seed;
  options.start = FLAGS_start;
  options.threads = FLAGS_threads;
  return RunGap(options);
}

int Split(const CommandLine&) {
  SplitOptions options;
  options.data = FLAGS_data;
  options.label = FLAGS_label;
  options.fraction = FLAGS_fraction;
  options.seed = FLAGS_seed;
  options.out_train = FLAGS_out_train;
  options.out_test = FLAGS_out_test;
  return RunSplit(options);
}

std::vector<Command> Commands() {
  std::vector<Command> commands(6);
  commands[0] = {.name = "train",
                 .summary = "train a model and save it",
                 .usage =
                     "  capstan train examples/a9a_lr.textproto\n"
                     "  capstan train JOB --servers=2 --workers=2 --set optimizer.learning_rate=0.01\n"
                     "  capstan train --data=my.csv --label=bought      (the schema is guessed)\n"
                     "  capstan train --output=runs/adult --resume      (goes on where its newest checkpoint is)\n"
                     "SIGUSR1 takes a checkpoint; SIGTERM takes one and ends the run (exit status 203).",
                 .flags = {"data", "eval_data", "label", "epochs", "servers", "workers", "shards", "seed",
                           "consistency", "output", "checkpoint_steps", "checkpoint_examples", "checkpoint_seconds",
                           "resume", "warm_start", "tables", "freeze"},
                 .bare_flags = {"resume"},
                 .takes_sets = true,
                 .max_positional = 1,
                 .run = Train};
  commands[1] = {.name = "eval",
                 .summary = "measure a saved model on a file with labels",
                 .usage =
                     "  capstan eval --model=runs/adult-20300101-120000 --data=adult.test\n"
                     "  capstan eval --model=runs/adult --data=adult.test --follow   (while it trains)\n"
                     "Prints one JSON object on stdout, with --follow one for each checkpoint; that ends with\n"
                     "200 when the run was cut off, and with 204 when nothing new came for --follow_seconds.",
                 .flags = {"model", "data", "out", "follow", "follow_seconds", "threads", "max_bad_rows"},
                 .run = [](const CommandLine&) { return RunEval(EvalOptionsFromFlags()); }};
  commands[2] = {.name = "predict",
                 .summary = "score the rows of a file with a saved model",
                 .usage =
                     "  capstan predict --model=runs/adult-20300101-120000 --data=new.csv --out=scores.csv\n"
                     "Writes row,score in the order of the input; the file needs no label column.",
                 .flags = {"model", "data", "out", "threads", "max_bad_rows"},
                 .run = [](const CommandLine&) { return RunPredict(EvalOptionsFromFlags()); }};
  commands[3] = {.name = "gen",
                 .summary = "write a click log whose best possible AUC is known",
                 .usage =
                     "  capstan gen --rows=1000000 --out=train.tsv\n"
                     "  capstan gen --rows=100000 --start=1000000000 --out=test.tsv",
                 .flags = {"rows", "seed", "start", "out", "threads"},
                 .run = Gen};
  commands[4] = {.name = "gap",
                 .summary = "compare scores of a generated log with the best possible ones",
                 .usage = "  capstan gap scores.csv --start=1000000000",
                 .flags = {"predictions", "seed", "start", "threads"},
                 .max_positional = 1,
                 .run = Gap};
  commands[5] = {.name = "split",
                 .summary = "cut a file into rows to train on and rows to test on",
                 .usage =
                     "  capstan split --data=my.csv --label=bought --out_train=train.csv --out_test=test.csv\n"
                     "Each row's side depends on its number and the seed alone.",
                 .flags = {"data", "label", "fraction", "seed", "out_train", "out_test"},
                 .run = Split};
  return commands;
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  signal(SIGUSR1, SIG_IGN);  // it asks for a checkpoint: before anybody listens it must not kill
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = 1;  // warnings and errors; the progress line says the rest
  google::InitGoogleLogging(argv[0]);
  const std::string version = std::string(capstan::kCapstanVersion) + "\n" + capstan::DescribeGpu();
  return capstan::RunCommands("capstan", version, capstan::Commands(), argc, argv);
}
