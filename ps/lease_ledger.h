// Which batches of which leases some partitions have applied (async and ssp), so that a batch sent again counts once.
// partition_ledgers.h has one for every group of partitions that agree.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "common/types.h"

namespace capstan {

class LedgerRecord;

class LeaseLedger {
 public:
  static constexpr size_t kMaxOpenLeases = 65536;  // far more than can be reported done between two closings

  // False: the batch was applied before, or its lease is closed.
  bool ShouldApply(LeaseId lease, uint32_t index) const;
  void MarkApplied(LeaseId lease, uint32_t index);
  // False: so many leases are open, or so many batches of this one were applied, that this one is beyond any
  // bound.
  bool HasRoom(LeaseId lease, uint32_t index, uint32_t batches_per_lease) const;

  // All leases below `below` and those listed are closed: every shard has every batch of them. Their sets are
  // forgotten; that they are closed never is.
  void Close(LeaseId below, std::span<const LeaseId> leases);

  bool IsClosed(LeaseId lease) const { return lease < closed_below_ || closed_.count(lease) > 0; }
  size_t open_leases() const { return applied_.size(); }
  bool operator==(const LeaseLedger&) const = default;

  // For checkpoints; `partitions` is the caller's.
  void Store(LedgerRecord* record) const;
  static LeaseLedger From(const LedgerRecord& record);

 private:
  std::map<LeaseId, std::set<uint32_t>> applied_;
  LeaseId closed_below_ = 1;  // ids start at 1
  std::set<LeaseId> closed_;  // above the bound; small
};

}  // namespace capstan
