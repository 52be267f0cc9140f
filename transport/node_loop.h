// The event loop around a core: frames in, time in, frames out. The core decides; the loop only carries.
#pragma once

#include <functional>

#include "common/clock.h"
#include "transport/node_outbox.h"
#include "transport/transport.h"

namespace capstan {

struct NodeHandlers {
  std::function<void(PeerId from, Message message, Time now)> on_message;
  std::function<void(Time now)> on_tick;
  std::function<void(Time now)> on_wake;  // after every poll, for work that other threads queued; may be empty
  std::function<bool()> done;
  // Work beside the messages, a slice a call, when no message waits and now and then besides; may be empty. Returns how
  // long the next slice has to wait at least (kNodeTick or more: there was nothing to do, so that it need not); less than
  // zero: it does not wait for a quiet moment.
  std::function<Duration()> on_idle;
};

inline constexpr Duration kNodeTick = std::chrono::milliseconds(20);

// Runs until done() holds. Call on the transport's thread.
void RunNodeLoop(Transport& transport, NodeOutbox& outbox, const Clock& clock, const NodeHandlers& handlers);

// Keeps sending what is queued for at most `patience`, then closes the transport.
void CloseNode(Transport& transport, NodeOutbox& outbox, const Clock& clock, Duration patience);

}  // namespace capstan
