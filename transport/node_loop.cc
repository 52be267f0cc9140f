#include "transport/node_loop.h"

#include <algorithm>
#include <utility>

namespace capstan {
namespace {

constexpr Duration kFullPause = std::chrono::milliseconds(1);  // until a full peer is tried again
constexpr Duration kSliceInterval = std::chrono::milliseconds(5);  // of work beside messages, while those keep coming
constexpr int kFramesPerRound = 256;                           // before time is looked at again

}  // namespace

void RunNodeLoop(Transport& transport, NodeOutbox& outbox, const Clock& clock, const NodeHandlers& handlers) {
  Time next_tick = clock.Now();
  Time next_slice = next_tick;  // at the latest, however many messages come
  Time earliest_slice = next_tick;
  bool quiet = true;            // no message came in the last round
  while (!handlers.done()) {
    Time now = clock.Now();
    if (now >= next_tick) {
      handlers.on_tick(now);
      next_tick = now + kNodeTick;
    }
    if (handlers.on_wake) handlers.on_wake(now);
    const bool flushed = outbox.Flush();
    Time deadline = flushed ? next_tick : std::min(next_tick, now + kFullPause);
    if (handlers.on_idle && now < earliest_slice) {
      deadline = std::min(deadline, earliest_slice);
    } else if (handlers.on_idle && (quiet || now >= next_slice)) {
      const Duration pause = handlers.on_idle();
      now = clock.Now();
      next_slice = pause < Duration::zero() ? now : now + kSliceInterval;
      earliest_slice = pause < kNodeTick ? now + pause : now;
      if (pause < kNodeTick) deadline = std::min(deadline, std::max(now, earliest_slice));
    } else if (handlers.on_idle) {
      deadline = std::min(deadline, now);  // look for more frames; with none there is time for a slice
    }
    quiet = true;
    for (int frames = 0; frames < kFramesPerRound; ++frames) {
      std::optional<Incoming> incoming = transport.Poll(deadline);
      if (!incoming.has_value()) break;
      quiet = false;
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
