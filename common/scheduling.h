// What a thread asks of the kernel's scheduler.
#pragma once

#include <chrono>

namespace capstan {

// Asks the kernel to give the calling thread the processor in short turns, and therefore soon once it wakes up; its
// share stays what its priority says. Linux 6.12 and later heed it (sched_setattr(2): sched_runtime of SCHED_OTHER),
// others ignore it, and so does this: nothing but latency depends on it. At least 100 µs.
void AskForShortTurns(std::chrono::nanoseconds turn);

// The calling thread from now on runs only where nobody else wants the processor (SCHED_IDLE). There may be no way back.
// False: it was refused.
bool RunOnlyWhenIdle();

}  // namespace capstan
