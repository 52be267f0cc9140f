#include "scheduler/disk_wait.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace capstan {
namespace {

constexpr std::chrono::milliseconds kLook{5};

}  // namespace

void DiskWait::Run(const std::function<void()>& work) {
  if (!meanwhile_) return work();
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  std::thread worker([&] {
    work();
    std::lock_guard lock(mutex);
    done = true;
    ended.notify_one();
  });
  std::unique_lock lock(mutex);
  while (!ended.wait_for(lock, kLook, [&done] { return done; })) {
    lock.unlock();
    meanwhile_();
    lock.lock();
  }
  lock.unlock();
  worker.join();
}

}  // namespace capstan
