// What a core may ask of the network. Real nodes put a Transport behind it, the simulator its own wires; the core
// sees neither. Calls never block.
#pragma once

#include <string>

#include "common/types.h"
#include "proto/frame.h"

namespace capstan {

class Outbox {
 public:
  virtual ~Outbox() = default;
  // The peer of an endpoint, connecting if need be. Always succeeds for a well-formed endpoint; kNoPeer otherwise.
  virtual PeerId Connect(const std::string& endpoint) = 0;
  // Sends sealed frames. A frame that does not fit now is kept and sent later in order; a frame to a peer that
  // is gone is dropped: every request is repeated by its sender until it is answered.
  virtual void Send(PeerId to, Message message) = 0;
};

}  // namespace capstan
