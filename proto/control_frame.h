// Control messages as frames: one protobuf in the body, its type named by the frame's kind.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/frame.h"

namespace capstan {

// A sealed frame with that header and the serialised message. CHECK-fails over kMaxBodyBytes: use
// SplitControl where a message can be that large.
Message MakeControlFrame(FrameHeader header, const std::string& serialised);

template <typename Proto>
Message MakeControl(const FrameHeader& header, const Proto& proto) {
  return MakeControlFrame(header, proto.SerializeAsString());
}

// Cuts a serialised message into sealed parts of at most kMaxBodyBytes. CHECK-fails above 65535 parts (64
// GiB).
std::vector<Message> SplitControl(FrameHeader header, std::string_view serialised);

// Joins the parts of one control message (START, SAVED). Its sender repeats the same bytes until it is
// answered, so parts of several sendings may be mixed.
class ControlJoiner {
 public:
  explicit ControlJoiner(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // The serialised message once every part is here; the next one begins anew. kInvalidArgument: larger than
  // the limit; nothing is kept then.
  absl::StatusOr<std::optional<std::string>> Add(const Message& part);

 private:
  size_t limit_bytes_;
  std::vector<std::optional<std::string>> parts_;
  size_t missing_ = 0;
};

// kInvalidArgument unless the message came in one part and its body parses as `Proto` (missing fields take
// their defaults; ranges are the caller's).
template <typename Proto>
absl::StatusOr<Proto> ParseControl(const Message& message) {
  Proto proto;
  if (message.header.parts != 1 ||
      !proto.ParseFromArray(message.body.data(), static_cast<int>(message.body.size()))) {
    return InvalidArgument("a control message does not parse");
  }
  return proto;
}

// The largest START: the job with its plan.
inline constexpr size_t kMaxStartBytes = size_t{64} << 20;

// The longest text of a peer that is shown or handed on.
inline constexpr size_t kMaxPeerText = 2048;
// The text of a peer as it may be shown to a person or written to a file: what is no printable UTF-8 becomes
// '?', so that no terminal obeys it; what is beyond the limit is left out.
std::string CleanText(std::string_view text, size_t limit = kMaxPeerText);

}  // namespace capstan
