// Frames between nodes. Three implementations keep one contract (tests/contract): ZeroMQ (tcp, ipc), in-process
// (local mode), and simulated (tests).
//
// An instance belongs to one thread; only Wake may be called from others. A transport may bind one endpoint
// (then any number of peers reach it) and connect to any number of endpoints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "common/types.h"
#include "proto/frame.h"

namespace capstan {

struct Incoming {
  PeerId from = kNoPeer;  // answer by sending to it
  Message message;        // header and body passed their checks
};

struct TransportStats {
  uint64_t frames_sent = 0, bytes_sent = 0;
  uint64_t frames_received = 0, bytes_received = 0;
  uint64_t refused_corrupt = 0;   // magic, checksum, length, unknown kind or flags
  uint64_t refused_oversize = 0;  // by the body limit
  uint64_t refused_version = 0;
  uint64_t peers_gone = 0;        // sends to a peer whose connection is gone
};

struct TransportOptions {
  // Bytes handed to Send and not yet on their way, per peer.
  size_t inflight_limit_bytes = size_t{64} << 20;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Endpoints: tcp://IP:PORT, ipc://PATH, inproc://NAME. Port 0 takes a free one below 32768. Returns the bound
  // endpoint with the real port. Fails (kUnavailable) with the address and the reason, for example a port in use.
  virtual absl::StatusOr<std::string> Bind(const std::string& endpoint) = 0;

  // Never blocks and succeeds before anybody listens; repeated calls return the same peer. Fails
  // (kInvalidArgument) on an endpoint of another kind than this transport's.
  virtual absl::StatusOr<PeerId> Connect(const std::string& endpoint) = 0;

  // Takes over the message, which must be sealed. Order is kept per peer. OK means queued, not delivered: a peer
  // that restarts may lose what was under way. kResourceExhausted: the peer's in-flight limit is reached and
  // nothing was queued. kUnavailable: the peer is gone for good (a connection accepted by Bind that closed).
  virtual absl::Status Send(PeerId to, const Message& message) = 0;

  // The next frame, or nothing once `deadline` has passed or Wake was called. Never returns a frame that failed
  // a check: those are counted.
  virtual std::optional<Incoming> Poll(Time deadline) = 0;

  // Makes a Poll that waits, or the next one, return. Thread-safe; cheap.
  virtual void Wake() = 0;

  // Bytes queued for `peer` and not yet on their way.
  virtual size_t InFlightBytes(PeerId peer) const = 0;

  // Sends what is queued for at most `linger`, then drops the rest and closes. Ends within linger + 1 s whatever
  // the peers do. After it only the destructor may be called.
  virtual void Close(Duration linger) = 0;

  virtual TransportStats stats() const = 0;
};

}  // namespace capstan
