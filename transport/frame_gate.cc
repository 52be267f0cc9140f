#include "transport/frame_gate.h"

#include <cstring>

#include <glog/logging.h>

namespace capstan {
namespace {

constexpr int kLoggedRefusals = 20;

// Which counter a frame refused with `code` belongs to. The frame failed a check, so this only sorts.
uint64_t& RefusalCounter(absl::StatusCode code, const void* header, size_t header_bytes, size_t body_bytes,
                         TransportStats& stats) {
  if (body_bytes > kMaxBodyBytes) return stats.refused_oversize;
  // kDataLoss: the checksum failed, so no field of the header says anything.
  if (code != absl::StatusCode::kInvalidArgument || header_bytes != sizeof(FrameHeader)) {
    return stats.refused_corrupt;
  }
  FrameHeader seen;
  std::memcpy(static_cast<void*>(&seen), header, sizeof seen);
  if (seen.version != kFrameVersion) return stats.refused_version;
  return seen.body_len > kMaxBodyBytes ? stats.refused_oversize : stats.refused_corrupt;
}

}  // namespace

std::optional<FrameHeader> AdmitFrame(const void* header, size_t header_bytes, const void* body,
                                      size_t body_bytes, BodyCheck check, TransportStats& stats) {
  absl::StatusOr<FrameHeader> parsed = ParseFrameHeader(header, header_bytes);
  absl::Status status = parsed.status();
  if (status.ok() && check == BodyCheck::kFull) status = CheckFrameBody(*parsed, body, body_bytes);
  if (status.ok() && body_bytes != parsed->body_len) {
    status = DataLoss("the body does not have the length that the header promises");
  }
  if (status.ok()) {
    ++stats.frames_received;
    stats.bytes_received += header_bytes + body_bytes;
    return *parsed;
  }
  ++RefusalCounter(status.code(), header, header_bytes, body_bytes, stats);
  LOG_FIRST_N(WARNING, kLoggedRefusals) << "refused a frame: " << status.message();
  return std::nullopt;
}

void RefuseShape(TransportStats& stats) {
  ++stats.refused_corrupt;
  LOG_FIRST_N(WARNING, kLoggedRefusals) << "refused a message that is not a header and at most one body";
}

}  // namespace capstan
