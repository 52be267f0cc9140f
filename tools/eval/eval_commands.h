// `capstan eval` and `capstan predict`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace capstan {

struct EvalCommandOptions {
  std::string model;                     // folder of a saved model, or of a run (its model/ is taken)
  std::vector<std::string> data;         // files
  std::string out;                       // eval: "" is none, the JSON goes there too; predict: "" is stdout
  unsigned threads = 0;                  // 0: one per processor
  std::optional<uint64_t> max_bad_rows;  // default: as the model was trained
};

// Prints the JSON of EvalJson on stdout and a line for a person on stderr. Returns the exit code.
int RunEval(const EvalCommandOptions& options);
// Writes the scores (tools/eval/predict.h). Returns the exit code.
int RunPredict(const EvalCommandOptions& options);

}  // namespace capstan
