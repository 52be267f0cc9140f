#include "tools/train/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <glog/logging.h>

namespace capstan {

void OutliveEarlySigusr1() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};  // a handler and not SIG_IGN, which exec keeps
  action.sa_flags = SA_RESTART;
  PCHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
}

SignalWatcher::SignalWatcher(std::function<void(int signal)> on_signal) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  sigaddset(&watched, SIGUSR1);
  PCHECK(pthread_sigmask(SIG_BLOCK, &watched, &before_) == 0);
  signal_fd_ = signalfd(-1, &watched, SFD_CLOEXEC);
  PCHECK(signal_fd_ >= 0);
  PCHECK(pipe2(wake_, O_CLOEXEC) == 0);
  thread_ = std::thread([this, call = std::move(on_signal)] {
    for (;;) {
      pollfd fds[2] = {{signal_fd_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
      if (poll(fds, 2, -1) < 0 && errno == EINTR) continue;
      if (fds[1].revents != 0) return;
      signalfd_siginfo info;
      if (fds[0].revents != 0 && read(signal_fd_, &info, sizeof info) == sizeof info) {
        call(static_cast<int>(info.ssi_signo));
      }
    }
  });
}

SignalWatcher::~SignalWatcher() {
  const char byte = 0;
  PCHECK(write(wake_[1], &byte, 1) == 1);
  thread_.join();
  close(wake_[0]);
  close(wake_[1]);
  close(signal_fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace capstan
