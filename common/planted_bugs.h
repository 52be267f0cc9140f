// Bugs planted on purpose, one per rule of the protocol that can break without a crash. The simulator's own build of
// the cores (CAPSTAN_PLANTED_BUGS) can switch one on and must then fail; in every other build this is constant false.
#pragma once

namespace capstan {

enum class Bug {
  kNone,
  kCommitBeforeLastAck,     // a rank commits a step before every shard acknowledged its push
  kNoEmptyPush,             // a shard without a key of the batch gets no push
  kIdleRankInMinimum,       // ssp: a rank without a lease holds the others back
  kLateEnterCounts,         // ssp: a doubled ENTER that comes after LEAVE is believed
  kForgetClosedLease,       // a late push of a closed lease is applied
  kRepeatedPushApplied,     // a push that comes twice counts twice
  kPartsJoinedAcrossRequests,  // parts of two pushes of one process are mixed
  kArrivalOrderSum,         // gradients are summed as they come, not in rank order
  kPullAtAnyVersion,        // sync: a pull is answered before its version is reached
  kDivideByRanks,           // a step is divided by the number of ranks, not by what contributed
  kEndCountsAsStep,         // the empty step that closes an epoch changes rows
  kLooseStaleness,          // ssp: the bound is one too wide
  kClosedBeforeApplied,     // a lease is reported done before its last push is acknowledged
  kTermIgnored,             // frames of an old term are accepted
  kGenerationIgnored,       // frames of another generation are accepted
  kNoResend,                // a lost frame is never sent again
  kPartAcknowledged,        // a shard acknowledges a push of which it has only a part
  kRepeatedAckCounts,       // two acknowledgements of one shard count as those of two shards
  kStaleLeaseReply,         // an answer to an older lease request is taken for the newest
  kOldLeaseRequestGranted,  // a repeated lease request gets another lease
  kClosingStepsMoveOptimizer,  // the empty step that closes an epoch moves the optimizer's clock
  kEpochClosesAtFirstEnd,   // an epoch closes when one rank is out of data
  kEndPushContributes,      // a push with END is counted in the divisor
  kRepeatCountsStatistics,  // the home shard counts the examples of a push that comes twice
  kJoinerClockZero,         // ssp: a rank that enters keeps its old clock
  kCreditNeverReturned,     // an answer does not give its credit back
  kParkedHoldsCredit,       // a parked pull holds its credit
  // Checkpoints.
  kCutNow,                  // sync: a shard past the step of a cut takes it all the same
  kLedgersMergedOnRestore,  // partitions of several shards get the applied sets of one of them
  kLedgerNotStored,         // the applied sets are not in the checkpoint
  kLeasesFromAfterTheCut,   // a lease counts as closed because one shard had it closed
  kClockLostOnRestore,      // the optimizer's clock starts at 0 again
  kEpochLostOnRestore,      // the epoch begins again
};

#ifdef CAPSTAN_PLANTED_BUGS
inline Bug g_planted_bug = Bug::kNone;
inline bool Planted(Bug bug) { return g_planted_bug == bug; }
#else
constexpr bool Planted(Bug) { return false; }
#endif

}  // namespace capstan
