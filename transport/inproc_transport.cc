#include "transport/inproc_transport.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/clock.h"
#include "transport/endpoint.h"
#include "transport/frame_gate.h"
#include "transport/owner_thread.h"

namespace capstan {
namespace inproc_internal {

struct Link;

// One delivery. A notice carries no frame: the client of the link is gone.
struct Mail {
  std::shared_ptr<Link> link;
  bool to_server = false;
  bool notice = false;
  Message message;
};

class Mailbox {
 public:
  // False: closed, nothing was taken.
  bool Push(Mail mail) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      mail_.push_back(std::move(mail));
    }
    changed_.notify_one();
    return true;
  }

  // The oldest mail, or nothing at the deadline or after Wake.
  std::optional<Mail> Pop(Time deadline) {
    std::unique_lock lock(mutex_);
    const auto due = [this] { return !mail_.empty() || woken_; };
    if (deadline == Time::max()) {
      changed_.wait(lock, due);
    } else if (!due()) {
      changed_.wait_until(lock, deadline, due);
    }
    if (mail_.empty()) {
      woken_ = false;
      return std::nullopt;
    }
    Mail mail = std::move(mail_.front());
    mail_.pop_front();
    return mail;
  }

  void Wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
  }

  // Refuses mail from now on and returns what nobody polled.
  std::deque<Mail> Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(mail_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Mail> mail_;
  bool woken_ = false;
  bool closed_ = false;
};

// One client's connection to one name; outlives every server bound there. Locks are taken in the order hub,
// link, mailbox.
struct Link {
  Link(std::string name, std::shared_ptr<Mailbox> box, PeerId id)
      : endpoint(std::move(name)), client(std::move(box)), client_peer(id) {}

  const std::string endpoint;
  const std::shared_ptr<Mailbox> client;
  const PeerId client_peer;  // what the client calls the server
  std::atomic<size_t> to_server_bytes{0};
  std::atomic<size_t> to_client_bytes{0};

  std::atomic<size_t>& Bytes(bool to_server) { return to_server ? to_server_bytes : to_client_bytes; }

  std::mutex mutex;
  std::condition_variable attached;
  std::shared_ptr<Mailbox> server;  // guarded by mutex; null while nobody is bound
  std::deque<Message> waiting;      // guarded by mutex; not empty only while `server` is null
};

void CountOut(const Mail& mail) {
  if (!mail.notice)
    mail.link->Bytes(mail.to_server).fetch_sub(WireBytes(mail.message), std::memory_order_relaxed);
}

void AttachServer(const std::shared_ptr<Link>& link, const std::shared_ptr<Mailbox>& server) {
  std::lock_guard lock(link->mutex);
  link->server = server;
  while (!link->waiting.empty()) {
    server->Push({link, true, false, std::move(link->waiting.front())});
    link->waiting.pop_front();
  }
  link->attached.notify_all();
}

class Registry {
 public:
  // False: somebody is bound there.
  bool Bind(const std::string& endpoint, const std::shared_ptr<Mailbox>& box) {
    std::lock_guard lock(mutex_);
    Place& place = places_[endpoint];
    if (place.bound != nullptr) return false;
    place.bound = box;
    for (const auto& link : place.links) AttachServer(link, box);
    return true;
  }

  void Unbind(const std::string& endpoint) {
    std::lock_guard lock(mutex_);
    Place& place = places_[endpoint];
    place.bound = nullptr;
    for (const auto& link : place.links) {
      std::lock_guard link_lock(link->mutex);
      link->server = nullptr;
    }
    if (place.links.empty()) places_.erase(endpoint);
  }

  void Add(const std::shared_ptr<Link>& link) {
    std::lock_guard lock(mutex_);
    Place& place = places_[link->endpoint];
    place.links.push_back(link);
    if (place.bound != nullptr) AttachServer(link, place.bound);
  }

  // Drops what waits on the link and tells the server that its client is gone.
  void Remove(const std::shared_ptr<Link>& link) {
    std::lock_guard lock(mutex_);
    Place& place = places_[link->endpoint];
    std::erase(place.links, link);
    {
      std::lock_guard link_lock(link->mutex);
      link->waiting.clear();
      if (link->server != nullptr) link->server->Push({link, true, true, {}});
      link->server = nullptr;
    }
    if (place.links.empty() && place.bound == nullptr) places_.erase(link->endpoint);
  }

 private:
  struct Place {
    std::shared_ptr<Mailbox> bound;
    std::vector<std::shared_ptr<Link>> links;
  };
  std::mutex mutex_;
  std::map<std::string, Place> places_;  // guarded by mutex_
};

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<Registry> registry, const TransportOptions& options)
      : options_(options), registry_(std::move(registry)) {}
  ~InprocTransport() override { Leave(); }

  absl::StatusOr<std::string> Bind(const std::string& text) override;
  absl::StatusOr<PeerId> Connect(const std::string& text) override;
  absl::Status Send(PeerId to, const Message& message) override;
  std::optional<Incoming> Poll(Time deadline) override;
  void Wake() override { mailbox_->Wake(); }
  size_t InFlightBytes(PeerId peer) const override;
  void Close(Duration linger) override;
  TransportStats stats() const override { return stats_; }

 private:
  struct Peer {
    std::shared_ptr<Link> link;
    bool is_server = false;  // of this link; we dialed it
  };

  static bool Deliver(const Peer& peer, const Message& message);
  PeerId SenderOf(const Mail& mail);
  void Forget(const Link* link);
  void Leave();

  const TransportOptions options_;
  const std::shared_ptr<Registry> registry_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  OwnerThread owner_;
  bool closed_ = false;
  TransportStats stats_;
  PeerId next_peer_ = 1;
  std::string bound_;  // empty: not bound
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<std::string, PeerId> dialed_;
  std::unordered_map<const Link*, PeerId> accepted_;
};

absl::StatusOr<Endpoint> ParseInproc(const std::string& text) {
  CAPSTAN_ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
  if (endpoint.kind != Endpoint::Kind::kInproc) {
    return InvalidArgument(fmt::format("'{}' leads out of this process; want inproc://NAME", text));
  }
  return endpoint;
}

absl::StatusOr<std::string> InprocTransport::Bind(const std::string& text) {
  owner_.Check();
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseInproc(text));
  const std::string name = FormatEndpoint(endpoint);
  if (!bound_.empty()) {
    return InvalidArgument(
        fmt::format("cannot bind '{}': this transport is bound to {} already", text, bound_));
  }
  if (!registry_->Bind(name, mailbox_)) {
    return Unavailable(fmt::format("cannot listen at {}: {}", name, std::strerror(EADDRINUSE)));
  }
  bound_ = name;
  return name;
}

absl::StatusOr<PeerId> InprocTransport::Connect(const std::string& text) {
  owner_.Check();
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseInproc(text));
  const std::string name = FormatEndpoint(endpoint);
  if (const auto found = dialed_.find(name); found != dialed_.end()) return found->second;
  const PeerId id = next_peer_++;
  const auto link = std::make_shared<Link>(name, mailbox_, id);
  registry_->Add(link);
  dialed_.emplace(name, id);
  peers_.emplace(id, Peer{link, true});
  return id;
}

// False: the peer is gone.
bool InprocTransport::Deliver(const Peer& peer, const Message& message) {
  Link& link = *peer.link;
  std::atomic<size_t>& in_flight = link.Bytes(peer.is_server);
  const size_t bytes = WireBytes(message);
  in_flight.fetch_add(bytes, std::memory_order_relaxed);
  if (!peer.is_server) {
    if (link.client->Push({peer.link, false, false, message})) return true;
    in_flight.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  std::lock_guard lock(link.mutex);
  if (link.server == nullptr) {
    link.waiting.push_back(message);
  } else {
    // Never refused: a server that closes leaves the link first.
    CHECK(link.server->Push({peer.link, true, false, message}));
  }
  return true;
}

absl::Status InprocTransport::Send(PeerId to, const Message& message) {
  owner_.Check();
  CHECK(!closed_);
  CHECK_EQ(message.header.body_len, message.body.size()) << "the message is not sealed";
  const auto found = peers_.find(to);
  if (found != peers_.end()) {
    const Peer& peer = found->second;
    const size_t bytes = WireBytes(message);
    if (!FitsLimit(peer.link->Bytes(peer.is_server).load(), bytes, options_.inflight_limit_bytes)) {
      return ResourceExhausted("the peer's in-flight limit is reached");
    }
    if (Deliver(peer, message)) {
      ++stats_.frames_sent;
      stats_.bytes_sent += bytes;
      return absl::OkStatus();
    }
    Forget(peer.link.get());
  }
  ++stats_.peers_gone;
  return Unavailable("the peer closed its connection");
}

std::optional<Incoming> InprocTransport::Poll(Time deadline) {
  owner_.Check();
  CHECK(!closed_);
  while (std::optional<Mail> mail = mailbox_->Pop(deadline)) {
    CountOut(*mail);
    if (mail->notice) {
      Forget(mail->link.get());
      continue;
    }
    Message& message = mail->message;
    if (!AdmitFrame(&message.header, sizeof message.header, message.body.data(), message.body.size(),
                    BodyCheck::kSizeOnly, stats_)) {
      continue;
    }
    return Incoming{SenderOf(*mail), std::move(message)};
  }
  return std::nullopt;
}

PeerId InprocTransport::SenderOf(const Mail& mail) {
  if (!mail.to_server) return mail.link->client_peer;
  const auto [entry, fresh] = accepted_.try_emplace(mail.link.get(), next_peer_);
  if (fresh) peers_.emplace(next_peer_++, Peer{mail.link, false});
  return entry->second;
}

// Of an accepted link whose client is gone.
void InprocTransport::Forget(const Link* link) {
  const auto found = accepted_.find(link);
  if (found == accepted_.end()) return;
  const PeerId id = found->second;
  accepted_.erase(found);
  peers_.erase(id);
}

size_t InprocTransport::InFlightBytes(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second.link->Bytes(found->second.is_server).load();
}

void InprocTransport::Close(Duration linger) {
  owner_.Check();
  if (closed_) return;
  const Time deadline =
      SteadyClock().Now() + std::clamp<Duration>(linger, Duration::zero(), std::chrono::hours(1));
  for (const auto& [name, id] : dialed_) {
    Link& link = *peers_.at(id).link;
    std::unique_lock lock(link.mutex);
    link.attached.wait_until(lock, deadline, [&link] { return link.waiting.empty(); });
  }
  Leave();
}

void InprocTransport::Leave() {
  if (closed_) return;
  closed_ = true;
  for (const auto& [name, id] : dialed_) registry_->Remove(peers_.at(id).link);
  if (!bound_.empty()) registry_->Unbind(bound_);
  for (const Mail& mail : mailbox_->Close()) CountOut(mail);
  accepted_.clear();
  dialed_.clear();
  peers_.clear();
}

}  // namespace inproc_internal

InprocHub::InprocHub() : registry_(std::make_shared<inproc_internal::Registry>()) {}
InprocHub::~InprocHub() = default;

std::unique_ptr<Transport> NewInprocTransport(InprocHub& hub, const TransportOptions& options) {
  return std::make_unique<inproc_internal::InprocTransport>(hub.registry_, options);
}

}  // namespace capstan
