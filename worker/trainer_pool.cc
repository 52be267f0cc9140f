#include "worker/trainer_pool.h"

#include <utility>

#include "kernels/compute_thread.h"
#include "kernels/cpu_isa.h"
#include "proto/control.pb.h"
#include "worker/client_core.h"

namespace capstan {

class TrainerPool::RankThread {
 public:
  RankThread(TrainerPool& pool, std::unique_ptr<RankTrainer> trainer, int threads)
      : pool_(pool), trainer_(std::move(trainer)), thread_([this, threads] { Run(threads); }) {}
  ~RankThread() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Submit(Task task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Run(int threads) {
    SetFloatMode();
    SetThreadsOfThisThread(threads);
    for (;;) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
        if (stop_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      absl::StatusOr<ShardRequests> requests =
          task.is_pull ? trainer_->Prepare(task.ticket) : trainer_->Compute(task.info, task.replies);
      pool_.Post({task.ticket.rank, task.ticket.step, task.is_pull, std::move(requests)});
    }
  }

  TrainerPool& pool_;
  const std::unique_ptr<RankTrainer> trainer_;
  std::mutex mutex_;  // guards the two below
  bool stop_ = false;
  std::deque<Task> tasks_;
  std::condition_variable changed_;
  std::thread thread_;
};

TrainerPool::TrainerPool(FileSystem& fs, std::function<void()> wake) : fs_(fs), wake_(std::move(wake)) {}
TrainerPool::~TrainerPool() { Stop(); }
void TrainerPool::Stop() { threads_.clear(); }

absl::Status TrainerPool::OnStart(const EffectiveJob& job, uint32_t shards) {
  job_ = std::make_unique<EffectiveJob>(job);
  const absl::Status pinned = PinCpuIsa(job.cpu_isa());
  if (!pinned.ok()) return Internal(std::string(pinned.message()));
  CAPSTAN_ASSIGN_OR_RETURN(map_, ShardMap::Even(job.config().cluster().partitions(), shards));
  CAPSTAN_ASSIGN_OR_RETURN(data_, Dataset::Open(fs_, job.config().data(), job.plan(), job.recipe()));
  return absl::OkStatus();
}

void TrainerPool::Submit(Task task) {
  std::unique_ptr<RankThread>& thread = threads_[task.ticket.rank];
  if (thread == nullptr) {
    absl::StatusOr<std::unique_ptr<RankTrainer>> trainer = RankTrainer::Make(*job_, *data_, map_);
    if (!trainer.ok()) return Post({task.ticket.rank, task.ticket.step, task.is_pull, trainer.status()});
    thread = std::make_unique<RankThread>(*this, std::move(*trainer),
                                          static_cast<int>(job_->config().threads_per_rank()));
  }
  thread->Submit(std::move(task));
}

void TrainerPool::Prepare(const StepTicket& ticket) { Submit(Task{ticket, true, {}, {}}); }

void TrainerPool::Compute(const StepTicket& ticket, const PushInfo& proto, ShardReplies replies) {
  Submit(Task{ticket, false, proto, std::move(replies)});
}

void TrainerPool::Finished(Rank rank) { threads_.erase(rank); }

void TrainerPool::Post(Result result) {
  {
    std::lock_guard lock(mutex_);
    results_.push_back(std::move(result));
  }
  wake_();
}

void TrainerPool::Deliver(ClientCore& core) {
  std::vector<Result> results;
  {
    std::lock_guard lock(mutex_);
    results.swap(results_);
  }
  for (Result& result : results) {
    if (result.is_pull) {
      core.Prepared(result.rank, result.step, std::move(result.requests));
    } else {
      core.Computed(result.rank, result.step, std::move(result.requests));
    }
  }
}

}  // namespace capstan
