// The outbox of a real node: a Transport, and the frames that did not fit into it yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "transport/outbox.h"
#include "transport/transport.h"

namespace capstan {

// Belongs to the transport's thread. A node calls Flush in its loop, and polls with a short deadline as long
// as pending_bytes() is not 0.
class NodeOutbox final : public Outbox {
 public:
  // Frames beyond the limit are dropped like those to a peer that is gone, and counted; a node that watches
  // pending_bytes() never gets there.
  static constexpr size_t kDefaultPendingLimit = size_t{1} << 30;

  // `transport` must outlive the outbox.
  explicit NodeOutbox(Transport& transport, size_t pending_limit_bytes = kDefaultPendingLimit)
      : transport_(transport), pending_limit_bytes_(pending_limit_bytes) {}

  PeerId Connect(const std::string& endpoint) override;
  void Send(PeerId to, Message message) override;

  // Sends what fits by now. True: nothing is left.
  bool Flush();

  // Bytes that wait for room in the transport, over all peers.
  size_t pending_bytes() const { return pending_bytes_; }
  uint64_t dropped_gone() const { return dropped_gone_; }  // the peer closed its connection
  uint64_t dropped_full() const { return dropped_full_; }  // beyond the limit

 private:
  // False: no room, the message is still the caller's.
  bool TrySend(PeerId to, const Message& message);

  Transport& transport_;
  const size_t pending_limit_bytes_;
  size_t pending_bytes_ = 0;
  uint64_t dropped_gone_ = 0, dropped_full_ = 0;
  std::map<PeerId, std::deque<Message>> pending_;  // no empty queues
};

}  // namespace capstan
