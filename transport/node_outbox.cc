#include "transport/node_outbox.h"

#include <utility>

#include <glog/logging.h>

#include "transport/frame_gate.h"

namespace capstan {
namespace {

constexpr int kLoggedDrops = 20;

}  // namespace

PeerId NodeOutbox::Connect(const std::string& endpoint) {
  const absl::StatusOr<PeerId> peer = transport_.Connect(endpoint);
  if (peer.ok()) return *peer;
  LOG(ERROR) << peer.status().message();
  return kNoPeer;
}

void NodeOutbox::Send(PeerId to, Message message) {
  // Behind frames that wait already, also if this one would fit: order is kept.
  if (!pending_.contains(to) && TrySend(to, message)) return;
  const size_t bytes = WireBytes(message);
  if (pending_bytes_ + bytes > pending_limit_bytes_) {
    ++dropped_full_;
    LOG_FIRST_N(ERROR, kLoggedDrops) << "dropped a " << ToString(message.header.Kind())
                                     << " frame: " << pending_bytes_ << " bytes wait for slow peers already";
    return;
  }
  pending_bytes_ += bytes;
  pending_[to].push_back(std::move(message));
}

bool NodeOutbox::TrySend(PeerId to, const Message& message) {
  const absl::Status status = transport_.Send(to, message);
  if (status.ok()) return true;
  if (status.code() == absl::StatusCode::kResourceExhausted) return false;
  ++dropped_gone_;
  VLOG(1) << "dropped a " << ToString(message.header.Kind()) << " frame: " << status.message();
  return true;
}

bool NodeOutbox::Flush() {
  for (auto peer = pending_.begin(); peer != pending_.end();) {
    std::deque<Message>& queue = peer->second;
    while (!queue.empty() && TrySend(peer->first, queue.front())) {
      pending_bytes_ -= WireBytes(queue.front());
      queue.pop_front();
    }
    peer = queue.empty() ? pending_.erase(peer) : std::next(peer);
  }
  return pending_.empty();
}

}  // namespace capstan
