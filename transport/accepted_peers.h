// Connections that others made to our endpoint: by our id, and by the routing id of the socket.
#pragma once

#include <algorithm>
#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/types.h"

namespace capstan {

// Bytes in flight to one peer. Outlives the transport: I/O threads count down.
using ByteCounter = std::shared_ptr<std::atomic<size_t>>;

inline ByteCounter NewByteCounter() { return std::make_shared<std::atomic<size_t>>(0); }

class AcceptedPeers {
 public:
  // More connections than a process has file descriptors for; beyond it the one silent for longest is
  // forgotten, since not every connection that closes is noticed.
  static constexpr size_t kLimit = 65536;

  struct Peer {
    std::string routing_id;
    ByteCounter in_flight;
    std::list<PeerId>::iterator heard;
  };

  // The peer of a routing id, which was heard of just now; `fresh` becomes its id if it is new.
  PeerId Heard(std::string_view routing_id, PeerId fresh) {
    const auto found = ids_.find(std::string(routing_id));
    if (found != ids_.end()) {
      order_.splice(order_.end(), order_, peers_.at(found->second).heard);
      return found->second;
    }
    if (peers_.size() >= kLimit) Forget(order_.front());
    Peer peer{std::string(routing_id), NewByteCounter(), order_.insert(order_.end(), fresh)};
    ids_.emplace(peer.routing_id, fresh);
    peers_.emplace(fresh, std::move(peer));
    return fresh;
  }

  const Peer* Find(PeerId id) const {
    const auto found = peers_.find(id);
    return found == peers_.end() ? nullptr : &found->second;
  }

  void Forget(PeerId id) {
    const auto found = peers_.find(id);
    if (found == peers_.end()) return;
    ids_.erase(found->second.routing_id);
    order_.erase(found->second.heard);
    peers_.erase(found);
  }

  bool AnyInFlight() const {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& entry) { return *entry.second.in_flight > 0; });
  }

 private:
  std::unordered_map<PeerId, Peer> peers_;
  std::unordered_map<std::string, PeerId> ids_;
  std::list<PeerId> order_;  // silent for longest first
};

}  // namespace capstan
