#include "scheduler/postponed_frames.h"

#include <utility>

#include "proto/control.pb.h"
#include "proto/control_frame.h"

namespace capstan {
namespace {

size_t BytesOf(const Message& message) { return sizeof(Incoming) + message.body.size(); }

}  // namespace

void PostponedFrames::Take() {
  while (bytes_ < kMaxBytes) {
    std::optional<Incoming> incoming = transport_.Poll(clock_.Now());
    if (!incoming.has_value()) return;
    const FrameHeader& header = incoming->message.header;
    if (header.Kind() == MessageKind::kHeartbeat && header.job == own_.job) {
      FrameHeader reply = own_;
      reply.kind = static_cast<uint16_t>(MessageKind::kHeartbeatReply);
      reply.dst_incarnation = header.src_incarnation;
      outbox_.Send(incoming->from, MakeControl(reply, HeartbeatReply()));
    }
    bytes_ += BytesOf(incoming->message);
    frames_.push_back(*std::move(incoming));
  }
}

void PostponedFrames::Deliver(const std::function<void(PeerId from, Message message, Time now)>& to) {
  while (!frames_.empty()) {
    Incoming next = std::move(frames_.front());
    frames_.pop_front();
    bytes_ -= BytesOf(next.message);
    to(next.from, std::move(next.message), clock_.Now());
  }
}

}  // namespace capstan
