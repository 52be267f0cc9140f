// `capstan eval` and `capstan predict`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace capstan {

struct EvalCommandOptions {
  std::string model;                     // a run, its checkpoints, or one of them; the newest good one is taken
  std::vector<std::string> data;         // files
  bool follow = false;           // eval: the newest checkpoint whenever there is one, until the run has ended
  uint32_t follow_seconds = 3600;  // without a new checkpoint for so long it ends, with exit code 204
  std::string out;                       // eval: "" is none, the JSON goes there too; predict: "" is stdout
  unsigned threads = 0;                  // 0: one per processor
  std::optional<uint64_t> max_bad_rows;  // default: as the model was trained
};

// Prints the JSON of EvalJson on stdout and a line for a person on stderr. Returns the exit code.
int RunEval(const EvalCommandOptions& options);
// Writes the scores (tools/eval/predict.h). Returns the exit code.
int RunPredict(const EvalCommandOptions& options);

}  // namespace capstan
