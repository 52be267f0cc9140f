// Turns SIGINT, SIGTERM and SIGUSR1 into a call on a thread of its own.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace capstan {

// SIGUSR1 before a run can take a checkpoint asks for nothing; without this it would end the process. Programs that are
// started later do not inherit it.
void OutliveEarlySigusr1();

// Blocks the signals in the calling thread, and so in all that start later: make it before them. One at a time.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int signal)> on_signal);
  ~SignalWatcher();

 private:
  sigset_t before_;
  int wake_[2] = {-1, -1};
  int signal_fd_ = -1;
  std::thread thread_;
};

}  // namespace capstan
