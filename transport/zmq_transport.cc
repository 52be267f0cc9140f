#include "transport/zmq_transport.h"

#include <malloc.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#include "common/clock.h"
#include "common/random.h"
#include "transport/accepted_peers.h"
#include "transport/endpoint.h"
#include "transport/frame_gate.h"
#include "transport/listening.h"
#include "transport/owner_thread.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;

constexpr int kIoThreads = 2;
constexpr int kMaxSockets = 8192;
// Messages of up to 1 MiB that wait unread for one connection; then its TCP window closes.
constexpr int kReceiveQueueMessages = 64;
constexpr size_t kMaxPartBytes = kMaxBodyBytes + 4096;
// Received bodies up to this size are copied: they sit in a shared 8 KiB receive buffer that would be pinned.
constexpr size_t kCopiedBodyBytes = 1024;
// Frames taken from sockets known to be ready before all sockets are looked at again.
constexpr int kFramesBetweenScans = 64;
constexpr milliseconds kRedialInterval{1000};
constexpr std::chrono::hours kLongestWait{1};
// For sockets closed with frames in flight, see CloseSockets.
constexpr int kShortestDrainMs = 1000, kLongestDrainMs = 2000;

Time SteadyNow() { return SteadyClock().Now(); }

// ----------------------------------------------------------------------------------------------------
// The process: one context, never terminated (terminating waits for every socket, and a second context that
// is closed early can crash libsodium in this version).

void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    LOG(WARNING) << "cannot raise the limit of open files: " << std::strerror(errno);
  }
}

// Without this the allocator maps and unmaps every large receive buffer: page faults then cost more than the
// copy from the socket.
void KeepLargeBlocks() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the highest value that every glibc accepts
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void* MakeContext() {
  RaiseFileLimit();
  KeepLargeBlocks();
  void* const context = zmq_ctx_new();
  CHECK(context != nullptr) << "cannot start ZeroMQ: " << zmq_strerror(zmq_errno());
  CHECK_EQ(zmq_ctx_set(context, ZMQ_IO_THREADS, kIoThreads), 0);
  CHECK_EQ(zmq_ctx_set(context, ZMQ_MAX_SOCKETS, kMaxSockets), 0);
  CHECK_EQ(zmq_ctx_set(context, ZMQ_BLOCKY, 0), 0);
  return context;
}

void* ProcessContext() {
  static void* const context = MakeContext();
  return context;
}

// ----------------------------------------------------------------------------------------------------
// Sockets.

class ZmqSocket {
 public:
  ZmqSocket() = default;
  explicit ZmqSocket(void* handle) : handle_(handle) {}
  ZmqSocket(ZmqSocket&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ZmqSocket& operator=(ZmqSocket&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~ZmqSocket() {
    if (handle_ != nullptr) zmq_close(handle_);
  }

  void* get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

  template <typename T>
  void Set(int option, T value) {
    CHECK_EQ(zmq_setsockopt(handle_, option, &value, sizeof value), 0)
        << "option " << option << ": " << zmq_strerror(zmq_errno());
  }

  // Lets the library do what its threads asked this socket to do, such as dropping a dead connection.
  void RunCommands() const {
    int events = 0;
    size_t size = sizeof events;
    zmq_getsockopt(handle_, ZMQ_EVENTS, &events, &size);
  }

 private:
  void* handle_ = nullptr;
};

// Every socket is made here: options must be set before the first bind or connect.
absl::StatusOr<ZmqSocket> NewZmqSocket(int type) {
  void* const handle = zmq_socket(ProcessContext(), type);
  if (handle == nullptr) {
    return Unavailable(fmt::format("cannot make a socket: {}; raise the limit of open files (ulimit -n)",
                                   zmq_strerror(zmq_errno())));
  }
  ZmqSocket socket(handle);
  socket.Set<int>(ZMQ_LINGER, 0);  // CloseSockets decides
  socket.Set<int64_t>(ZMQ_MAXMSGSIZE, kMaxPartBytes);
  socket.Set<int>(ZMQ_SNDHWM, 0);  // our limit counts bytes, and is checked before anything is queued
  socket.Set<int>(ZMQ_RCVHWM, kReceiveQueueMessages);
  socket.Set<int>(ZMQ_HANDSHAKE_IVL, 2000);
  socket.Set<int>(ZMQ_CONNECT_TIMEOUT, 2000);
  socket.Set<int>(ZMQ_RECONNECT_IVL, 50);
  socket.Set<int>(ZMQ_RECONNECT_IVL_MAX, 1000);
  // Keepalive finds dead hosts. ZeroMQ's own heartbeat is off: it cuts connections whose reader is only slow,
  // since it does not count bytes under way, nor anything while the receive queue is full.
  socket.Set<int>(ZMQ_TCP_KEEPALIVE, 1);
  socket.Set<int>(ZMQ_TCP_KEEPALIVE_IDLE, 10);
  socket.Set<int>(ZMQ_TCP_KEEPALIVE_INTVL, 3);
  socket.Set<int>(ZMQ_TCP_KEEPALIVE_CNT, 3);
  if (type == ZMQ_ROUTER) {
    socket.Set<int>(ZMQ_ROUTER_MANDATORY, 1);  // otherwise frames to a peer that left vanish without an error
    socket.Set<int>(ZMQ_BACKLOG, 1024);
  }
  // ZMQ_IMMEDIATE stays off: frames sent before the peer listens wait, within our limit, in the socket.
  return socket;
}

class MessagePart {
 public:
  MessagePart() { zmq_msg_init(&part_); }
  MessagePart(const MessagePart&) = delete;
  MessagePart& operator=(const MessagePart&) = delete;
  ~MessagePart() { zmq_msg_close(&part_); }

  zmq_msg_t* get() { return &part_; }
  void* data() { return zmq_msg_data(&part_); }
  size_t size() const { return zmq_msg_size(&part_); }
  bool more() const { return zmq_msg_more(&part_) != 0; }

  // False: nothing there.
  bool Receive(void* socket) {
    for (;;) {
      if (zmq_msg_recv(&part_, socket, ZMQ_DONTWAIT) >= 0) return true;
      const int error = zmq_errno();
      if (error == EINTR) continue;
      CHECK_EQ(error, EAGAIN) << "receiving: " << zmq_strerror(error);
      return false;
    }
  }

  // 0 or an errno. On success the library owns the content.
  int Send(void* socket, int flags) {
    for (;;) {
      if (zmq_msg_send(&part_, socket, flags | ZMQ_DONTWAIT) >= 0) return 0;
      if (const int error = zmq_errno(); error != EINTR) return error;
    }
  }

 private:
  zmq_msg_t part_;
};

// ----------------------------------------------------------------------------------------------------
// Zero copy, both ways.

// Thread sanitizer does not see into the library, through whose queues memory changes hands: tell it.
void HandOver([[maybe_unused]] void* memory) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(memory);
#endif
}
void TakeOver([[maybe_unused]] void* memory) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(memory);
#endif
}

// A message while the library holds parts that point into it.
struct Departure {
  std::atomic<int> parts;
  FrameHeader header;
  Buffer body;
  ByteCounter in_flight;
};

// Runs on an I/O thread, or on ours if the part was never taken.
void ReleaseDeparture(void* /*data*/, void* hint) {
  auto* const departure = static_cast<Departure*>(hint);
  TakeOver(departure);
  if (departure->parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const ByteCounter in_flight = std::move(departure->in_flight);
  const size_t bytes = sizeof(FrameHeader) + departure->body.size();
  delete departure;
  in_flight->fetch_sub(bytes, std::memory_order_release);
}

// Counts the message in and makes its parts. `body` stays empty if the message has none.
void PrepareParts(const Message& message, const ByteCounter& in_flight, MessagePart& header,
                  MessagePart& body) {
  auto* const departure = new Departure{.parts = message.body.empty() ? 1 : 2,
                                        .header = message.header,
                                        .body = message.body,
                                        .in_flight = in_flight};
  in_flight->fetch_add(WireBytes(message), std::memory_order_relaxed);
  HandOver(departure);
  CHECK_EQ(
      zmq_msg_init_data(header.get(), &departure->header, sizeof(FrameHeader), &ReleaseDeparture, departure),
      0);
  if (message.body.empty()) return;
  CHECK_EQ(
      zmq_msg_init_data(body.get(), message.body.data(), message.body.size(), &ReleaseDeparture, departure),
      0);
}

void ReleaseArrival(void* argument) {
  auto* const part = static_cast<zmq_msg_t*>(argument);
  zmq_msg_close(part);
  delete part;
}

Buffer TakeBody(MessagePart& part) {
  if (part.size() <= kCopiedBodyBytes) return Buffer::CopyOf(part.data(), part.size());
  auto* const kept = new zmq_msg_t;
  zmq_msg_init(kept);
  zmq_msg_move(kept, part.get());
  return Buffer::Adopt(zmq_msg_data(kept), zmq_msg_size(kept), &ReleaseArrival, kept);
}

// Milliseconds for zmq_poll, rounded up so that a wait never ends early and spins.
long PollTimeout(Time deadline, Time now) {
  if (deadline <= now) return 0;
  const Duration left = std::min<Duration>(deadline - now, kLongestWait);
  return static_cast<long>(std::chrono::ceil<milliseconds>(left).count());
}

class ZmqTransport final : public Transport {
 public:
  explicit ZmqTransport(const TransportOptions& options) : options_(options) {
    wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK_GE(wake_fd_, 0) << "cannot make an eventfd: " << std::strerror(errno);
    poll_items_.push_back({nullptr, wake_fd_, ZMQ_POLLIN, 0});
    ProcessContext();
  }

  ~ZmqTransport() override {
    CloseSockets(0);
    close(wake_fd_);
  }

  absl::StatusOr<std::string> Bind(const std::string& text) override;
  absl::StatusOr<PeerId> Connect(const std::string& text) override;
  absl::Status Send(PeerId to, const Message& message) override;
  std::optional<Incoming> Poll(Time deadline) override;
  void Wake() override;
  size_t InFlightBytes(PeerId peer) const override;
  void Close(Duration linger) override;
  TransportStats stats() const override { return stats_; }

 private:
  struct Dialed {
    ZmqSocket socket;
    std::string endpoint;
    ByteCounter in_flight;
    size_t source = 0;  // index in sources_
    Time dialed_at;
  };
  struct Source {
    void* socket = nullptr;
    PeerId peer = kNoPeer;  // kNoPeer: the router
    bool ready = false;     // queued in ready_
  };
  enum class Receipt { kNothing, kRefused, kFrame };

  absl::StatusOr<std::string> BindRouter(Endpoint endpoint);
  size_t AddSource(void* socket, PeerId peer);
  absl::StatusOr<ZmqSocket> Dial(const std::string& endpoint) const;
  absl::Status SendDialed(Dialed& peer, const Message& message);
  absl::Status SendAccepted(PeerId to, const AcceptedPeers::Peer& peer, const Message& message);
  absl::Status PeerGone(PeerId to);
  bool Redial(Dialed& peer);
  void Scan(long timeout_ms);
  bool TakeWake();
  Receipt Receive(const Source& source, Incoming& incoming);
  bool AnyInFlight() const;
  void CloseSockets(int grace_ms);

  const TransportOptions options_;
  OwnerThread owner_;
  int wake_fd_ = -1;
  bool closed_ = false;
  TransportStats stats_;
  PeerId next_peer_ = 1;

  ZmqSocket router_;
  Endpoint bound_;
  AcceptedPeers accepted_;
  std::unordered_map<PeerId, Dialed> dialed_;
  std::unordered_map<std::string, PeerId> dialed_ids_;

  std::vector<Source> sources_;
  std::vector<zmq_pollitem_t> poll_items_;  // [0] the eventfd, [i + 1] sources_[i]
  std::deque<size_t> ready_;
  int frames_since_scan_ = 0;
};

absl::StatusOr<std::string> ZmqTransport::Bind(const std::string& text) {
  owner_.Check();
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(text));
  if (endpoint.kind == Endpoint::Kind::kInproc) {
    return InvalidArgument(fmt::format("'{}' names a place inside one process; want tcp:// or ipc://", text));
  }
  if (router_) {
    return InvalidArgument(
        fmt::format("cannot bind '{}': this transport is bound to {} already", text, FormatEndpoint(bound_)));
  }
  return BindRouter(endpoint);
}

absl::StatusOr<std::string> ZmqTransport::BindRouter(Endpoint endpoint) {
  CAPSTAN_ASSIGN_OR_RETURN(ZmqSocket socket, NewZmqSocket(ZMQ_ROUTER));
  const auto bind_at = [&](uint16_t port) {
    Endpoint place = endpoint;
    place.port = port;
    return zmq_bind(socket.get(), FormatEndpoint(place).c_str()) == 0 ? 0 : zmq_errno();
  };
  if (endpoint.kind == Endpoint::Kind::kTcp && endpoint.port == 0) {
    SystemRandom random;
    CAPSTAN_ASSIGN_OR_RETURN(endpoint.port, BindFreePort(endpoint.name, random, bind_at));
  } else {
    int error = endpoint.kind == Endpoint::Kind::kIpc ? IpcPathInUse(endpoint.name) : 0;
    if (error == 0) error = bind_at(endpoint.port);
    if (error != 0) {
      return Unavailable(
          fmt::format("cannot listen at {}: {}", FormatEndpoint(endpoint), std::strerror(error)));
    }
  }
  router_ = std::move(socket);
  bound_ = endpoint;
  AddSource(router_.get(), kNoPeer);
  return FormatEndpoint(endpoint);
}

size_t ZmqTransport::AddSource(void* socket, PeerId peer) {
  sources_.push_back({socket, peer, false});
  poll_items_.push_back({socket, 0, ZMQ_POLLIN, 0});
  return sources_.size() - 1;
}

absl::StatusOr<ZmqSocket> ZmqTransport::Dial(const std::string& endpoint) const {
  CAPSTAN_ASSIGN_OR_RETURN(ZmqSocket socket, NewZmqSocket(ZMQ_DEALER));
  if (zmq_connect(socket.get(), endpoint.c_str()) != 0) {
    return Unavailable(fmt::format("cannot dial {}: {}", endpoint, zmq_strerror(zmq_errno())));
  }
  return socket;
}

absl::StatusOr<PeerId> ZmqTransport::Connect(const std::string& text) {
  owner_.Check();
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParsePeerEndpoint(text));
  if (endpoint.kind == Endpoint::Kind::kInproc) {
    return InvalidArgument(fmt::format("'{}' names a place inside one process; want tcp:// or ipc://", text));
  }
  const std::string name = FormatEndpoint(endpoint);
  if (const auto found = dialed_ids_.find(name); found != dialed_ids_.end()) return found->second;
  CAPSTAN_ASSIGN_OR_RETURN(ZmqSocket socket, Dial(name));
  const PeerId id = next_peer_++;
  void* const handle = socket.get();
  dialed_.emplace(id, Dialed{std::move(socket), name, NewByteCounter(), AddSource(handle, id), SteadyNow()});
  dialed_ids_.emplace(name, id);
  return id;
}

absl::Status ZmqTransport::Send(PeerId to, const Message& message) {
  owner_.Check();
  CHECK(!closed_);
  CHECK_EQ(message.header.body_len, message.body.size()) << "the message is not sealed";
  if (const auto dialed = dialed_.find(to); dialed != dialed_.end())
    return SendDialed(dialed->second, message);
  const AcceptedPeers::Peer* const accepted = accepted_.Find(to);
  return accepted != nullptr ? SendAccepted(to, *accepted, message) : PeerGone(to);
}

absl::Status ZmqTransport::PeerGone(PeerId to) {
  ++stats_.peers_gone;
  accepted_.Forget(to);
  return Unavailable("the peer closed its connection");
}

absl::Status ZmqTransport::SendDialed(Dialed& peer, const Message& message) {
  const size_t bytes = WireBytes(message);
  if (!FitsLimit(peer.in_flight->load(std::memory_order_acquire), bytes, options_.inflight_limit_bytes)) {
    return ResourceExhausted("the peer's in-flight limit is reached");
  }
  MessagePart header, body;
  PrepareParts(message, peer.in_flight, header, body);
  const int more = message.body.empty() ? 0 : ZMQ_SNDMORE;
  int error = header.Send(peer.socket.get(), more);
  // Only a socket that gave up on its endpoint refuses: what answered there did not speak the protocol.
  if (error == EAGAIN && Redial(peer)) error = header.Send(peer.socket.get(), more);
  if (error == EAGAIN) return ResourceExhausted("the peer's endpoint does not speak the protocol now");
  CHECK_EQ(error, 0) << "sending: " << zmq_strerror(error);
  if (more != 0) CHECK_EQ(body.Send(peer.socket.get(), 0), 0);
  ++stats_.frames_sent;
  stats_.bytes_sent += bytes;
  return absl::OkStatus();
}

// A new socket for an endpoint, at most once per interval. True if there is one.
bool ZmqTransport::Redial(Dialed& peer) {
  const Time now = SteadyNow();
  if (now - peer.dialed_at < kRedialInterval) return false;
  peer.dialed_at = now;
  absl::StatusOr<ZmqSocket> socket = Dial(peer.endpoint);
  if (!socket.ok()) {
    LOG(WARNING) << socket.status().message();
    return false;
  }
  peer.socket = *std::move(socket);
  sources_[peer.source].socket = peer.socket.get();
  poll_items_[peer.source + 1].socket = peer.socket.get();
  return true;
}

absl::Status ZmqTransport::SendAccepted(PeerId to, const AcceptedPeers::Peer& peer, const Message& message) {
  const size_t bytes = WireBytes(message);
  if (!FitsLimit(peer.in_flight->load(std::memory_order_acquire), bytes, options_.inflight_limit_bytes)) {
    // The counter of a connection that broke falls only once the socket has been told of it.
    router_.RunCommands();
    if (!FitsLimit(peer.in_flight->load(std::memory_order_acquire), bytes, options_.inflight_limit_bytes)) {
      return ResourceExhausted("the peer's in-flight limit is reached");
    }
  }
  int rc = 0;
  do {
    rc = zmq_send(router_.get(), peer.routing_id.data(), peer.routing_id.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  } while (rc < 0 && zmq_errno() == EINTR);
  if (rc < 0) {
    CHECK_EQ(zmq_errno(), EHOSTUNREACH) << "sending: " << zmq_strerror(zmq_errno());
    return PeerGone(to);
  }
  // From here on the message is taken; should the connection break in between, the library drops all of it.
  MessagePart header, body;
  PrepareParts(message, peer.in_flight, header, body);
  CHECK_EQ(header.Send(router_.get(), message.body.empty() ? 0 : ZMQ_SNDMORE), 0);
  if (!message.body.empty()) CHECK_EQ(body.Send(router_.get(), 0), 0);
  ++stats_.frames_sent;
  stats_.bytes_sent += bytes;
  return absl::OkStatus();
}

std::optional<Incoming> ZmqTransport::Poll(Time deadline) {
  owner_.Check();
  CHECK(!closed_);
  for (;;) {
    while (!ready_.empty()) {
      if (++frames_since_scan_ >= kFramesBetweenScans) Scan(0);  // nobody starves behind a busy peer
      const size_t index = ready_.front();
      ready_.pop_front();
      Incoming incoming;
      const Receipt receipt = Receive(sources_[index], incoming);
      sources_[index].ready = receipt != Receipt::kNothing;
      if (sources_[index].ready) ready_.push_back(index);
      if (receipt == Receipt::kFrame) return incoming;
      if (receipt == Receipt::kRefused && SteadyNow() >= deadline) return std::nullopt;
    }
    const Time now = SteadyNow();
    Scan(PollTimeout(deadline, now));
    if (TakeWake()) return std::nullopt;
    if (ready_.empty() && SteadyNow() >= deadline) return std::nullopt;
  }
}

// Waits for sockets with something to read, or for Wake, and queues the sockets as ready.
void ZmqTransport::Scan(long timeout_ms) {
  frames_since_scan_ = 0;
  if (zmq_poll(poll_items_.data(), static_cast<int>(poll_items_.size()), timeout_ms) < 0) {
    CHECK_EQ(zmq_errno(), EINTR) << "waiting: " << zmq_strerror(zmq_errno());
    return;
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    if ((poll_items_[i + 1].revents & ZMQ_POLLIN) == 0 || sources_[i].ready) continue;
    sources_[i].ready = true;
    ready_.push_back(i);
  }
}

bool ZmqTransport::TakeWake() {
  if ((poll_items_[0].revents & ZMQ_POLLIN) == 0) return false;
  uint64_t count = 0;
  return read(wake_fd_, &count, sizeof count) == sizeof count;
}

ZmqTransport::Receipt ZmqTransport::Receive(const Source& source, Incoming& incoming) {
  const bool from_router = source.peer == kNoPeer;
  MessagePart routing_id, header, body;
  if (from_router && !routing_id.Receive(source.socket)) return Receipt::kNothing;
  if (!header.Receive(source.socket)) return from_router ? Receipt::kRefused : Receipt::kNothing;
  bool more = header.more();
  if (more && body.Receive(source.socket)) more = body.more();
  if (more) {
    // Messages arrive whole: the rest is here.
    for (MessagePart rest; more && rest.Receive(source.socket);) more = rest.more();
    RefuseShape(stats_);
    return Receipt::kRefused;
  }
  const std::optional<FrameHeader> admitted =
      AdmitFrame(header.data(), header.size(), body.data(), body.size(), BodyCheck::kFull, stats_);
  if (!admitted.has_value()) return Receipt::kRefused;
  incoming.message.header = *admitted;
  incoming.message.body = TakeBody(body);
  if (from_router) {
    const std::string_view name(static_cast<const char*>(routing_id.data()), routing_id.size());
    incoming.from = accepted_.Heard(name, next_peer_);
    if (incoming.from == next_peer_) ++next_peer_;
  } else {
    incoming.from = source.peer;
  }
  return Receipt::kFrame;
}

void ZmqTransport::Wake() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the wake-up is pending anyway.
  if (write(wake_fd_, &one, sizeof one) < 0) CHECK_EQ(errno, EAGAIN);
}

size_t ZmqTransport::InFlightBytes(PeerId peer) const {
  if (const auto dialed = dialed_.find(peer); dialed != dialed_.end())
    return dialed->second.in_flight->load();
  const AcceptedPeers::Peer* const accepted = accepted_.Find(peer);
  return accepted == nullptr ? 0 : accepted->in_flight->load();
}

bool ZmqTransport::AnyInFlight() const {
  return accepted_.AnyInFlight() || std::any_of(dialed_.begin(), dialed_.end(), [](const auto& entry) {
           return *entry.second.in_flight > 0;
         });
}

void ZmqTransport::Close(Duration linger) {
  owner_.Check();
  if (closed_) return;
  closed_ = true;
  const Time deadline = SteadyNow() + std::clamp<Duration>(linger, Duration::zero(), kLongestWait);
  while (AnyInFlight() && SteadyNow() < deadline) {
    if (router_) router_.RunCommands();
    for (const auto& [id, peer] : dialed_) peer.socket.RunCommands();
    std::this_thread::sleep_for(milliseconds(1));
  }
  // What is counted as on its way may still sit in a write buffer of the library; it gets the rest of the
  // time, in the background.
  const Duration left =
      std::clamp<Duration>(deadline - SteadyNow(), Duration::zero(), std::chrono::seconds(1));
  CloseSockets(static_cast<int>(std::chrono::duration_cast<milliseconds>(left).count()));
}

// Hands all sockets back; those with nothing in flight may take `grace_ms` for their write buffers.
//
// A socket that is told to drop its frames while one is half written aborts the process if the connection
// breaks at that moment (libzmq issue 3442: the session cannot skip the rest of a message that it may no
// longer read), and at the end of a job all sides close at once. So such a socket goes on sending in the
// background for a while, of a random length so that two sides do not end it together.
void ZmqTransport::CloseSockets(int grace_ms) {
  closed_ = true;
  ready_.clear();
  sources_.clear();
  poll_items_.resize(1);
  SystemRandom random;
  const int drain_ms =
      kShortestDrainMs + static_cast<int>(random.Next() % (kLongestDrainMs - kShortestDrainMs));
  for (auto& [id, peer] : dialed_)
    peer.socket.Set<int>(ZMQ_LINGER, *peer.in_flight > 0 ? drain_ms : grace_ms);
  dialed_.clear();
  if (!router_) return;
  router_.Set<int>(ZMQ_LINGER, accepted_.AnyInFlight() ? drain_ms : grace_ms);
  // The library leaves the file behind. While we listen it is ours.
  if (bound_.kind == Endpoint::Kind::kIpc) unlink(bound_.name.c_str());
  router_ = ZmqSocket();
  if (bound_.kind == Endpoint::Kind::kTcp) AwaitPortReleased(bound_);
}

}  // namespace

std::unique_ptr<Transport> NewZmqTransport(const TransportOptions& options) {
  return std::make_unique<ZmqTransport>(options);
}

}  // namespace capstan
