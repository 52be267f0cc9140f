#include "transport/node_loop.h"

#include <algorithm>
#include <utility>

namespace capstan {
namespace {

constexpr Duration kFullPause = std::chrono::milliseconds(1);  // until a full peer is tried again
constexpr int kFramesPerRound = 256;                           // before time is looked at again

}  // namespace

void RunNodeLoop(Transport& transport, NodeOutbox& outbox, const Clock& clock, const NodeHandlers& handlers) {
  Time next_tick = clock.Now();
  while (!handlers.done()) {
    Time now = clock.Now();
    if (now >= next_tick) {
      handlers.on_tick(now);
      next_tick = now + kNodeTick;
    }
    if (handlers.on_wake) handlers.on_wake(now);
    const bool flushed = outbox.Flush();
    Time deadline = flushed ? next_tick : std::min(next_tick, now + kFullPause);
    if (handlers.on_idle) {
      const Duration pause = handlers.on_idle();
      if (pause < kNodeTick) deadline = std::min(deadline, clock.Now() + pause);
    }
    for (int frames = 0; frames < kFramesPerRound; ++frames) {
      std::optional<Incoming> incoming = transport.Poll(deadline);
      if (!incoming.has_value()) break;
      now = clock.Now();
      handlers.on_message(incoming->from, std::move(incoming->message), now);
      if (handlers.done()) break;
      deadline = now;  // the rest only if it is there already
    }
  }
}

void CloseNode(Transport& transport, NodeOutbox& outbox, const Clock& clock, Duration patience) {
  const Time deadline = clock.Now() + patience;
  while (!outbox.Flush() && clock.Now() < deadline) {
    transport.Poll(std::min(deadline, clock.Now() + kFullPause));  // what still comes is of no use any more
  }
  transport.Close(std::max<Duration>(Duration::zero(), deadline - clock.Now()));
}

}  // namespace capstan
