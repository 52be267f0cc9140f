#include "ps/writer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>

#include "proto/checkpoint.pb.h"
#include "ps/writer_channel.h"

extern char** environ;

namespace capstan {
namespace {

constexpr size_t kPieceBytes = size_t{128} << 10;   // of an order or a record
constexpr int kFirstSpareFd = 10;                   // ours lie above those that the writer finds its own at
constexpr int kGentleEndMs = 3000;
constexpr int kKilledEndMs = 3000;

std::span<const std::byte> AsBytes(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

std::string WriterText(const SnapshotOrder& order) {
  WriterOrder proto;
  proto.set_id(order.id);
  proto.set_shard(order.shard);
  proto.set_folder(order.folder);
  proto.set_parent_folder(order.parent_folder);
  proto.set_model_sha256(order.model_sha256);
  proto.set_expected_bytes(order.expected_bytes);
  for (const SnapshotOrder::Table& table : order.tables) {
    WriterOrder::Table* const entry = proto.add_table();
    entry->set_id(table.id);
    entry->set_floats(table.floats);
  }
  return proto.SerializeAsString();
}

// The descriptors of one start: closed here whatever happens, but for those that were taken.
struct StartFds {
  std::array<int, 2> ends = {-1, -1};
  int high = -1;
  ~StartFds() {
    for (const int fd : {ends[0], ends[1], high})
      if (fd >= 0) close(fd);
  }
};

class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    // The signals a terminal or a script sends to a whole group are the server's to judge. They are blocked from the
    // very start: the writer lives long enough to ignore them.
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : WriterBlockedSignals()) sigaddset(&blocked, signal);
    sigset_t defaults;
    sigfillset(&defaults);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  // Both lie at kFirstSpareFd or above. Everything else of ours stays out, also what somebody left inheritable.
  void Give(int channel, int ring) {
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, channel, kWriterChannelFd);
    posix_spawn_file_actions_adddup2(&actions_, ring, kWriterRingFd);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kWriterRingFd + 1);
  }
  int Spawn(std::vector<std::string> words, pid_t* pid) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return posix_spawn(pid, argv[0], &actions_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Waits for the end of `pid` and reaps it. False: it has not ended in time.
bool ReapWithin(pid_t pid, int milliseconds) {
  // Not pidfd_open(): glibc 2.36 declares that with C++ linkage.
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process >= 0) {
    struct pollfd wait = {process, POLLIN, 0};
    while (poll(&wait, 1, milliseconds) < 0 && errno == EINTR) {
    }
    close(process);
  }
  const pid_t got = waitpid(pid, nullptr, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

std::string HowItEnded(pid_t pid, int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("the checkpoint writer (pid {}) was killed by signal {} ({})", pid, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("the checkpoint writer (pid {}) ended with exit code {}", pid, WEXITSTATUS(status));
}

}  // namespace

WriterProcess::WriterProcess(std::string program, const WriterProcessOptions& options)
    : program_(std::move(program)), options_(options) {}

absl::StatusOr<std::unique_ptr<WriterProcess>> WriterProcess::Start(const std::string& program,
                                                                    const WriterProcessOptions& options) {
  std::unique_ptr<WriterProcess> writer(new WriterProcess(program, options));
  CAPSTAN_RETURN_IF_ERROR(writer->Spawn());
  return writer;
}

WriterProcess::~WriterProcess() { End(); }

absl::Status WriterProcess::Spawn() {
  CAPSTAN_ASSIGN_OR_RETURN(ring_, SnapshotRing::Create(options_.ring_bytes));
  StartFds fds;
  const auto error = [&](std::string_view doing, int code) {
    const std::string text =
        fmt::format("starting the checkpoint writer '{}': {}: {}", program_, doing, std::strerror(code));
    return code == ENOENT ? NotFound(text) : Unavailable(text);
  };
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds.ends.data()) != 0) {
    return error("making a channel", errno);
  }
  fds.high = fcntl(fds.ends[1], F_DUPFD_CLOEXEC, kFirstSpareFd);
  const int ring = fcntl(ring_->fd(), F_DUPFD_CLOEXEC, kFirstSpareFd);
  if (fds.high < 0 || ring < 0) {
    const int code = errno;
    if (ring >= 0) close(ring);
    return error("making room for its descriptors", code);
  }
  SpawnSetup setup;
  setup.Give(fds.high, ring);
  pid_t pid = -1;
  const int code = setup.Spawn({program_, fmt::format("--channel_fd={}", kWriterChannelFd),
                                fmt::format("--ring_fd={}", kWriterRingFd), fmt::format("--server_pid={}", getpid()),
                                fmt::format("--sync={}", options_.sync ? "true" : "false"),
                                fmt::format("--reserve_bytes={}", options_.reserve_bytes),
                                fmt::format("--compact_layers={}", options_.compact_layers)},
                               &pid);
  close(ring);
  if (code != 0) return error("running it", code);
  pid_ = pid;
  channel_ = std::exchange(fds.ends[0], -1);
  closed_ = false;
  return absl::OkStatus();
}

void WriterProcess::CloseChannel() {
  if (channel_ >= 0) close(channel_);
  channel_ = -1;
}

void WriterProcess::End() {
  CloseChannel();
  if (pid_ < 0) return;
  if (!ReapWithin(pid_, kGentleEndMs)) {
    kill(pid_, SIGKILL);
    if (!ReapWithin(pid_, kKilledEndMs)) LOG(WARNING) << "the checkpoint writer (pid " << pid_ << ") does not end";
  }
  pid_ = -1;
}

void WriterProcess::Begin(const SnapshotOrder& order) {
  CHECK(!active_) << "Begin of snapshot " << order.id << " before the result of " << order_id_;
  active_ = true;
  finished_ = false;
  result_.reset();
  queue_waits_ = false;
  order_id_ = order.id;
  ++snapshot_;
  ReceiveAnswers();  // of snapshots that were given up; and notices that the writer died since
  LookForDeath();
  if (pid_ >= 0 && closed_) End();  // it closed its channel and still has not ended
  if (pid_ < 0) {
    if (absl::Status status = Spawn(); !status.ok()) return Fail(status);
  }
  Queue(RingKind::kOrder, WriterText(order));
  FlushQueue();
}

void WriterProcess::Queue(RingKind kind, std::string bytes) {
  queued_kind_ = kind;
  queued_ = std::move(bytes);
  queued_sent_ = 0;
  queue_waits_ = true;
}

// Pieces, because a record may be larger than the ring. True: all of it is in the ring.
bool WriterProcess::FlushQueue() {
  while (queue_waits_) {
    const size_t size = std::min(kPieceBytes, queued_.size() - queued_sent_);
    RingRecord record;
    record.kind = queued_kind_;
    record.last = queued_sent_ + size == queued_.size() ? 1 : 0;
    record.snapshot = snapshot_;
    const std::span<const std::byte> piece = AsBytes(queued_.data() + queued_sent_, size);
    if (!ring_->TryWrite(record, {&piece, 1})) break;
    queued_sent_ += size;
    queue_waits_ = record.last == 0;
    WakeWriter();
  }
  return !queue_waits_;
}

void WriterProcess::WakeWriter() {
  if (!ring_->TakeSleeper()) return;
  const char wake = 1;
  // A full channel wakes it as well; a closed one is noticed by Poll.
  if (send(channel_, &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EPIPE) closed_ = true;
}

bool WriterProcess::Offer(const SnapshotChunk& chunk) {
  CHECK(chunk.rows.size() + chunk.deleted.size_bytes() <= kMaxChunkBytes) << "a chunk above the limit";
  if (!active_ || finished_ || result_ || closed_ || !FlushQueue()) return false;
  RingChunk head;
  head.table = chunk.table;
  head.partition = chunk.partition;
  head.floats = chunk.floats;
  head.last = chunk.last ? 1 : 0;
  head.partition_rows = chunk.partition_rows;
  head.digest_low = chunk.digest.low;
  head.digest_high = chunk.digest.high;
  head.row_bytes = chunk.rows.size();
  head.deleted_keys = chunk.deleted.size();
  RingRecord record;
  record.kind = RingKind::kChunk;
  record.snapshot = snapshot_;
  const std::array<std::span<const std::byte>, 3> pieces = {AsBytes(&head, sizeof(head)), chunk.rows,
                                                            std::as_bytes(chunk.deleted)};
  if (!ring_->TryWrite(record, pieces)) return false;
  WakeWriter();
  return true;
}

bool WriterProcess::Finish(const ShardRecord& record) {
  if (!active_ || finished_ || result_ || closed_ || !FlushQueue()) return false;
  finished_ = true;
  Queue(RingKind::kRecord, record.SerializeAsString());
  FlushQueue();  // the rest follows with Poll
  return true;
}

void WriterProcess::Abort() {
  active_ = false;
  result_.reset();
  queue_waits_ = false;
  if (channel_ < 0) return;
  ring_->SetAborted(snapshot_);
  WakeWriter();
}

std::optional<SnapshotResult> WriterProcess::Poll() {
  ReceiveAnswers();
  if (active_ && !result_) LookForDeath();
  if (!active_) return std::nullopt;
  if (result_) {
    active_ = false;
    return std::exchange(result_, std::nullopt);
  }
  if (!closed_) FlushQueue();
  return std::nullopt;
}

void WriterProcess::ReceiveAnswers() {
  std::array<char, kMaxAnswerBytes> packet;
  while (channel_ >= 0 && !closed_) {
    const ssize_t got = recv(channel_, packet.data(), packet.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      closed_ = true;
      return;
    }
    WriterAnswer answer;
    if (!answer.ParseFromArray(packet.data(), static_cast<int>(got)) || answer.snapshot() != snapshot_ || !active_) {
      continue;
    }
    SnapshotResult result;
    result.id = order_id_;
    result.status = absl::Status(static_cast<absl::StatusCode>(answer.code()), answer.message());
    result.record_bytes = answer.record_bytes();
    result.record_xxh3 = answer.record_xxh3();
    result_ = std::move(result);
    queue_waits_ = false;
  }
}

// Only our child is asked for: others of the server are not ours to reap.
void WriterProcess::LookForDeath() {
  if (pid_ < 0 || !closed_) return;
  int status = 0;
  const pid_t got = waitpid(pid_, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return;  // about to end: the next look finds it
  const std::string how = got < 0 ? fmt::format("the checkpoint writer (pid {}) ended", pid_) : HowItEnded(pid_, status);
  pid_ = -1;
  CloseChannel();
  LOG(WARNING) << how;
  if (active_ && !result_) {
    Fail(Unavailable(how + "; its messages are in the server's log, the next checkpoint starts a new one"));
  }
}

void WriterProcess::Fail(const absl::Status& status) {
  queue_waits_ = false;
  result_ = SnapshotResult{order_id_, status, 0, ""};
}

}  // namespace capstan
