// Child processes that start together and end together: each has a name and a log file, the first one that
// fails is the cause, and none outlives the launcher, however it ends.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "common/status.h"
#include "common/types.h"

namespace capstan {

struct ChildSpec {
  std::string name;               // for messages, for example "server-0"; unique
  std::vector<std::string> argv;  // argv[0] is the path of the program
  std::string log_path;           // stdout and stderr are appended to it
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  int exit_code_if_killed = 1;  // what its loss means for the job, for example 201 for a server
};

struct ChildExit {
  std::string name;
  int exit_code = 0;  // its own; if it was killed, the spec's exit_code_if_killed
  int signal = 0;     // the signal that killed it, or 0
  std::string log_path;

  bool clean() const { return signal == 0 && exit_code == 0; }
  // "server-0 exited with code 3; see runs/x/logs/server-0.log", "… was killed by signal 9 (Killed); …"
  std::string ToString() const;
};

// What ended a wait. At most one thing is told per call.
struct SupervisorEvent {
  enum class Kind { kExit, kInterrupt, kDeadline };
  Kind kind = Kind::kDeadline;
  ChildExit exit;  // kExit
  int signal = 0;  // kInterrupt: which came, SIGINT before SIGTERM before SIGUSR1
};

// Use from one thread, the one that lives longest: the kernel kills the children when the thread that started
// them ends. At most one Supervisor at a time in a process: while it lives, SIGCHLD, SIGINT and SIGTERM of
// the process (and SIGUSR1), in whatever thread they arrive, come to it; afterwards they do what they did before.
class Supervisor {
 public:
  static absl::StatusOr<std::unique_ptr<Supervisor>> Make();
  ~Supervisor();  // Terminate, without grace

  // Starts a child in a process group of its own, so that Ctrl-C on the terminal reaches the launcher alone.
  // kNotFound: no such program; kUnavailable: the system refuses, or the log cannot be written.
  absl::Status Spawn(const ChildSpec& spec);

  // Waits, without using the CPU, for a child's end, SIGINT or SIGTERM, or the deadline. Of several children
  // that ended since the last call the likeliest cause is told first: killed by a signal, then failed by
  // itself, then failed because another one was lost (codes 200, 201, 205), then clean.
  SupervisorEvent Wait(Time deadline);

  // Sends SIGTERM to all that are left, SIGKILL after `grace` or at a second SIGINT or SIGTERM, and returns
  // once all are gone. Their ends are not told.
  void Terminate(Duration grace);

  // Sends a signal to one child. False: it is not alive.
  bool Signal(const std::string& name, int signal);

  std::vector<std::string> alive() const;  // names
  std::optional<pid_t> pid(const std::string& name) const;

 private:
  struct Child {
    std::string name;
    std::string log_path;
    int exit_code_if_killed = 1;
    pid_t pid = -1;
  };
  Supervisor() = default;
  void ReapAll();
  int WaitForSignal(Time deadline);  // the most urgent that came besides SIGCHLD; 0: none
  void SignalAll(int signal);

  int pipe_[2] = {-1, -1};  // the handler writes numbers of signals
  std::vector<std::pair<int, struct sigaction>> old_actions_;
  std::vector<Child> children_;    // alive
  std::vector<ChildExit> exited_;  // not told yet
};

// Runs until every child has ended. on_tick is called about every `tick`.
struct SupervisedEnd {
  int exit_code = 0;    // of the first cause; 130 after an interrupt
  bool killed = false;  // the cause is a child that a signal ended
  std::string message;  // empty if all ended with 0
};
inline constexpr Duration kTerminateGrace = std::chrono::seconds(3);
// on_signal (may be empty): true where the children see to it and supervision goes on. A second SIGTERM, and SIGINT,
// always end it; SIGUSR1 never does.
SupervisedEnd SuperviseUntilEnd(Supervisor* supervisor, Duration tick, const std::function<void()>& on_tick,
                                const std::function<bool(int signal)>& on_signal = nullptr,
                                Duration grace = kTerminateGrace);

}  // namespace capstan
