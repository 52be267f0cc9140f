// The ranks of a process at work: one thread each, so that none waits for another. Stands between the client's core
// (one thread, never blocked) and the trainers.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/file_system.h"
#include "worker/rank_trainer.h"

namespace capstan {

class ClientCore;

class TrainerPool final : public RankDriver {
 public:
  // wake: makes the client's loop call Deliver; thread-safe.
  TrainerPool(FileSystem& fs, std::function<void()> wake);
  ~TrainerPool() override;
  // Waits for what is being computed and drops it; wake is not called any more.
  void Stop();

  // RankDriver: on the loop's thread.
  absl::Status OnStart(const EffectiveJob& job, uint32_t shards) override;
  void Prepare(const StepTicket& ticket) override;
  void Compute(const StepTicket& ticket, const PushInfo& proto, ShardReplies replies) override;
  void Finished(Rank rank) override;

  // Hands finished work to the core. On the loop's thread.
  void Deliver(ClientCore& core);

 private:
  class RankThread;
  struct Result {
    Rank rank;
    Step step;
    bool is_pull;
    absl::StatusOr<ShardRequests> requests;
  };
  struct Task {
    StepTicket ticket;
    bool is_pull = true;
    PushInfo info;
    ShardReplies replies;
  };

  void Submit(Task task);
  void Post(Result result);

  FileSystem& fs_;
  const std::function<void()> wake_;
  std::unique_ptr<EffectiveJob> job_;
  ShardMap map_;
  std::unique_ptr<Dataset> data_;
  std::mutex mutex_;  // guards results_
  std::vector<Result> results_;
  std::map<Rank, std::unique_ptr<RankThread>> threads_;
};

}  // namespace capstan
