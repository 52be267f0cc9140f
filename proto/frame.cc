#include "proto/frame.h"

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/hash.h"

namespace capstan {
namespace {

struct KindName {
  MessageKind kind;
  std::string_view name;
};

constexpr KindName kKindNames[] = {
    {MessageKind::kPull, "PULL"},
    {MessageKind::kPullReadOnly, "PULL_READONLY"},
    {MessageKind::kRows, "ROWS"},
    {MessageKind::kPush, "PUSH"},
    {MessageKind::kCommit, "COMMIT"},
    {MessageKind::kAck, "ACK"},
    {MessageKind::kNack, "NACK"},
    {MessageKind::kWaiting, "WAITING"},
    {MessageKind::kResendPush, "RESEND_PUSH"},
    {MessageKind::kRecords, "RECORDS"},
    {MessageKind::kFence, "FENCE"},
    {MessageKind::kResolve, "RESOLVE"},
    {MessageKind::kCut, "CUT"},
    {MessageKind::kRollback, "ROLLBACK"},
    {MessageKind::kMap, "MAP"},
    {MessageKind::kJoin, "JOIN"},
    {MessageKind::kJoinReply, "JOIN_REPLY"},
    {MessageKind::kHello, "HELLO"},
    {MessageKind::kHelloReply, "HELLO_REPLY"},
    {MessageKind::kStart, "START"},
    {MessageKind::kStarted, "STARTED"},
    {MessageKind::kHeartbeat, "HEARTBEAT"},
    {MessageKind::kHeartbeatReply, "HEARTBEAT_REPLY"},
    {MessageKind::kLeaseRequest, "LEASE_REQUEST"},
    {MessageKind::kLeaseReply, "LEASE_REPLY"},
    {MessageKind::kLeaseDone, "LEASE_DONE"},
    {MessageKind::kLeaseDoneReply, "LEASE_DONE_REPLY"},
    {MessageKind::kLeaseClose, "LEASE_CLOSE"},
    {MessageKind::kLeaseClosed, "LEASE_CLOSED"},
    {MessageKind::kRankDone, "RANK_DONE"},
    {MessageKind::kRankDoneReply, "RANK_DONE_REPLY"},
    {MessageKind::kEnd, "END"},
    {MessageKind::kBye, "BYE"},
    {MessageKind::kProgress, "PROGRESS"},
    {MessageKind::kFailed, "FAILED"},
    {MessageKind::kCutState, "CUT_STATE"},
    {MessageKind::kCutAbort, "CUT_ABORT"},
};

constexpr size_t kHashedHeaderBytes = offsetof(FrameHeader, header_xxh3);

}  // namespace

std::string_view ToString(MessageKind kind) {
  for (const KindName& row : kKindNames) {
    if (row.kind == kind) return row.name;
  }
  return "UNKNOWN";
}

bool IsKnown(MessageKind kind) { return ToString(kind) != "UNKNOWN"; }

void SealFrame(Message& message) {
  CHECK_LE(message.body.size(), kMaxBodyBytes);
  FrameHeader& header = message.header;
  header.body_len = static_cast<uint32_t>(message.body.size());
  header.body_xxh3 = HashBytes(message.body.data(), message.body.size());
  header.header_xxh3 = HashBytes(&header, kHashedHeaderBytes);
}

absl::StatusOr<FrameHeader> ParseFrameHeader(const void* data, size_t size) {
  if (size != sizeof(FrameHeader)) {
    return DataLoss(fmt::format("a frame header has {} bytes, want {}", size, sizeof(FrameHeader)));
  }
  FrameHeader header;
  std::memcpy(static_cast<void*>(&header), data, sizeof header);
  if (header.magic != kFrameMagic) {
    return DataLoss(
        fmt::format("a frame starts with {:08x}, want {:08x}: the peer does not speak Capstan's protocol",
                    header.magic, kFrameMagic));
  }
  // The version is read before the checksum: another version may place the checksum elsewhere.
  if (header.version != kFrameVersion) {
    return InvalidArgument(
        fmt::format("the peer speaks frame version {}, this process version {}: use one release of "
                    "Capstan on all nodes",
                    header.version, kFrameVersion));
  }
  if (header.header_xxh3 != HashBytes(data, kHashedHeaderBytes)) {
    return DataLoss("a frame header fails its checksum");
  }
  if (!IsKnown(header.Kind())) return InvalidArgument(fmt::format("unknown message kind {}", header.kind));
  if ((header.flags & ~uint32_t{kKnownFlags}) != 0 || header.spare != 0 ||
      header.header_len != sizeof(FrameHeader)) {
    return InvalidArgument(
        fmt::format("{}: unused header bits are set (flags {:08x}, spare {:08x}, header_len {})",
                    ToString(header.Kind()), header.flags, header.spare, header.header_len));
  }
  if (header.body_len > kMaxBodyBytes) {
    return InvalidArgument(fmt::format("{}: a body of {} bytes, the limit is {}", ToString(header.Kind()),
                                       header.body_len, kMaxBodyBytes));
  }
  if (header.part >= header.parts) {
    return InvalidArgument(
        fmt::format("{}: part {} of {}", ToString(header.Kind()), header.part, header.parts));
  }
  return header;
}

absl::Status CheckFrameBody(const FrameHeader& header, const void* body, size_t size) {
  if (size != header.body_len) {
    return DataLoss(fmt::format("{}: the body has {} bytes, the header promises {}", ToString(header.Kind()),
                                size, header.body_len));
  }
  if (HashBytes(body, size) != header.body_xxh3) {
    return DataLoss(fmt::format("{}: the body fails its checksum", ToString(header.Kind())));
  }
  return absl::OkStatus();
}

}  // namespace capstan
