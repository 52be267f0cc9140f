// How far apart the slices of a checkpoint lie on a machine whose processors others want too: there a thread that works
// all the time waits for its turn again and again, for milliseconds, and every pull with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "common/clock.h"

namespace capstan {

// A pull should not wait behind a whole turn of another thread: a shard asks for short ones (common/scheduling.h).
inline constexpr std::chrono::microseconds kShardTurn{100};

class SlicePacer {
 public:
  static constexpr int kPausePerWork = 100;
  static constexpr int kCalmSlices = 50;  // without having lost the processor: then it is ours
  static constexpr Duration kLongestPause = std::chrono::milliseconds(10);

  // pause: what the core asks for after a slice (ShardCore::Work) that took `took`. lost: how often the kernel has taken
  // the processor from this thread since it began. Returns the pause to make.
  Duration After(Duration pause, Duration took, int64_t lost);
  void Rest() { resting_ = true; }  // no work: what is lost until the next slice says nothing

 private:
  bool resting_ = true;
  int64_t lost_ = 0;
  int slices_left_ = 0;  // until it is calm
};

// A slice of the core's work at its pace, on the shard's thread; what NodeHandlers::on_idle returns.
Duration RunSlice(const Clock& clock, const std::function<Duration(Time now)>& work, SlicePacer* pacer);

}  // namespace capstan
