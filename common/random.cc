#include "common/random.h"

#include <sys/random.h>

#include <cerrno>

#include <glog/logging.h>

namespace capstan {

uint64_t SystemRandom::Next() {
  uint64_t value = 0;
  ssize_t got = 0;
  do {
    got = getrandom(&value, sizeof value, 0);
  } while (got < 0 && errno == EINTR);  // only early in a boot
  PCHECK(got == static_cast<ssize_t>(sizeof value)) << "the system gives no random bytes";
  return value;
}

}  // namespace capstan
