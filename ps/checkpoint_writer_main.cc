// capstan-checkpoint-writer: writes one shard's part of the checkpoints. A server starts it; see ps/writer_process.h.
#include <fcntl.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "ps/writer_channel.h"
#include "ps/writer_loop.h"
#include "tools/flags.h"

DEFINE_int32(channel_fd, -1, "Descriptor of the socket to the server.");
DEFINE_int32(ring_fd, -1, "Descriptor of the memory shared with the server.");
DEFINE_int32(server_pid, 0, "Process id of the server; the writer ends with it.");
DEFINE_bool(sync, true, "Whether files and folders reach the disk before a checkpoint counts as written.");
DEFINE_uint64(reserve_bytes, 64u << 20, "Stay free on the disk besides what a checkpoint needs. Unit: bytes.");
DEFINE_uint32(compact_layers, 8, "A chain of so many layers is merged in the background. 0: never.");

namespace capstan {
namespace {

constexpr int kStopMs = 1000;  // for removing what is not finished, once the server is gone
constexpr int kIoPriorityProcess = 1;
constexpr int kIoPriorityLowest = (2 << 13) | 7;  // the last of the best-effort class

// Training's reads and writes come first, and if memory runs out the writer goes before its server. Neither is worth
// failing for.
void StepBack() {
  syscall(SYS_ioprio_set, kIoPriorityProcess, 0, kIoPriorityLowest);
  constexpr std::string_view kScore = "500";
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, kScore.data(), kScore.size()) < 0) PLOG(WARNING) << "oom_score_adj";
  close(fd);
}

// The signals stay blocked in every thread (they were from the start) and are ignored, but for the one that is read.
int SignalsOfServerThread() {
  sigset_t blocked;
  sigset_t read;
  sigemptyset(&blocked);
  sigemptyset(&read);
  for (const int signal : WriterBlockedSignals()) sigaddset(&blocked, signal);
  sigaddset(&read, kServerThreadEnded);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  for (const int ignored : WriterBlockedSignals()) {
    if (ignored != kServerThreadEnded) signal(ignored, SIG_IGN);
  }
  signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK);
}

// Waits for the end of the server: its end of the channel closes; and, in case somebody else holds that open, the
// kernel's signal. That comes at the end of the *thread* that started us: then the server may well live.
void WatchServer(int channel, int signals, pid_t server) {
  std::array<struct pollfd, 2> waits = {{{channel, 0, 0}, {signals, POLLIN, 0}}};
  while (getppid() == server) {
    poll(waits.data(), waits.size(), -1);
    if ((waits[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) return;
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof(info)) < 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

int RunWriter(const CommandLine&) {
  if (FLAGS_channel_fd < 0 || FLAGS_ring_fd < 0 || FLAGS_server_pid <= 0) {
    fmt::print(stderr, "capstan-checkpoint-writer is started by capstan-ps, not by hand\n");
    return 2;
  }
  const int signals = SignalsOfServerThread();
  prctl(PR_SET_PDEATHSIG, kServerThreadEnded);
  if (getppid() != FLAGS_server_pid) return 0;  // it ended before we asked for the signal
  StepBack();
  absl::StatusOr<std::unique_ptr<SnapshotRing>> ring = SnapshotRing::Attach(FLAGS_ring_fd);
  if (!ring.ok()) {
    LOG(ERROR) << ring.status();
    return 2;
  }
  SnapshotWriterOptions options;
  options.sync = FLAGS_sync;
  options.reserve_bytes = FLAGS_reserve_bytes;
  options.compact_layers = FLAGS_compact_layers;
  WriterLoop loop(*std::move(ring), FLAGS_channel_fd, options);
  std::thread([&loop, signals] {
    WatchServer(FLAGS_channel_fd, signals, FLAGS_server_pid);
    loop.AskToStop();
    shutdown(FLAGS_channel_fd, SHUT_RDWR);  // wakes the loop
    poll(nullptr, 0, kStopMs);
    _exit(0);  // it hangs in the disk: nobody waits for it any more
  }).detach();
  _exit(loop.Run());  // without destructors: the watcher may be looking at the loop
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  capstan::Command command;
  command.name = "capstan-checkpoint-writer";
  command.summary = "writes a shard's part of the checkpoints; started by capstan-ps";
  command.flags = {"channel_fd", "ring_fd", "server_pid", "sync", "reserve_bytes", "compact_layers"};
  command.run = capstan::RunWriter;
  FLAGS_logtostderr = true;  // the server's
  google::InitGoogleLogging(argv[0]);
  return capstan::RunCommand(command, argc, argv);
}
