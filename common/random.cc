#include "common/random.h"

#include <sys/random.h>

#include <glog/logging.h>

namespace capstan {

uint64_t SystemRandom::Next() {
  uint64_t value = 0;
  CHECK_EQ(getrandom(&value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
  return value;
}

}  // namespace capstan
