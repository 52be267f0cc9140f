#include "scheduler/lease_table.h"

#include <algorithm>
#include <utility>

#include "common/planted_bugs.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

LeaseTable::LeaseTable(BatchPlan plan, uint32_t epochs, uint32_t batches_per_lease, Origin origin)
    : plan_(std::move(plan)),
      epochs_(epochs),
      batches_per_lease_(batches_per_lease),
      origin_(std::move(origin)),
      next_epoch_(origin_.first_epoch),
      next_id_(std::max<LeaseId>(1, origin_.first_lease)),
      closed_below_(std::max<LeaseId>(next_id_, origin_.closed_below)),
      closed_above_(origin_.closed) {
  closed_above_.erase(closed_above_.begin(), closed_above_.lower_bound(closed_below_));
  RaiseBound();
  changes_ = closed_below_ > next_id_ || !closed_above_.empty() ? 1 : 0;  // the shards are told what is closed
  LoadEpoch();
}

void LeaseTable::LoadEpoch() {
  while (waiting_.empty() && next_epoch_ < epochs_) {
    for (const Lease& lease : plan_.Leases(next_epoch_, batches_per_lease_, next_id_)) {
      if (!IsClosed(lease.id)) waiting_.push_back(lease);
      next_id_ = lease.id + 1;
    }
    epoch_ends_.push_back(next_id_);
    ++next_epoch_;
  }
  granted_all_ = waiting_.empty();
}

uint32_t LeaseTable::closed_epochs() const {
  const auto open = std::find_if(epoch_ends_.begin(), epoch_ends_.end(), [this](LeaseId end) { return end > closed_below_; });
  return origin_.first_epoch + static_cast<uint32_t>(open - epoch_ends_.begin());
}

bool LeaseTable::AtEpochStart() const {
  const uint32_t closed = closed_epochs() - origin_.first_epoch;
  const LeaseId first = closed == 0 ? std::max<LeaseId>(1, origin_.first_lease) : epoch_ends_[closed - 1];
  return closed_above_.empty() && closed_below_ == first && origin_.touched_below <= first;
}

void LeaseTable::Store(LeaseRecord* record) const {
  record->set_first_epoch(origin_.first_epoch);
  record->set_first_lease(std::max<LeaseId>(1, origin_.first_lease));
  record->set_closed_below(closed_below_);
  record->mutable_closed()->Assign(closed_above_.begin(), closed_above_.end());
  for (const auto& [lease, rank] : open_) record->add_granted(lease);
}

void LeaseTable::RaiseBound() {
  while (!closed_above_.empty() && *closed_above_.begin() == closed_below_) {
    closed_above_.erase(closed_above_.begin());
    ++closed_below_;
  }
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
  if (IsClosed(lease)) return lease > 0;
  const auto found = open_.find(lease);
  if (found == open_.end() || found->second != rank) return false;
  open_.erase(found);
  ++changes_;
  closed_above_.insert(lease);
  RaiseBound();
  return true;
}

}  // namespace capstan
