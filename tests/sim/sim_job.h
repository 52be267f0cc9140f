// The job that a simulated cluster trains: three tables whose right answer is known.
//   census  +1 per row and epoch: every sample once
//   sums    integers per key: no gradient lost, doubled or put to a wrong key
//   bits    any optimizer with a schedule, on gradients that depend on the pulled weights: any other order of a sum,
//           divisor or step shows
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/batch_plan.h"
#include "sim_network.h"
#include "worker/client_core.h"
#include "worker/step_plan.h"

namespace capstan {
class EffectiveJob;
}

namespace capstan::sim {

struct JobShape {
  std::string consistency = "sync";
  uint32_t ranks = 3;
  uint32_t epochs = 2;
  uint32_t batch = 4;            // rows of a micro-batch
  uint32_t accumulation = 1;     // micro-batches of a rank per step
  std::vector<uint32_t> split_rows = {10, 7, 12, 3};
  uint32_t lease_batches = 2;
  uint32_t servers = 1, shards = 1, workers = 1;
  uint32_t part_bytes = 200;     // small, so that requests have many parts
  uint64_t inflight_bytes = 1 << 20;
  Duration compute = std::chrono::microseconds(300);
  int slow_rank = -1;            // computes 30 times as long
  uint32_t checkpoint_steps = 0;
  bool checkpoint_epochs = false;
  uint32_t checkpoint_full_every = 3;
  std::string optimizer = "adam";  // of the table `bits`
};

EffectiveJob MakeJob(const JobShape& shape);

inline constexpr uint64_t kSumKeys = 23;
int64_t SumOfRow(uint64_t row);                 // what a row adds to its key of `sums`
Key SumKeyOfRow(uint64_t row);
std::map<Key, int64_t> ExpectedSums(const JobShape& shape);

// Watches all ranks of a cluster.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnCompute(Rank rank, Step step) = 0;
};

// Computes after a simulated while.
class SimDriver final : public RankDriver {
 public:
  SimDriver(SimNetwork& network, const JobShape& shape, Observer& observer)
      : network_(network), shape_(shape), observer_(observer) {}
  void set_core(ClientCore* core) { core_ = core; }

  absl::Status OnStart(const EffectiveJob& job, uint32_t shards) override;
  void Prepare(const StepTicket& ticket) override;
  void Compute(const StepTicket& ticket, const PushInfo& proto, ShardReplies replies) override;
  void Finished(Rank rank) override { finished_.push_back(rank); }
  const std::vector<Rank>& finished() const { return finished_; }

 private:
  std::vector<uint64_t> RowsOf(const BatchId& batch) const;
  StepPlan& PlanOf(Rank rank);
  Duration Effort(Rank rank);

  SimNetwork& network_;
  const JobShape shape_;
  Observer& observer_;
  ClientCore* core_ = nullptr;
  ShardMap map_;
  BatchPlan plan_;
  std::vector<uint64_t> first_row_;
  std::map<Rank, std::unique_ptr<StepPlan>> plans_;
  std::vector<Rank> finished_;
};

}  // namespace capstan::sim
