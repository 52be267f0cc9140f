#include "tests/integration/process_group.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <glog/logging.h>

extern char** environ;

namespace capstan::testing {
namespace {

constexpr int kLookMilliseconds = 5;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<char*> PointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& more) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : more) entries.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (more.count(text.substr(0, text.find('='))) == 0) entries.push_back(text);
  }
  return entries;
}

// The parent and the state of a process; the name in between may hold anything, also ')'.
bool ReadStat(pid_t pid, pid_t* parent, char* state) {
  const std::string stat = Contents(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos &&
         std::sscanf(stat.c_str() + name_end + 1, " %c %d", state, parent) == 2;
}

}  // namespace

bool Eventually(Seconds limit, const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(nullptr, 0, kLookMilliseconds);
  }
  return true;
}

std::vector<pid_t> ChildrenOf(pid_t wanted) {
  std::vector<pid_t> children;
  DIR* const proc = opendir("/proc");
  CHECK(proc != nullptr);
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    pid_t parent = 0;
    char state = 0;
    if (pid > 0 && ReadStat(pid, &parent, &state) && parent == wanted && state != 'Z')
      children.push_back(pid);
  }
  closedir(proc);
  return children;
}

std::string CommandLineOf(pid_t pid) {
  std::string line = Contents(fmt::format("/proc/{}/cmdline", pid));
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

ProcessGroup::ProcessGroup(std::string folder) : folder_(std::move(folder)) {
  PCHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
}

ProcessGroup::~ProcessGroup() { KillAll(); }

void ProcessGroup::Start(const std::string& name, const std::vector<std::string>& argv,
                         const std::map<std::string, std::string>& environment) {
  CHECK_EQ(processes_.count(name), 0u) << name;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&actions, 2, err_path(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addchdir_np(&actions, folder_.c_str());
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // a Ctrl-C for the test is not one for them
  std::vector<std::string> words = argv, variables = EnvironmentWith(environment);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, PointersTo(words).data(),
                                PointersTo(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  CHECK_EQ(error, 0) << argv[0] << ": " << std::strerror(error);
  processes_[name].pid = pid;
}

void ProcessGroup::Reap() {
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    for (auto& [name, process] : processes_) {
      if (process.pid != pid || process.end.has_value()) continue;
      ProcessEnd end;
      if (WIFEXITED(status)) end.code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
      process.end = end;
    }
  }
}

std::optional<ProcessEnd> ProcessGroup::Wait(const std::string& name, Seconds limit) {
  const Process& process = processes_.at(name);
  Eventually(limit, [&] {
    Reap();
    return process.end.has_value();
  });
  return process.end;
}

bool ProcessGroup::Running(const std::string& name) {
  Reap();
  return !processes_.at(name).end.has_value();
}

void ProcessGroup::Signal(const std::string& name, int signal) {
  if (Running(name)) kill(pid(name), signal);  // not reaped yet, so the number is still its own
}

pid_t ProcessGroup::pid(const std::string& name) const { return processes_.at(name).pid; }
std::string ProcessGroup::out(const std::string& name) const { return Contents(out_path(name)); }
std::string ProcessGroup::err(const std::string& name) const { return Contents(err_path(name)); }

std::vector<std::string> ProcessGroup::Leftovers(Seconds limit) {
  std::vector<pid_t> alive;
  Eventually(limit, [&] {
    Reap();
    alive = ChildrenOf(getpid());
    return alive.empty();
  });
  std::vector<std::string> lines;
  for (const pid_t pid : alive) lines.push_back(fmt::format("{}: {}", pid, CommandLineOf(pid)));
  return lines;
}

void ProcessGroup::KillAll() {
  // Killing one makes its children ours, so look again until there is nobody.
  const bool gone = Eventually(Seconds(10), [this] {
    for (const pid_t child : ChildrenOf(getpid())) kill(child, SIGKILL);
    Reap();
    return ChildrenOf(getpid()).empty();
  });
  LOG_IF(ERROR, !gone) << "a process survives SIGKILL";
}

}  // namespace capstan::testing
