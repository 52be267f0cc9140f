// Frames between the threads of one process: local mode. Bodies are shared, never copied.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace capstan {

namespace inproc_internal {
class Registry;
}

// Where the transports of one process find each other by name (inproc://NAME). Thread-safe. Transports keep
// what they need of it alive.
class InprocHub {
 public:
  InprocHub();
  ~InprocHub();
  InprocHub(const InprocHub&) = delete;
  InprocHub& operator=(const InprocHub&) = delete;

 private:
  friend std::unique_ptr<Transport> NewInprocTransport(InprocHub& hub, const TransportOptions& options);
  std::shared_ptr<inproc_internal::Registry> registry_;
};

// In-flight bytes are those that the receiver has not polled yet. A transport that closes and another that
// binds the same name look like a peer that restarts: frames which the first did not poll are lost, frames
// sent while nobody is bound wait.
std::unique_ptr<Transport> NewInprocTransport(InprocHub& hub, const TransportOptions& options);

}  // namespace capstan
