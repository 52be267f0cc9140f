#include "common/scheduling.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace capstan {
namespace {

// The first form of the kernel's struct sched_attr, which Debian 12's libc does not have.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;
  uint64_t deadline;
  uint64_t period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

constexpr uint32_t kOther = 0;  // SCHED_OTHER

}  // namespace

void AskForShortTurns(std::chrono::nanoseconds turn) {
  SchedulingAttributes attributes = {};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0 || attributes.policy != kOther) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = static_cast<uint64_t>(turn.count());
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

bool RunOnlyWhenIdle() {
  const struct sched_param none = {};
  return sched_setscheduler(0, SCHED_IDLE, &none) == 0;
}

}  // namespace capstan
