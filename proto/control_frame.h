// Control messages as frames: one protobuf in the body, its type named by the frame's kind. Include in .cc files only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "proto/frame.h"

namespace capstan {

// A sealed frame with that header and the serialised message. CHECK-fails over kMaxBodyBytes: use SplitControl where
// a message can be that large.
Message MakeControlFrame(FrameHeader header, const std::string& serialised);

template <typename Proto>
Message MakeControl(const FrameHeader& header, const Proto& proto) {
  return MakeControlFrame(header, proto.SerializeAsString());
}

// Cuts a serialised message into sealed parts of at most kMaxBodyBytes.
std::vector<Message> SplitControl(FrameHeader header, std::string_view serialised);

// kInvalidArgument unless the body parses as `Proto` (missing fields take their defaults; ranges are the caller's).
template <typename Proto>
absl::StatusOr<Proto> ParseControl(const Message& message) {
  Proto proto;
  if (!proto.ParseFromArray(message.body.data(), static_cast<int>(message.body.size()))) {
    return InvalidArgument("a control message does not parse");
  }
  return proto;
}

}  // namespace capstan
