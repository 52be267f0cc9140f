#include "common/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <glog/logging.h>

#include "common/random.h"

namespace capstan {
namespace {

constexpr uint64_t kSplitOrderTag = 0x53504c49544f5244;  // distinct streams of one seed
constexpr uint64_t kRowOrderTag = 0x524f574f52444552;

// Fisher-Yates with counter-based draws: the same permutation on every machine and standard library.
std::vector<uint32_t> Permutation(uint32_t n, uint64_t seed, uint64_t tag, uint64_t a) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (uint32_t i = n; i > 1; --i) {
    const auto draw = static_cast<unsigned __int128>(CounterHash(seed, tag, a, i)) * i;
    std::swap(order[i - 1], order[static_cast<uint32_t>(draw >> 64)]);
  }
  return order;
}

}  // namespace

BatchPlan::BatchPlan(uint64_t seed, std::vector<uint32_t> split_rows, uint32_t batch_rows)
    : seed_(seed), batch_rows_(batch_rows), split_rows_(std::move(split_rows)) {
  CHECK_GE(batch_rows_, 1u);
  for (const uint32_t rows : split_rows_) total_rows_ += rows;
}

uint32_t BatchPlan::RowsOfBatch(uint32_t split, uint32_t index) const {
  const uint64_t begin = uint64_t{index} * batch_rows_;
  const uint64_t rows = split_rows_[split];
  return begin >= rows ? 0 : static_cast<uint32_t>(std::min<uint64_t>(batch_rows_, rows - begin));
}

std::vector<uint32_t> BatchPlan::SplitOrder(uint32_t epoch) const {
  return Permutation(splits(), seed_, kSplitOrderTag, epoch);
}

std::vector<uint32_t> BatchPlan::RowOrder(uint32_t epoch, uint32_t split) const {
  return Permutation(split_rows_[split], seed_, kRowOrderTag, (uint64_t{epoch} << 32) | split);
}

std::vector<BatchId> BatchPlan::BatchesOfRank(uint32_t epoch, Rank rank, uint32_t ranks) const {
  CHECK_GE(ranks, 1u);
  std::vector<BatchId> batches;
  const std::vector<uint32_t> order = SplitOrder(epoch);
  for (size_t place = rank; place < order.size(); place += ranks) {
    const uint32_t split = order[place];
    for (uint32_t i = 0; i < BatchesOfSplit(split); ++i) batches.push_back({epoch, split, i});
  }
  return batches;
}

std::vector<Lease> BatchPlan::Leases(uint32_t epoch, uint32_t batches_per_lease, LeaseId first_id) const {
  CHECK_GE(batches_per_lease, 1u);
  std::vector<Lease> leases;
  for (const uint32_t split : SplitOrder(epoch)) {
    const uint32_t batches = BatchesOfSplit(split);
    for (uint32_t first = 0; first < batches;) {
      const uint32_t count = std::min(batches_per_lease, batches - first);
      leases.push_back({first_id++, epoch, split, first, count});
      first += count;
    }
  }
  return leases;
}

}  // namespace capstan
