// Which vector instructions oneDNN may use. The bits of a training run depend on it, so a job fixes one for
// all nodes (ARCHITECTURE.md, "Bits"); our own kernels are written so that their bits do not.
#pragma once

#include <string_view>

#include "common/status.h"

namespace capstan {

// "avx512" where the machine and the system have AVX-512 F, BW, DQ and VL, else "avx2" (the baseline of the
// build).
std::string_view BestCpuIsa();

// Pins oneDNN for the life of the process. Thread-safe. The same name again is OK.
// kInvalidArgument: unknown name, one that this machine lacks, or another one than was pinned before.
// kFailedPrecondition: oneDNN has already been used with another setting; pin at the start of the process.
absl::Status PinCpuIsa(std::string_view name);

}  // namespace capstan
