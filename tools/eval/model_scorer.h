// A saved model made ready to score: its dense tensors laid out, absent rows at their initial values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/status.h"
#include "data/batch.h"

namespace capstan {

class SavedModel;

// Rows of every batch that a model scores here. Fixed, and the last batch of a split is filled up: a row's
// score then has the same bits whatever file or thread it is scored in (on AVX2 they depend on the size of
// the batch).
inline constexpr uint32_t kScoreBatchRows = 512;

// The dense tensors of a model, shared by its scorers. Immutable; must outlive them.
class ScorerTables {
 public:
  // `model` must outlive the result. kDataLoss: a table is not what the model wants.
  static absl::StatusOr<std::unique_ptr<ScorerTables>> Make(const SavedModel& model);
  ~ScorerTables();

 private:
  friend class ModelScorer;
  ScorerTables();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One per thread, made in that thread: it sets the thread's float mode and number of OpenMP threads.
class ModelScorer {
 public:
  static absl::StatusOr<std::unique_ptr<ModelScorer>> Make(const ScorerTables& tables);
  ~ModelScorer();

  // scores[i]: of row i of `rows`; NaN for the rows listed in `bad` (sorted).
  void Score(const Batch& rows, std::span<const uint32_t> bad, std::vector<float>* scores);

 private:
  ModelScorer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
