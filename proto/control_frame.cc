#include "proto/control_frame.h"

#include <algorithm>

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan {
namespace {

// Bytes of the printable UTF-8 character (RFC 3629) that the text starts with; 0: it starts with none.
size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const uint32_t first = byte(0);
  if (first < 0x80) return first < 0x20 || first == 0x7f ? 0 : 1;
  const size_t length = first >= 0xf5 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool control = code < 0xa0;  // C1
  return code < kSmallest[length] || code > 0x10ffff || surrogate || control ? 0 : length;
}

}  // namespace

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

absl::StatusOr<std::optional<std::string>> ControlJoiner::Add(const Message& part) {
  const FrameHeader& header = part.header;
  if (size_t{header.parts} > limit_bytes_ / kMaxBodyBytes + 1 || header.part >= header.parts) {
    return InvalidArgument(fmt::format("part {} of {} of a message of at most {} bytes", header.part,
                                       header.parts, limit_bytes_));
  }
  if (parts_.size() != header.parts) {
    parts_.assign(header.parts, std::nullopt);
    missing_ = header.parts;
  }
  std::optional<std::string>& place = parts_[header.part];
  if (!place.has_value()) --missing_;
  place.emplace(reinterpret_cast<const char*>(part.body.data()), part.body.size());
  if (missing_ > 0) return std::optional<std::string>();
  std::string whole;
  for (const std::optional<std::string>& bytes : parts_) whole += *bytes;
  parts_.clear();
  return std::optional<std::string>(std::move(whole));
}

std::string CleanText(std::string_view text, size_t limit) {
  const std::string_view shown = text.substr(0, limit);
  std::string clean;
  for (size_t at = 0; at < shown.size();) {
    const size_t length = CharacterLength(shown.substr(at));
    if (length == 0) {
      clean += '?';
      ++at;
    } else {
      clean += shown.substr(at, length);
      at += length;
    }
  }
  if (text.size() > limit) clean += "...";
  return clean;
}

}  // namespace capstan
