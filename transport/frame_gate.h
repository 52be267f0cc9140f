// The door through which every received frame comes in, whatever carried it.
#pragma once

#include <cstddef>
#include <optional>

#include "proto/frame.h"
#include "transport/transport.h"

namespace capstan {

enum class BodyCheck {
  kFull,      // length and checksum
  kSizeOnly,  // the bytes never left this process
};

// The header of a frame that passed its checks. Otherwise nothing; the refusal is counted in `stats` and the
// first ones of a process are logged with the reason.
std::optional<FrameHeader> AdmitFrame(const void* header, size_t header_bytes, const void* body,
                                      size_t body_bytes, BodyCheck check, TransportStats& stats);

// A message of a wrong number of frames.
void RefuseShape(TransportStats& stats);

inline size_t WireBytes(const Message& message) { return sizeof(FrameHeader) + message.body.size(); }

// May `bytes` more be queued? A frame larger than the limit may go alone: it could never go otherwise.
inline bool FitsLimit(size_t in_flight, size_t bytes, size_t limit) {
  return in_flight == 0 || in_flight + bytes <= limit;
}

}  // namespace capstan
