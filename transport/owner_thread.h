// Sockets must not be shared between threads: doing so aborts deep inside the library, or worse, does not.
// This check is on in every build.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>

#include <glog/logging.h>

namespace capstan {

class OwnerThread {
 public:
  // The first thread that calls owns the object from then on.
  void Check() {
    static thread_local const pid_t me = gettid();
    pid_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == 0 && owner_.compare_exchange_strong(owner, me, std::memory_order_relaxed)) return;
    CHECK_EQ(owner, me) << "a transport belongs to the thread that first used it";
  }

 private:
  std::atomic<pid_t> owner_{0};
};

}  // namespace capstan
