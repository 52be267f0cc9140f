#include "ps/lease_ledger.h"

#include <algorithm>

#include "common/planted_bugs.h"

namespace capstan {

bool LeaseLedger::ShouldApply(LeaseId lease, uint32_t index) const {
  if (Planted(Bug::kRepeatedPushApplied)) return true;
  if (IsClosed(lease) && !Planted(Bug::kForgetClosedLease)) return false;
  const auto found = applied_.find(lease);
  return found == applied_.end() || found->second.count(index) == 0;
}

void LeaseLedger::MarkApplied(LeaseId lease, uint32_t index) { applied_[lease].insert(index); }

bool LeaseLedger::HasRoom(LeaseId lease, uint32_t index, uint32_t batches_per_lease) const {
  const auto found = applied_.find(lease);
  if (found == applied_.end()) return applied_.size() < kMaxOpenLeases;
  return found->second.size() < batches_per_lease || found->second.count(index) > 0;
}

void LeaseLedger::Close(LeaseId below, std::span<const LeaseId> leases) {
  closed_below_ = std::max(closed_below_, below);
  for (const LeaseId lease : leases) {
    if (lease >= closed_below_) closed_.insert(lease);
  }
  closed_.erase(closed_.begin(), closed_.lower_bound(closed_below_));
  for (auto it = applied_.begin(); it != applied_.end();) {
    it = IsClosed(it->first) ? applied_.erase(it) : std::next(it);
  }
}

}  // namespace capstan
