#include "transport/sim_transport.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

#include "transport/endpoint.h"
#include "transport/frame_gate.h"

namespace capstan {

class SimTransport final : public Transport {
 public:
  SimTransport(SimNetwork& network, const TransportOptions& options) : options_(options), network_(network) {}
  ~SimTransport() override { Leave(); }

  absl::StatusOr<std::string> Bind(const std::string& text) override;
  absl::StatusOr<PeerId> Connect(const std::string& text) override;
  absl::Status Send(PeerId to, const Message& message) override;
  std::optional<Incoming> Poll(Time deadline) override;
  void Wake() override { woken_.store(true); }
  size_t InFlightBytes(PeerId peer) const override;
  void Close(Duration linger) override;
  TransportStats stats() const override { return stats_; }

 private:
  friend class SimNetwork;
  using Link = SimNetwork::Link;
  struct Peer {
    std::shared_ptr<Link> link;
    bool is_server = false;  // of this link; we dialed it
  };
  struct Arrival {
    std::shared_ptr<Link> link;
    bool to_server = false;
    Message message;
  };

  PeerId SenderOf(const Arrival& arrival);
  void ForgetClient(const Link* link);
  bool AnyWaiting() const;
  void Leave();

  const TransportOptions options_;
  SimNetwork& network_;
  std::atomic<bool> woken_{false};
  bool closed_ = false;
  TransportStats stats_;
  PeerId next_peer_ = 1;
  std::string bound_;  // empty: not bound
  std::deque<Arrival> arrivals_;
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<std::string, PeerId> dialed_;
  std::unordered_map<const Link*, PeerId> accepted_;
};

SimNetwork::SimNetwork(const SimOptions& options) : options_(options), random_(options.seed) {
  CHECK(options.min_delay <= options.max_delay);
}

SimNetwork::~SimNetwork() = default;

std::unique_ptr<Transport> SimNetwork::NewTransport(const TransportOptions& options) {
  return std::make_unique<SimTransport>(*this, options);
}

bool SimNetwork::Bind(const std::string& endpoint, SimTransport* server) {
  if (!bound_.emplace(endpoint, server).second) return false;
  for (const auto& link : links_) {
    if (link->endpoint == endpoint && link->client != nullptr) Attach(link, server);
  }
  return true;
}

void SimNetwork::Attach(const std::shared_ptr<Link>& link, SimTransport* server) {
  link->server = server;
  ++link->binding;
  for (const Message& message : std::exchange(link->waiting, {})) Launch(link, true, message);
}

std::shared_ptr<SimNetwork::Link> SimNetwork::Dial(const std::string& endpoint, SimTransport* client,
                                                   PeerId peer) {
  const auto link = std::make_shared<Link>();
  link->endpoint = endpoint;
  link->client = client;
  link->client_peer = peer;
  links_.push_back(link);
  if (const auto server = bound_.find(endpoint); server != bound_.end()) Attach(link, server->second);
  return link;
}

void SimNetwork::Leave(SimTransport* transport) {
  std::erase_if(bound_, [transport](const auto& entry) { return entry.second == transport; });
  for (const auto& link : links_) {
    if (link->server == transport) link->server = nullptr;
    if (link->client != transport) continue;
    link->client = nullptr;
    link->waiting.clear();
    if (link->server != nullptr) link->server->ForgetClient(link.get());
  }
  // Frames of a client that left may still be under way to the server.
  std::erase_if(links_, [](const auto& link) { return link->client == nullptr && link->server == nullptr; });
}

// Sends a message that was counted into its link's bytes, if chance lets it.
void SimNetwork::Launch(const std::shared_ptr<Link>& link, bool to_server, const Message& message) {
  if (random_.Unit() < options_.drop_rate) {
    ++dropped_;
    link->Bytes(to_server) -= WireBytes(message);
    return;
  }
  Schedule(link, to_server, message);
  if (random_.Unit() < options_.duplicate_rate) {
    ++duplicated_;
    link->Bytes(to_server) += WireBytes(message);
    Schedule(link, to_server, message);
  }
}

void SimNetwork::Schedule(const std::shared_ptr<Link>& link, bool to_server, const Message& message) {
  const auto spread = static_cast<uint64_t>((options_.max_delay - options_.min_delay).count()) + 1;
  Time due = now_ + options_.min_delay + Duration(static_cast<int64_t>(random_.Below(spread)));
  Time& last = to_server ? link->last_to_server : link->last_to_client;
  if (options_.keep_order) due = std::max(due, last);
  last = std::max(due, last);
  flights_.push({due, launched_++, link, to_server, link->binding, message});
}

bool SimNetwork::Step(Time limit) {
  if (flights_.empty() || flights_.top().due > limit) return false;
  const Flight flight = flights_.top();
  flights_.pop();
  AdvanceTo(flight.due);
  // A frame dies with the server it was sent to; one from such a server still arrives.
  SimTransport* receiver = flight.to_server ? flight.link->server : flight.link->client;
  if (flight.to_server && flight.binding != flight.link->binding) receiver = nullptr;
  if (receiver == nullptr) {
    flight.link->Bytes(flight.to_server) -= WireBytes(flight.message);
  } else {
    receiver->arrivals_.push_back({flight.link, flight.to_server, flight.message});
  }
  return true;
}

namespace {

absl::StatusOr<std::string> SimEndpointName(const std::string& text) {
  CAPSTAN_ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(text));
  if (endpoint.kind != Endpoint::Kind::kInproc) {
    return InvalidArgument(fmt::format("'{}' leads out of the simulation; want inproc://NAME", text));
  }
  return FormatEndpoint(endpoint);
}

}  // namespace

absl::StatusOr<std::string> SimTransport::Bind(const std::string& text) {
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const std::string name, SimEndpointName(text));
  if (!bound_.empty()) {
    return InvalidArgument(
        fmt::format("cannot bind '{}': this transport is bound to {} already", text, bound_));
  }
  if (!network_.Bind(name, this)) {
    return Unavailable(fmt::format("cannot listen at {}: {}", name, std::strerror(EADDRINUSE)));
  }
  bound_ = name;
  return name;
}

absl::StatusOr<PeerId> SimTransport::Connect(const std::string& text) {
  CHECK(!closed_);
  CAPSTAN_ASSIGN_OR_RETURN(const std::string name, SimEndpointName(text));
  if (const auto found = dialed_.find(name); found != dialed_.end()) return found->second;
  const PeerId id = next_peer_++;
  peers_.emplace(id, Peer{network_.Dial(name, this, id), true});
  dialed_.emplace(name, id);
  return id;
}

absl::Status SimTransport::Send(PeerId to, const Message& message) {
  CHECK(!closed_);
  CHECK_EQ(message.header.body_len, message.body.size()) << "the message is not sealed";
  const auto found = peers_.find(to);
  if (found == peers_.end()) {
    ++stats_.peers_gone;
    return Unavailable("the peer closed its connection");
  }
  const auto& [link, is_server] = found->second;
  const size_t bytes = WireBytes(message);
  if (!FitsLimit(link->Bytes(is_server), bytes, options_.inflight_limit_bytes)) {
    return ResourceExhausted("the peer's in-flight limit is reached");
  }
  link->Bytes(is_server) += bytes;
  if (is_server && link->server == nullptr) {
    link->waiting.push_back(message);
  } else {
    network_.Launch(link, is_server, message);
  }
  ++stats_.frames_sent;
  stats_.bytes_sent += bytes;
  return absl::OkStatus();
}

std::optional<Incoming> SimTransport::Poll(Time deadline) {
  CHECK(!closed_);
  for (;;) {
    while (!arrivals_.empty()) {
      const Arrival arrival = std::move(arrivals_.front());
      arrivals_.pop_front();
      const Message& message = arrival.message;
      arrival.link->Bytes(arrival.to_server) -= WireBytes(message);
      if (AdmitFrame(&message.header, sizeof message.header, message.body.data(), message.body.size(),
                     BodyCheck::kSizeOnly, stats_)) {
        return Incoming{SenderOf(arrival), message};
      }
    }
    if (woken_.exchange(false)) return std::nullopt;
    if (network_.Step(deadline)) continue;
    // Waiting for ever for nothing would be a hang; the caller sees that no time has passed.
    if (deadline != Time::max()) network_.AdvanceTo(deadline);
    return std::nullopt;
  }
}

PeerId SimTransport::SenderOf(const Arrival& arrival) {
  if (!arrival.to_server) return arrival.link->client_peer;
  if (arrival.link->client == nullptr) return next_peer_++;  // gone by now: an id that nobody answers to
  const auto [entry, fresh] = accepted_.try_emplace(arrival.link.get(), next_peer_);
  if (fresh) peers_.emplace(next_peer_++, Peer{arrival.link, false});
  return entry->second;
}

void SimTransport::ForgetClient(const Link* link) {
  const auto found = accepted_.find(link);
  if (found == accepted_.end()) return;
  peers_.erase(found->second);
  accepted_.erase(found);
}

size_t SimTransport::InFlightBytes(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? 0 : found->second.link->Bytes(found->second.is_server);
}

bool SimTransport::AnyWaiting() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const auto& entry) { return !entry.second.link->waiting.empty(); });
}

void SimTransport::Close(Duration linger) {
  if (closed_) return;
  const Time deadline = network_.Now() + linger;
  while (AnyWaiting() && network_.Step(deadline)) {
  }
  if (AnyWaiting()) network_.AdvanceTo(deadline);
  Leave();
}

void SimTransport::Leave() {
  if (closed_) return;
  closed_ = true;
  network_.Leave(this);
  for (const Arrival& arrival : arrivals_)
    arrival.link->Bytes(arrival.to_server) -= WireBytes(arrival.message);
  arrivals_.clear();
  peers_.clear();
  dialed_.clear();
  accepted_.clear();
}

}  // namespace capstan
