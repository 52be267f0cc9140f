// Who works on which lease (async and ssp). Each lease is granted once, closed once; requests and reports may come
// twice. No I/O, no clock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/batch_plan.h"

namespace capstan {

class LeaseTable {
 public:
  LeaseTable(BatchPlan plan, uint32_t epochs, uint32_t batches_per_lease);

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

 private:
  void LoadEpoch();

  const BatchPlan plan_;
  const uint32_t epochs_;
  const uint32_t batches_per_lease_;
  uint32_t next_epoch_ = 0;
  LeaseId next_id_ = 1;
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
