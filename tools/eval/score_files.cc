#include "tools/eval/score_files.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include <glog/logging.h>

#include "data/dataset.h"
#include "kernels/cpu_isa.h"
#include "proto/checkpoint.pb.h"
#include "storage/saved_model.h"
#include "tools/eval/model_scorer.h"

namespace capstan {
namespace {

struct SplitScores {
  ParsedSplit split;
  std::vector<float> scores;
};

// Splits on their way from the threads that score them to the one that takes them in order.
class SplitQueue {
 public:
  SplitQueue(uint32_t splits, uint32_t ahead) : splits_(splits), ahead_(ahead) {}

  // Scoring threads: the next split to score, once it is less than `ahead` before the one taken last.
  std::optional<uint32_t> Claim() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || next_ == splits_ || next_ < taken_ + ahead_; });
    if (stopped_ || next_ == splits_) return std::nullopt;
    return next_++;
  }
  void Put(uint32_t split, SplitScores scores) {
    std::lock_guard lock(mutex_);
    ready_.emplace(split, std::move(scores));
    changed_.notify_all();
  }
  void Fail(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    stopped_ = true;
    changed_.notify_all();
  }
  void Stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  // The taker: the splits one after another.
  absl::StatusOr<SplitScores> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !status_.ok() || ready_.count(taken_) > 0; });
    if (!status_.ok()) return status_;
    SplitScores scores = std::move(ready_.extract(taken_).mapped());
    ++taken_;
    changed_.notify_all();
    return scores;
  }

 private:
  const uint32_t splits_;
  const uint32_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t next_ = 0;   // to be claimed
  uint32_t taken_ = 0;  // splits handed over
  bool stopped_ = false;
  absl::Status status_;
  std::map<uint32_t, SplitScores> ready_;
};

absl::Status ScoreSplits(const Dataset& data, const ScorerTables& tables, SplitQueue* queue) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<ModelScorer> scorer, ModelScorer::Make(tables));
  while (const std::optional<uint32_t> split = queue->Claim()) {
    SplitScores scored;
    CAPSTAN_ASSIGN_OR_RETURN(scored.split, data.ReadSplit(*split));
    scorer->Score(scored.split.rows, scored.split.bad, &scored.scores);
    queue->Put(*split, std::move(scored));
  }
  return absl::OkStatus();
}

absl::Status TakeAll(uint32_t splits, const ScoreOptions& options, SplitQueue* queue,
                     const std::function<absl::Status(const ScoredRows&)>& sink) {
  for (uint32_t i = 0; i < splits; ++i) {
    if (options.cancelled && options.cancelled()) return absl::CancelledError("interrupted");
    CAPSTAN_ASSIGN_OR_RETURN(const SplitScores scored, queue->Take());
    CAPSTAN_RETURN_IF_ERROR(sink({&scored.split.rows, &scored.scores}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PinIsaOf(const SavedModel& model) {
  std::string isa = model.manifest().job().cpu_isa();
  const std::string best(BestCpuIsa());
  if (isa.empty() || (isa == "avx512" && best != isa)) {
    if (!isa.empty()) {
      LOG(WARNING) << "the model was trained with " << isa << ", this machine has " << best
                   << ": scores may differ in the last bits";
    }
    isa = best;
  }
  return PinCpuIsa(isa);
}

absl::Status ScoreFiles(FileSystem& fs, const SavedModel& model, const std::vector<std::string>& files,
                        const ScoreOptions& options,
                        const std::function<absl::Status(const ScoredRows&)>& sink) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<ScorerTables> tables, ScorerTables::Make(model));
  DataConfig config = model.manifest().job().config().data();
  if (options.max_bad_rows) config.set_max_bad_rows(*options.max_bad_rows);
  Recipe recipe = model.manifest().job().recipe();
  DataPlan plan;
  SplitRule rule;
  rule.max_rows = config.split_rows();
  rule.labels = options.labels;
  CAPSTAN_RETURN_IF_ERROR(ScanData(fs, config, files, rule, &plan, &recipe));
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> data, Dataset::Open(fs, config, plan, recipe));
  data->SetLabelsRequired(options.labels);

  const uint32_t splits = static_cast<uint32_t>(plan.split_size());
  const unsigned wanted =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  const unsigned threads = std::max(1u, std::min<unsigned>(wanted, splits));
  SplitQueue queue(splits, 2 * threads);
  std::vector<std::thread> scoring;
  for (unsigned i = 0; i < threads; ++i) {
    scoring.emplace_back([&] {
      if (const absl::Status status = ScoreSplits(*data, *tables, &queue); !status.ok()) queue.Fail(status);
    });
  }
  const absl::Status status = TakeAll(splits, options, &queue, sink);
  queue.Stop();
  for (std::thread& thread : scoring) thread.join();
  return status;
}

}  // namespace capstan
