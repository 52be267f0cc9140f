#include "data/generator_blocks.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace capstan {

namespace {

// Lets threads pass one by one, in the order of their tickets.
class Turnstile {
 public:
  // Waits for the turn of `ticket`, then runs `pass` and lets the next one in. False once a pass has failed.
  bool Pass(uint64_t ticket, const std::function<absl::Status()>& pass) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ == ticket || !status_.ok(); });
    if (!status_.ok()) return false;
    status_ = pass();
    ++next_;
    changed_.notify_all();
    return status_.ok();
  }

  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  absl::Status status_;
};

void FillBlock(const ClickLog& log, uint64_t first_row, uint64_t rows, ClickBlock* block) {
  block->first_row = first_row;
  block->clicks = 0;
  block->probabilities.clear();
  block->tsv.clear();
  for (uint64_t i = 0; i < rows; ++i) {
    const ClickRow row = log.Row(first_row + i);
    block->clicks += row.clicked ? 1 : 0;
    block->probabilities.push_back(row.probability);
    log.AppendTsv(row, &block->tsv);
  }
}

// Runs work(0) … work(threads - 1) at once and waits for all.
void RunOnThreads(unsigned threads, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> pool;
  pool.reserve(threads);
  for (unsigned t = 0; t < threads; ++t) pool.emplace_back(work, t);
  for (std::thread& thread : pool) thread.join();
}

}  // namespace

absl::Status MakeClickBlocks(const ClickLog& log, uint64_t start, uint64_t rows, unsigned threads,
                             const std::function<absl::Status(const ClickBlock&)>& sink) {
  const uint64_t blocks = (rows + kClickBlockRows - 1) / kClickBlockRows;
  std::atomic<uint64_t> next_block{0};
  Turnstile turnstile;
  RunOnThreads(static_cast<unsigned>(std::min<uint64_t>(threads, blocks)), [&](unsigned) {
    ClickBlock block;
    for (;;) {
      const uint64_t index = next_block.fetch_add(1, std::memory_order_relaxed);
      if (index >= blocks) return;
      const uint64_t offset = index * kClickBlockRows;
      FillBlock(log, start + offset, std::min(kClickBlockRows, rows - offset), &block);
      if (!turnstile.Pass(index, [&] { return sink(block); })) return;
    }
  });
  return turnstile.status();
}

std::vector<double> ClickProbabilities(const ClickLog& log, std::span<const uint64_t> rows,
                                       unsigned threads) {
  std::vector<double> probabilities(rows.size());
  const size_t slice = (rows.size() + threads - 1) / threads;
  RunOnThreads(threads, [&](unsigned t) {
    const size_t begin = std::min(rows.size(), t * slice);
    const size_t end = std::min(rows.size(), begin + slice);
    for (size_t i = begin; i < end; ++i) probabilities[i] = log.Row(rows[i]).probability;
  });
  return probabilities;
}

}  // namespace capstan
