#include "tools/launcher/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/exit_code.h"
#include "tools/launcher/spawn.h"

namespace capstan {
namespace {

Time SteadyNow() { return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()); }

// The write end of the living Supervisor's pipe, or -1.
std::atomic<int> signal_pipe = -1;
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void OnSignal(int signal) {
  const int saved_errno = errno;
  const auto number = static_cast<unsigned char>(signal);
  // A full pipe has plenty to wake up for already.
  [[maybe_unused]] const ssize_t written = write(signal_pipe, &number, 1);
  errno = saved_errno;
}

// How likely an exit is a consequence of another one: 0 a cause, 3 none at all.
int CauseOrder(const ChildExit& exit) {
  if (exit.signal != 0) return 0;
  if (exit.exit_code == 0) return 3;
  const bool lost = exit.exit_code == ToInt(ExitCode::kSchedulerLost) ||
                    exit.exit_code == ToInt(ExitCode::kServerLost) ||
                    exit.exit_code == ToInt(ExitCode::kWorkerLost);
  return lost ? 2 : 1;
}

// Milliseconds for poll, rounded up so that it does not return just before the deadline, again and again.
int PollTimeout(Time deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyNow()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

}  // namespace

std::string ChildExit::ToString() const {
  const std::string what = signal != 0
                               ? fmt::format("was killed by signal {} ({})", signal, strsignal(signal))
                               : fmt::format("exited with code {}", exit_code);
  return fmt::format("{} {}; see {}", name, what, log_path);
}

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Make() {
  std::unique_ptr<Supervisor> supervisor(new Supervisor);
  if (pipe2(supervisor->pipe_, O_NONBLOCK | O_CLOEXEC) != 0) {
    return Unavailable(fmt::format("making a pipe for signals: {}", std::strerror(errno)));
  }
  CHECK_EQ(signal_pipe.exchange(supervisor->pipe_[1]), -1) << "two supervisors in one process";
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction old = {};
    if (sigaction(signal, &action, &old) != 0) {
      return Internal(fmt::format("taking signal {}: {}", signal, std::strerror(errno)));
    }
    supervisor->old_actions_.emplace_back(signal, old);
  }
  return supervisor;
}

Supervisor::~Supervisor() {
  if (!children_.empty()) Terminate(Duration::zero());
  for (const auto& [signal, action] : old_actions_) sigaction(signal, &action, nullptr);
  if (pipe_[1] >= 0) signal_pipe = -1;
  for (const int end : pipe_) {
    if (end >= 0) close(end);
  }
}

absl::Status Supervisor::Spawn(const ChildSpec& spec) {
  CHECK(!spec.argv.empty() && !pid(spec.name)) << spec.name;
  CAPSTAN_ASSIGN_OR_RETURN(const pid_t child, SpawnProcess(spec));
  children_.push_back({spec.name, spec.log_path, spec.exit_code_if_killed, child});
  return absl::OkStatus();
}

void Supervisor::ReapAll() {
  for (auto child = children_.begin(); child != children_.end();) {
    siginfo_t info = {};
    // Looked at before it is reaped: while it is a zombie, its process group's number belongs to nobody else,
    // and whatever it left behind in the group can be ended safely.
    if (waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      ++child;
      continue;
    }
    kill(-child->pid, SIGKILL);
    while (waitpid(child->pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    ChildExit exit;
    exit.name = child->name;
    exit.log_path = child->log_path;
    exit.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    exit.exit_code = info.si_code == CLD_EXITED ? info.si_status : child->exit_code_if_killed;
    exited_.push_back(std::move(exit));
    child = children_.erase(child);
  }
}

int Supervisor::WaitForSignal(Time deadline) {
  pollfd waiting = {pipe_[0], POLLIN, 0};
  // Interrupted by the signal itself (-1): it is in the pipe.
  if (poll(&waiting, 1, PollTimeout(deadline)) == 0) return 0;
  const auto urgency = [](int signal) { return signal == SIGINT ? 3 : signal == SIGTERM ? 2 : signal == SIGUSR1 ? 1 : 0; };
  int most = 0;
  unsigned char signal = 0;
  while (read(pipe_[0], &signal, 1) == 1) {
    if (urgency(signal) > urgency(most)) most = signal;
  }
  return most;
}

bool Supervisor::Signal(const std::string& name, int signal) {
  const std::optional<pid_t> child = pid(name);
  return child.has_value() && kill(*child, signal) == 0;
}

SupervisorEvent Supervisor::Wait(Time deadline) {
  SupervisorEvent event;
  while (true) {
    ReapAll();
    if (!exited_.empty()) {
      const auto first = std::min_element(
          exited_.begin(), exited_.end(),
          [](const ChildExit& a, const ChildExit& b) { return CauseOrder(a) < CauseOrder(b); });
      event.kind = SupervisorEvent::Kind::kExit;
      event.exit = *first;
      exited_.erase(first);
      return event;
    }
    event.signal = WaitForSignal(deadline);
    if (event.signal != 0) {
      event.kind = SupervisorEvent::Kind::kInterrupt;
      return event;
    }
    if (SteadyNow() >= deadline) {
      ReapAll();
      if (exited_.empty()) return event;
    }
  }
}

void Supervisor::SignalAll(int signal) {
  for (const Child& child : children_) kill(-child.pid, signal);
}

void Supervisor::Terminate(Duration grace) {
  const Time deadline = SteadyNow() + grace;
  SignalAll(SIGTERM);
  for (ReapAll(); !children_.empty() && SteadyNow() < deadline; ReapAll()) {
    const int signal = WaitForSignal(deadline);
    if (signal == SIGINT || signal == SIGTERM) break;  // told twice: at once
  }
  SignalAll(SIGKILL);
  while (!children_.empty()) {
    WaitForSignal(SteadyNow() + std::chrono::seconds(1));
    ReapAll();
  }
  exited_.clear();
}

std::vector<std::string> Supervisor::alive() const {
  std::vector<std::string> names;
  for (const Child& child : children_) names.push_back(child.name);
  return names;
}

std::optional<pid_t> Supervisor::pid(const std::string& name) const {
  for (const Child& child : children_) {
    if (child.name == name) return child.pid;
  }
  return std::nullopt;
}

SupervisedEnd SuperviseUntilEnd(Supervisor* supervisor, Duration tick, const std::function<void()>& on_tick,
                                const std::function<bool(int signal)>& on_signal, Duration grace) {
  SupervisedEnd end;
  bool told = false;
  Time next_tick = SteadyNow() + tick;
  while (true) {
    const SupervisorEvent event = supervisor->Wait(next_tick);
    switch (event.kind) {
      case SupervisorEvent::Kind::kDeadline:
        on_tick();
        next_tick = SteadyNow() + tick;
        continue;
      case SupervisorEvent::Kind::kInterrupt:
        if (event.signal == SIGUSR1) {
          if (on_signal != nullptr) on_signal(event.signal);
          continue;
        }
        if (event.signal == SIGTERM && on_signal != nullptr && !std::exchange(told, true) && on_signal(SIGTERM)) {
          continue;
        }
        end.exit_code = ToInt(ExitCode::kInterrupted);
        end.message = "interrupted";
        break;
      case SupervisorEvent::Kind::kExit:
        if (event.exit.clean()) {
          if (supervisor->alive().empty()) return end;
          continue;
        }
        end.exit_code = event.exit.exit_code;
        end.killed = event.exit.signal != 0;
        end.message = event.exit.ToString();
        break;
    }
    supervisor->Terminate(grace);
    return end;
  }
}

}  // namespace capstan
