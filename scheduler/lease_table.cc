#include "scheduler/lease_table.h"

#include <algorithm>
#include <utility>

#include "common/planted_bugs.h"

namespace capstan {

LeaseTable::LeaseTable(BatchPlan plan, uint32_t epochs, uint32_t batches_per_lease)
    : plan_(std::move(plan)), epochs_(epochs), batches_per_lease_(batches_per_lease) {
  LoadEpoch();
}

void LeaseTable::LoadEpoch() {
  while (waiting_.empty() && next_epoch_ < epochs_) {
    for (const Lease& lease : plan_.Leases(next_epoch_, batches_per_lease_, next_id_)) {
      waiting_.push_back(lease);
      next_id_ = lease.id + 1;
    }
    ++next_epoch_;
  }
  granted_all_ = waiting_.empty();
}

std::optional<LeaseTable::Grant> LeaseTable::Request(Rank rank, uint64_t sequence) {
  Answered& last = last_[rank];
  if (sequence == last.sequence && sequence > 0 && !Planted(Bug::kOldLeaseRequestGranted)) return last.grant;
  if (sequence != last.sequence + 1 && !Planted(Bug::kOldLeaseRequestGranted)) return std::nullopt;
  last.sequence = std::max(last.sequence, sequence);
  last.grant = Grant();
  if (granted_all_) {
    last.grant.no_more = true;
  } else {
    last.grant.lease = waiting_.front();
    waiting_.pop_front();
    open_[last.grant.lease.id] = rank;
    LoadEpoch();
  }
  return last.grant;
}

bool LeaseTable::Done(Rank rank, LeaseId lease) {
  if (lease < closed_below_ || closed_above_.count(lease) > 0) return lease > 0;
  const auto found = open_.find(lease);
  if (found == open_.end() || found->second != rank) return false;
  open_.erase(found);
  ++changes_;
  closed_above_.insert(lease);
  while (!closed_above_.empty() && *closed_above_.begin() == closed_below_) {
    closed_above_.erase(closed_above_.begin());
    ++closed_below_;
  }
  return true;
}

}  // namespace capstan
