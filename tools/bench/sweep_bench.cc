#include "tools/bench/sweep_bench.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "proto/checkpoint.pb.h"
#include "ps/snapshot_sweep.h"
#include "ps/table.h"

namespace capstan {
namespace {

constexpr uint32_t kBenchPartitions = 4096;
constexpr uint64_t kCopyLimit = uint64_t{8} << 30;

// Copies what it gets into a buffer that is used again, as shared memory is.
class CopyingSink final : public SnapshotSink {
 public:
  CopyingSink() : ring_(size_t{8} << 20) {}
  void Begin(const SnapshotOrder& order) override { id_ = order.id; }
  bool Offer(const SnapshotChunk& chunk) override {
    if (at_ + chunk.rows.size() > ring_.size()) at_ = 0;
    std::memcpy(ring_.data() + at_, chunk.rows.data(), chunk.rows.size());
    at_ += chunk.rows.size();
    return true;
  }
  bool Finish(const ShardRecord&) override {
    finished_ = true;
    return true;
  }
  void Abort() override {}
  std::optional<SnapshotResult> Poll() override {
    if (!std::exchange(finished_, false)) return std::nullopt;
    SnapshotResult result;
    result.id = id_;
    return result;
  }

 private:
  std::vector<std::byte> ring_;
  size_t at_ = 0;
  uint64_t id_ = 0;
  bool finished_ = false;
};

class CutTimer {
 public:
  explicit CutTimer(Table* table) : sweep_({table}) {}
  void Begin(bool full) {
    SnapshotOrder order;
    order.id = ++id_;
    absl::Status status;
    begin_seconds = CpuSecondsOf([&] { status = sweep_.Begin(order, ShardRecord(), full, &sink_, kCopyLimit); });
  }
  void Finish() {
    seconds = longest = 0;
    while (sweep_.state() != SnapshotSweep::State::kIdle) {
      const double took = CpuSecondsOf([this] { sweep_.Step(); });
      seconds += took;
      longest = std::max(longest, took);
    }
    rows = sweep_.counts().rows;
    while (sweep_.Step()) {
    }
  }
  double begin_seconds = 0;
  double seconds = 0;
  double longest = 0;
  uint64_t rows = 0;

 private:
  CopyingSink sink_;
  SnapshotSweep sweep_;
  uint64_t id_ = 0;
};

}  // namespace

void RunSweepBench(const SweepBench& bench) {
  CutTimer cut(bench.table);
  uint64_t step = 1;
  const auto apply = [&](size_t r) {
    bench.table->Apply(bench.requests[r], bench.gradients.data(), {1.0f, ++step});
  };
  // `before` (which does not count) is followed by one round of all requests.
  const auto round = [&](std::string_view what, const std::function<void()>& before) {
    std::vector<double> ours, ratios;
    double spent = 0;
    while (spent < bench.seconds || ours.size() < 3) {
      before();
      double mine = 0, limit = 0;
      for (size_t r = 0; r < bench.requests.size(); ++r) {
        mine += CpuSecondsOf([&] { apply(r); });
        limit += CpuSecondsOf([&] { bench.limit(bench.requests[r]); });
      }
      spent += mine + limit;
      ours.push_back(mine);
      ratios.push_back(limit / mine);
      cut.Finish();
    }
    std::sort(ours.begin(), ours.end());
    std::sort(ratios.begin(), ratios.end());
    const double rows = static_cast<double>(bench.requests.size() * bench.requests[0].size()) / 1e6;
    const double rate = rows / ours[ours.size() / 2];
    const double ratio = ratios[ratios.size() / 2];
    bench.report({bench.name_of(what), rate, "Mrows/s", "in-process loop", rate / ratio, ratio});
  };
  const auto sweep = [&](std::string_view what) {
    cut.Finish();
    bench.report({bench.name_of(what), static_cast<double>(cut.rows) / 1e6 / cut.seconds, "Mrows/s", "", 0, 0});
    bench.report({bench.name_of(std::string(what) + "_longest_slice"), cut.longest * 1e3, "ms", "", 0, 0});
  };
  round("apply_untracked", [] {});
  bench.table->Track(kBenchPartitions, true);
  cut.Begin(true);
  bench.report({bench.name_of("cut_begin"), cut.begin_seconds * 1e3, "ms", "", 0, 0});
  sweep("full_sweep");
  round("apply_tracked", [] {});
  round("apply_after_cut", [&] {
    cut.Begin(false);
    cut.Finish();
  });
  round("apply_during_cut", [&] { cut.Begin(true); });
  for (size_t r = 0; r < bench.requests.size(); ++r) apply(r);
  cut.Begin(false);
  sweep("increment_sweep");
}

}  // namespace capstan
