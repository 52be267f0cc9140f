// Real processes under a test: started with their output in files, waited for with a deadline, and all gone
// afterwards.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace capstan::testing {

using Seconds = std::chrono::duration<double>;

// Looks every few milliseconds whether `holds`; true as soon as it does, false after `limit`.
bool Eventually(Seconds limit, const std::function<bool()>& holds);

struct ProcessEnd {
  int code = -1;   // exit code, -1 if a signal ended it
  int signal = 0;  // or which one
};

// The living children of a process, read from /proc.
std::vector<pid_t> ChildrenOf(pid_t parent);
// The command line of a process with spaces between the words; empty once it is gone.
std::string CommandLineOf(pid_t pid);

// One at a time in a test program: it adopts what its processes leave behind, so that nothing can escape. One
// thread.
class ProcessGroup {
 public:
  // Output goes to FOLDER/NAME.out and FOLDER/NAME.err.
  explicit ProcessGroup(std::string folder);
  ~ProcessGroup();  // kills whatever still runs
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Starts argv[0] (a path) in FOLDER, with these variables on top of this process's environment. CHECK-fails
  // if it cannot be started; names are unique.
  void Start(const std::string& name, const std::vector<std::string>& argv,
             const std::map<std::string, std::string>& environment = {});
  // Nothing if it still runs after `limit`.
  std::optional<ProcessEnd> Wait(const std::string& name, Seconds limit);
  bool Running(const std::string& name);
  void Signal(const std::string& name, int signal);
  pid_t pid(const std::string& name) const;
  std::string out(const std::string& name) const;
  std::string err(const std::string& name) const;
  std::string out_path(const std::string& name) const { return folder_ + "/" + name + ".out"; }
  std::string err_path(const std::string& name) const { return folder_ + "/" + name + ".err"; }

  // The processes that still live after `limit`, ours and those that ours left behind; empty if all are gone.
  std::vector<std::string> Leftovers(Seconds limit);

 private:
  struct Process {
    pid_t pid = -1;
    std::optional<ProcessEnd> end;
  };
  void Reap();
  void KillAll();

  const std::string folder_;
  std::map<std::string, Process> processes_;
};

}  // namespace capstan::testing
