#include "kernels/compute_thread.h"

#include <glog/logging.h>
#include <immintrin.h>
#include <omp.h>

namespace capstan {

void SetFloatMode() {
  constexpr unsigned kFlushToZero = 1u << 15;
  constexpr unsigned kDenormalsAreZero = 1u << 6;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
}

void SetThreadsOfThisThread(int n) {
  CHECK_GE(n, 1);
  omp_set_dynamic(0);
  omp_set_num_threads(n);
}

}  // namespace capstan
