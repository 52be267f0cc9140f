// Names of the things every part of Capstan counts. ARCHITECTURE.md ("Words") says what each one means.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace capstan {

using Key = uint64_t;      // any value is an ordinary key, 0 and 2^64-1 included
using TableId = uint16_t;  // wire id of a table, from the effective job; never its position
using PartitionId = uint32_t;
using ShardId = uint32_t;
using Rank = uint32_t;         // a logical worker, 0 … ranks-1
using Term = uint32_t;         // raised at every take-over of a rank; fences
using Generation = uint32_t;   // raised at every rewind
using Step = uint64_t;         // global optimizer step; version t of a table = after t steps
using NodeId = uint32_t;       // one process: given by the scheduler at join
using Incarnation = uint32_t;  // random at every start of a process
using JobId = uint64_t;
using LeaseId = uint64_t;  // 0 = none; ids start at 1 and only grow
using PeerId = uint64_t;   // one transport's handle of one connection; means nothing elsewhere

inline constexpr Rank kNoRank = std::numeric_limits<Rank>::max();
inline constexpr PeerId kNoPeer = 0;
inline constexpr NodeId kSchedulerNode = 0;
inline constexpr NodeId kNoNode = std::numeric_limits<NodeId>::max();

// Steady time only: nothing in Capstan but a log line looks at the wall clock.
using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

}  // namespace capstan
