// The computing half of one rank: reads its batches, asks for their rows, turns rows into gradients. Deterministic: a
// push is a function of the batch and the pulled rows. One thread at a time.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "data/dataset.h"
#include "models/model.h"
#include "worker/step_plan.h"

namespace capstan {

class RankTrainer {
 public:
  // `data` is shared by the ranks of the process and outlives them.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Make(const EffectiveJob& job, const Dataset& data,
                                                           const ShardMap& map);
  ~RankTrainer();

  absl::StatusOr<ShardRequests> Prepare(const StepTicket& ticket);
  absl::StatusOr<ShardRequests> Compute(PushInfo info, const ShardReplies& replies);

 private:
  struct LoadedSplit {
    uint32_t split = 0;
    std::shared_ptr<const ParsedSplit> rows;
  };
  struct RowOrder {
    uint32_t epoch = 0;
    uint32_t split = 0;
    std::vector<uint32_t> rows;
  };

  RankTrainer(const EffectiveJob& job, const Dataset& data, const ShardMap& map, std::unique_ptr<Model> model);
  absl::Status LoadSplit(uint32_t split);
  void ReadAhead(const std::optional<BatchId>& upcoming);
  void CutMicroBatches(const BatchId& batch);
  void CollectKeys();
  void MakeRoom();

  const Dataset& data_;
  const std::unique_ptr<Model> model_;
  const BatchPlan batch_plan_;
  const uint32_t micro_rows_;
  StepPlan step_plan_;

  LoadedSplit current_;
  std::future<absl::StatusOr<ParsedSplit>> ahead_;
  uint32_t ahead_split_ = 0;
  RowOrder order_;
  std::vector<Batch> micro_;                            // the micro-batches of the step
  std::vector<std::vector<uint64_t>> keys_;             // [table]: occurrences over all micro-batches
  std::vector<std::vector<size_t>> begin_;              // [micro-batch][table]: where its occurrences begin
  std::vector<uint32_t> widths_;
  std::vector<uint64_t> dense_floats_;                  // [table]: whole blocks; 0: sparse
  std::vector<std::vector<float>> weights_, gradients_;
  std::vector<std::vector<uint8_t>> touched_;
};

}  // namespace capstan
