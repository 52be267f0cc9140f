#include "ps/slice_pacer.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace capstan {

Duration SlicePacer::After(Duration pause, Duration took, int64_t lost) {
  const bool taken = std::exchange(lost_, lost) != lost && !resting_;
  resting_ = false;
  if (taken) {
    slices_left_ = kCalmSlices;
  } else if (slices_left_ > 0) {
    --slices_left_;
  }
  if (pause != Duration::zero() || slices_left_ == 0) return pause;  // it has to wait anyway, or must not
  return std::min(kPausePerWork * took, kLongestPause);
}

Duration RunSlice(const Clock& clock, const std::function<Duration(Time now)>& work, SlicePacer* pacer) {
  const Time begin = clock.Now();
  const Duration pause = work(begin);
  if (pause == Duration::max()) {  // between checkpoints every look at the messages comes here
    pacer->Rest();
    return pause;
  }
  struct rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);  // cannot fail for ourselves
  return pacer->After(pause, clock.Now() - begin, usage.ru_nivcsw);
}

}  // namespace capstan
