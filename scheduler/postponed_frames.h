// Frames that arrive while the scheduler's core waits for the disk: heartbeats are answered at once, everything is handed
// to the core afterwards, in order. On the loop's thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "common/clock.h"
#include "transport/outbox.h"
#include "transport/transport.h"

namespace capstan {

class PostponedFrames {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // beyond them frames wait in the transport

  // own: job and incarnation of the scheduler, as in the headers that it sends. All outlive it.
  PostponedFrames(Transport& transport, Outbox& outbox, const Clock& clock, const FrameHeader& own)
      : transport_(transport), outbox_(outbox), clock_(clock), own_(own) {}

  // Takes what has arrived.
  void Take();
  // Hands over what was taken, also what is taken meanwhile.
  void Deliver(const std::function<void(PeerId from, Message message, Time now)>& to);

 private:
  Transport& transport_;
  Outbox& outbox_;
  const Clock& clock_;
  const FrameHeader own_;
  std::deque<Incoming> frames_;
  size_t bytes_ = 0;
};

}  // namespace capstan
