// Settings that belong to a thread, not to the process. Every thread that computes calls both before its
// first float operation; a new thread starts without them, and other settings give other bits.
#pragma once

namespace capstan {

// Results and inputs below the smallest normal number are taken as 0 (FTZ, DAZ): the bits do not depend on
// who set what before, and denormals cost no time.
void SetFloatMode();

// OpenMP threads of the products that the calling thread starts; n ≥ 1. Weight gradients have other bits at
// another count, so this comes from the job, never from the machine.
void SetThreadsOfThisThread(int n);

}  // namespace capstan
