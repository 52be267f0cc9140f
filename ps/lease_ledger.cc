#include "ps/lease_ledger.h"

#include <algorithm>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

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

void LeaseLedger::Store(LedgerRecord* record) const {
  record->set_closed_below(closed_below_);
  record->mutable_closed()->Assign(closed_.begin(), closed_.end());
  for (const auto& [lease, indexes] : applied_) {
    AppliedLease* applied = record->add_applied();
    applied->set_lease(lease);
    applied->mutable_index()->Assign(indexes.begin(), indexes.end());
  }
}

LeaseLedger LeaseLedger::From(const LedgerRecord& record) {
  LeaseLedger ledger;
  ledger.closed_below_ = std::max<LeaseId>(1, record.closed_below());
  ledger.closed_.insert(record.closed().begin(), record.closed().end());
  for (const AppliedLease& applied : record.applied()) {
    ledger.applied_[applied.lease()].insert(applied.index().begin(), applied.index().end());
  }
  ledger.Close(ledger.closed_below_, {});  // whatever the record says, nothing closed is open too
  return ledger;
}

}  // namespace capstan
