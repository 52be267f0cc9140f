// Scoring whole files with a saved model, on several threads, results in the order of the rows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "common/status.h"
#include "data/batch.h"

namespace capstan {

class SavedModel;

struct ScoreOptions {
  unsigned threads = 0;                  // 0: one per processor
  bool labels = true;                    // false: the files need no label or weight column; labels read 0
  std::optional<uint64_t> max_bad_rows;  // default: as the model was trained
  std::function<bool()> cancelled;       // asked between splits; true ends the scoring with kCancelled. May be empty
};

// The scored rows of one split.
struct ScoredRows {
  const Batch* rows = nullptr;                 // labels and weights; bad rows weigh 0
  const std::vector<float>* scores = nullptr;  // one per row; NaN: a bad row
};

// Pins the instruction set that the model was trained with, or the best one there is where this machine lacks
// it (a warning in the log says so: scores may differ in the last bits). Once per process, before the first
// scoring.
absl::Status PinIsaOf(const SavedModel& model);

// Hands over the splits of `files` in order, on the calling thread. `sink` may fail, which ends the scoring.
// kInvalidArgument (with file, line and column), kNotFound or kUnavailable: the data. kDataLoss: the model.
// Others: what `sink` returned. Memory: about two splits per thread. The scores depend on model and row
// alone, not on the number of threads.
absl::Status ScoreFiles(FileSystem& fs, const SavedModel& model, const std::vector<std::string>& files,
                        const ScoreOptions& options,
                        const std::function<absl::Status(const ScoredRows&)>& sink);

}  // namespace capstan
