#include "tools/bench/store_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "proto/control.pb.h"
#include "ps/gradient_merge.h"
#include "ps/table.h"
#include "tools/bench/limit_loop.h"
#include "tools/bench/sweep_bench.h"

namespace capstan {
namespace {

constexpr size_t kRequests = 40;  // different ones, used in turn
constexpr size_t kCreatePerCall = 128;
constexpr size_t kMergeRanks = 4;
constexpr size_t kMergeBlock = 1024;
constexpr float kRate = 0.05f;
constexpr float kEpsilon = 1e-8f;

class StoreBench {
 public:
  StoreBench(const StoreBenchOptions& options, uint32_t width, std::unique_ptr<Table> table,
             const std::function<void(const Figure&)>& report)
      : options_(options),
        width_(width),
        table_(std::move(table)),
        report_(report),
        gradients_(options.keys_per_request * width, 0.01f),
        out_(gradients_.size()) {
    for (size_t r = 0; r < kRequests; ++r) {
      requests_.push_back(BenchRequest(1000 + r, options_.rows, options_.keys_per_request));
    }
  }

  void Run() {
    Create();
    LimitLoop limit(options_.rows, width_);
    Compare(
        "gather", "in-process loop", [&](size_t r) { table_->Gather(requests_[r], out_.data()); },
        [&](size_t r) { limit.Gather(requests_[r], out_.data()); });
    Compare(
        "apply_adagrad", "in-process loop",
        [&](size_t r) {
          table_->Apply(requests_[r], gradients_.data(), {1.0f, r + 1});
        },
        [&](size_t r) { limit.ApplyAdagrad(requests_[r], gradients_.data(), kRate, kEpsilon); });
    Merge(limit);
    RunSweepBench({.name_of = [this](std::string_view what) { return NameOf(what); },
                   .table = table_.get(),
                   .requests = requests_,
                   .gradients = gradients_,
                   .limit = [&](const std::vector<Key>& keys) { limit.ApplyAdagrad(keys, gradients_.data(), kRate, kEpsilon); },
                   .seconds = options_.seconds,
                   .report = report_});
  }

 private:
  std::string NameOf(std::string_view what) const { return fmt::format("store.{}.{}", what, width_); }

  // Rows come into being a few at a time; the slowest call shows the pause of a growing index.
  void Create() {
    double total = 0, longest = 0;
    std::vector<Key> keys;
    for (uint64_t i = 0; i < options_.rows; i += kCreatePerCall) {
      keys.clear();
      for (uint64_t j = i; j < std::min(i + kCreatePerCall, options_.rows); ++j) keys.push_back(BenchKey(j));
      const double took = CpuSecondsOf([&] { table_->Apply(keys, gradients_.data(), {}); });
      total += took;
      longest = std::max(longest, took);
    }
    const double rows = static_cast<double>(options_.rows);
    report_({NameOf("create"), rows / total / 1e6, "Mrows/s", "", 0, 0});
    report_({NameOf("create_longest_call"), longest * 1e3, "ms", "", 0, 0});
    const double bytes = static_cast<double>(table_->store().bytes()) / rows;
    const double least = static_cast<double>(table_->layout().bytes()) + 16 / 0.7;
    report_({NameOf("memory"), bytes, "B/row", "record + entry at load 0.7", least, least / bytes});
  }

  void Compare(std::string_view what, const char* limit_name, const std::function<void(size_t r)>& ours,
               const std::function<void(size_t r)>& limit) {
    const SideBySide result = CompareInTurn(
        options_.seconds,
        [&](size_t i) {
          ours(i % kRequests);
          KeepAlive(out_.data());
        },
        [&](size_t i) {
          limit(i % kRequests);
          KeepAlive(out_.data());
        });
    const double mega_rows = static_cast<double>(options_.keys_per_request) / 1e6;
    report_({NameOf(what), mega_rows / result.ours_seconds, "Mrows/s", limit_name,
             mega_rows / result.limit_seconds, result.ratio});
  }

  // Four ranks' pushes summed and applied, beside as many rows updated without any merging.
  void Merge(LimitLoop& limit) {
    std::vector<std::vector<float>> gradients(kMergeRanks, gradients_);
    const auto request_of = [&](size_t i, size_t rank) -> const std::vector<Key>& {
      return requests_[(i * kMergeRanks + rank) % kRequests];
    };
    const SideBySide result = CompareInTurn(
        options_.seconds,
        [&](size_t i) {
          std::vector<RankGradients> ranks;
          for (size_t rank = 0; rank < kMergeRanks; ++rank) {
            ranks.push_back({{request_of(i, rank), gradients[rank].data()}});
          }
          SumInRankOrder(ranks, width_, 2048, kMergeBlock, [&](std::span<const Key> keys, const float* sums) {
            table_->Apply(keys, sums, {1.0f, i + 1});
          });
        },
        [&](size_t i) {
          for (size_t rank = 0; rank < kMergeRanks; ++rank) {
            limit.ApplyAdagrad(request_of(i, rank), gradients[rank].data(), kRate, kEpsilon);
          }
        });
    const double mega_rows = static_cast<double>(kMergeRanks * options_.keys_per_request) / 1e6;
    report_({NameOf("merge_4_ranks_and_apply"), mega_rows / result.ours_seconds, "Mrows/s",
             "in-process loop, no merging", mega_rows / result.limit_seconds, result.ratio});
  }

  const StoreBenchOptions& options_;
  const uint32_t width_;
  const std::unique_ptr<Table> table_;
  const std::function<void(const Figure&)>& report_;
  std::vector<float> gradients_;
  std::vector<float> out_;
  std::vector<std::vector<Key>> requests_;
};

absl::StatusOr<std::unique_ptr<Table>> MakeBenchTable(uint32_t width) {
  TableSpec spec;
  spec.set_name("bench");
  spec.set_width(width);
  spec.set_init(TableSpec::UNIFORM);
  spec.set_scale(0.01f);
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_learning_rate(kRate);
  spec.mutable_optimizer()->set_epsilon(kEpsilon);
  return Table::Create(spec, 1);
}

}  // namespace

absl::Status RunStoreBench(const StoreBenchOptions& options,
                           const std::function<void(const Figure&)>& report) {
  if (options.rows < 1 || options.keys_per_request < 1 || options.keys_per_request > options.rows) {
    return InvalidArgument(fmt::format("{} keys a request of {} rows; want 1 <= keys <= rows",
                                       options.keys_per_request, options.rows));
  }
  report({"machine.memcpy", MemcpyBytesPerSecond() / 1e9, "GB/s", "", 0, 0});
  for (const uint32_t width : options.widths) {
    CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, MakeBenchTable(width));
    StoreBench(options, width, std::move(table), report).Run();
  }
  return absl::OkStatus();
}

}  // namespace capstan
