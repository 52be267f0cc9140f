// Who works on which lease (async and ssp). Each lease is granted once, closed once; requests and reports may come
// twice. No I/O, no clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/batch_plan.h"

namespace capstan {

class LeaseRecord;

class LeaseTable {
 public:
  // Where the ids begin, and what a checkpoint has done already.
  struct Origin {
    uint32_t first_epoch = 0;
    LeaseId first_lease = 1;
    LeaseId closed_below = 1;
    std::set<LeaseId> closed;  // at or above closed_below
    LeaseId touched_below = 0;  // no batch of a lease from here on was applied anywhere
  };
  LeaseTable(BatchPlan plan, uint32_t epochs, uint32_t batches_per_lease, Origin origin);
  LeaseTable(BatchPlan plan, uint32_t epochs, uint32_t batches_per_lease)
      : LeaseTable(std::move(plan), epochs, batches_per_lease, Origin()) {}

  struct Grant {
    bool no_more = false;  // every lease of every epoch has been granted
    Lease lease;
  };
  // The answer to the rank's `sequence`-th request (from 1): the same answer for the same sequence. Nothing for an
  // older one, whose answer the rank has, or one that skips a number.
  std::optional<Grant> Request(Rank rank, uint64_t sequence);
  // The rank reports that every shard acknowledged every batch of its lease. Repeats change nothing. False: the lease
  // was never granted to this rank.
  bool Done(Rank rank, LeaseId lease);

  bool AllClosed() const { return granted_all_ && open_.empty(); }
  // For the shards: all below the first are closed, and so are those of the second (few).
  LeaseId closed_below() const { return closed_below_; }
  const std::set<LeaseId>& closed_above() const { return closed_above_; }
  uint64_t changes() const { return changes_; }  // grows with every lease that closes
  size_t open() const { return open_.size(); }
  uint32_t closed_epochs() const;        // all leases of the epochs below it are closed
  // And nothing of later ones is done, not even at one shard: what follows may be another plan.
  bool AtEpochStart() const;
  void Store(LeaseRecord* record) const;

 private:
  void LoadEpoch();
  bool IsClosed(LeaseId lease) const { return lease < closed_below_ || closed_above_.count(lease) > 0; }
  void RaiseBound();

  const BatchPlan plan_;
  const uint32_t epochs_;
  const uint32_t batches_per_lease_;
  const Origin origin_;
  uint32_t next_epoch_ = 0;
  LeaseId next_id_ = 1;
  std::vector<LeaseId> epoch_ends_;      // of the epochs loaded: the first id after each
  std::deque<Lease> waiting_;
  std::map<LeaseId, Rank> open_;
  bool granted_all_ = false;
  struct Answered {
    uint64_t sequence = 0;
    Grant grant;
  };
  std::map<Rank, Answered> last_;
  LeaseId closed_below_ = 1;
  std::set<LeaseId> closed_above_;
  uint64_t changes_ = 0;
};

}  // namespace capstan
