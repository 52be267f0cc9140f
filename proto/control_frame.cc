#include "proto/control_frame.h"

#include <algorithm>

#include <glog/logging.h>

namespace capstan {

Message MakeControlFrame(FrameHeader header, const std::string& serialised) {
  header.sections = 0;
  Message message{header, Buffer::CopyOf(serialised.data(), serialised.size())};
  SealFrame(message);
  return message;
}

std::vector<Message> SplitControl(FrameHeader header, std::string_view serialised) {
  const size_t parts = std::max<size_t>(1, (serialised.size() + kMaxBodyBytes - 1) / kMaxBodyBytes);
  CHECK_LE(parts, size_t{65535});
  std::vector<Message> messages;
  header.sections = 0;
  header.parts = static_cast<uint16_t>(parts);
  for (size_t part = 0; part < parts; ++part) {
    header.part = static_cast<uint16_t>(part);
    const std::string_view bytes = serialised.substr(part * kMaxBodyBytes, kMaxBodyBytes);
    Message message{header, Buffer::CopyOf(bytes.data(), bytes.size())};
    SealFrame(message);
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace capstan
