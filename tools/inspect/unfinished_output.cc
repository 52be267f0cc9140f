#include "tools/inspect/unfinished_output.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace capstan {
namespace {

constexpr int kTellEnd = SIGUSR2;  // to our own thread: nothing is left to remove

// Without those that whoever started us wants ignored: a blocked signal would be seen all the same.
sigset_t Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kTellEnd);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

class UnfinishedOutput::Watch {
 public:
  explicit Watch(std::function<void()> remove) : remove_(std::move(remove)) {
    pthread_sigmask(SIG_BLOCK, &interrupts_, &before_);
    thread_ = std::thread([this] { Wait(); });
  }
  ~Watch() {
    pthread_kill(thread_.native_handle(), kTellEnd);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  void Wait() {
    int seen = 0;
    while (sigwait(&interrupts_, &seen) != 0) {
    }
    if (seen == kTellEnd) return;
    remove_();
    remove_();  // what was made meanwhile
    signal(seen, SIG_DFL);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, seen);
    pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
    kill(getpid(), seen);
  }

  const std::function<void()> remove_;
  const sigset_t interrupts_ = Interrupts();
  sigset_t before_;
  std::thread thread_;
};

UnfinishedOutput::UnfinishedOutput(std::function<void()> remove)
    : watch_(std::make_unique<Watch>(std::move(remove))) {}
UnfinishedOutput::~UnfinishedOutput() = default;

}  // namespace capstan
