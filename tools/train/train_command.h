// `capstan train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace capstan {

// The command line, as given: absent means that the job file (or its default) decides.
struct TrainOptions {
  std::string job;                     // job file; "" only with data and label
  std::vector<std::string> data;       // replaces data.train
  std::vector<std::string> eval_data;  // replaces data.eval
  std::string label;                   // replaces data.label.column; without a job file the schema is guessed
  std::optional<uint32_t> epochs;
  std::optional<uint32_t> servers;  // given: real processes; absent: everything in this process
  std::optional<uint32_t> workers;
  std::optional<uint32_t> shards;
  std::optional<uint64_t> seed;
  std::string consistency;        // "" is as the job file says
  std::vector<std::string> sets;  // --set key=value, in order, after all of the above
  std::string output;             // "" is runs/<job>-<time>
  std::optional<uint64_t> checkpoint_steps, checkpoint_examples, checkpoint_seconds;
  std::string resume;             // "newest": of the output folder; or a run, its checkpoints, or one of them
  std::string warm_start;         // the same; "" for none
  std::string tables;             // of warm_start, a regular expression; "" is all
  std::string freeze;             // tables that do not change, a regular expression; "" is none
};

// Trains, evaluates if there are files for that, writes the output folder. Returns the exit code.
int RunTrain(const TrainOptions& options);

}  // namespace capstan
