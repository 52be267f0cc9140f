#include "tools/launcher/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "tools/launcher/supervisor.h"

extern char** environ;

namespace capstan {
namespace {

std::vector<std::string> MergedEnvironment(const ChildSpec& spec) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) merged[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : spec.environment) merged[name] = value;
  std::vector<std::string> entries;
  for (const auto& [name, value] : merged) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child between fork and exec: only calls that are safe there, no allocation. Tells errno and
// ends when something fails.
[[noreturn]] void BecomeChild(char* const* argv, char* const* environment, int log_fd, int null_fd,
                              int error_fd, pid_t parent, const sigset_t& mask) {
  setpgid(0, 0);
  struct sigaction default_action = {};
  default_action.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP})
    sigaction(signal, &default_action, nullptr);
  // The parent may be gone already; then nobody would send the signal that is asked for here.
  const bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
                     dup2(log_fd, STDOUT_FILENO) >= 0 && dup2(log_fd, STDERR_FILENO) >= 0 &&
                     sigprocmask(SIG_SETMASK, &mask, nullptr) == 0;
  if (getppid() != parent) _exit(127);
  if (ready) execve(argv[0], argv, environment);
  const int error = errno;
  const ssize_t written = write(error_fd, &error, sizeof(error));
  _exit(written == sizeof(error) ? 127 : 126);
}

absl::Status SpawnError(const ChildSpec& spec, std::string_view doing, const std::string& path, int error) {
  const std::string text =
      fmt::format("starting {}: {} '{}': {}", spec.name, doing, path, std::strerror(error));
  return error == ENOENT ? NotFound(text) : Unavailable(text);
}

// Closes at the end of a scope.
struct FdHolder {
  explicit FdHolder(int number) : fd(number) {}
  ~FdHolder() {
    if (fd >= 0) close(fd);
  }
  FdHolder(const FdHolder&) = delete;
  FdHolder& operator=(const FdHolder&) = delete;
  int fd;
};

}  // namespace

// fork, not posix_spawn: the child must ask to be killed with us, and only it can. The launcher is a small
// process, so fork's copy of the page tables costs nothing.
absl::StatusOr<pid_t> SpawnProcess(const ChildSpec& spec) {
  const FdHolder log(open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log.fd < 0) return SpawnError(spec, "opening the log", spec.log_path, errno);
  const FdHolder null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.fd < 0) return SpawnError(spec, "opening", "/dev/null", errno);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SpawnError(spec, "making a pipe for", spec.argv[0], errno);
  const FdHolder read_end(ends[0]);
  std::vector<std::string> arguments = spec.argv;
  std::vector<std::string> entries = MergedEnvironment(spec);
  const std::vector<char*> argv = Pointers(&arguments);
  const std::vector<char*> environment = Pointers(&entries);
  const pid_t parent = getpid();
  pid_t child = -1;
  {
    const FdHolder write_end(ends[1]);
    // No signal may reach the child while it still has our handlers: they would tell the parent.
    sigset_t all;
    sigset_t mask;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask);
    child = fork();
    if (child == 0) {
      BecomeChild(argv.data(), environment.data(), log.fd, null.fd, write_end.fd, parent, mask);
    }
    const int fork_error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (child < 0) return SpawnError(spec, "forking for", spec.argv[0], fork_error);
  }
  setpgid(child, child);  // both sides set it: whoever comes first
  // The pipe closes at a successful exec, and carries errno otherwise.
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(read_end.fd, &error, sizeof(error));
  } while (got < 0 && errno == EINTR);
  if (got == 0) return child;
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return SpawnError(spec, "running", spec.argv[0], got == sizeof(error) ? error : EIO);
}

}  // namespace capstan
