// The bytes between nodes: a fixed 128-byte header, then a body of sections. FORMAT.md is the reference.
// Little-endian; unused bits are 0 and checked. Headers are read by memcpy: a transport may hand them over at
// any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "common/buffer.h"
#include "common/status.h"
#include "common/types.h"

namespace capstan {

inline constexpr uint32_t kFrameMagic = 0x4e505343;  // "CSPN"
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr size_t kMaxBodyBytes = size_t{1} << 20;       // a frame never carries more
inline constexpr size_t kTargetPartBytes = size_t{512} << 10;  // parts are cut at about this size

enum class MessageKind : uint16_t {
  kNone = 0,
  // Data plane.
  kPull = 1,          // keys → kRows at version `step`, naming the rank's `done`
  kPullReadOnly = 2,  // no rank, minimum version
  kRows = 3,          // the answer to one part of a pull
  kPush = 4,
  kCommit = 5,   // stand-alone, acknowledged; also enters and leaves the ssp minimum (flags)
  kAck = 6,      // of a push or commit
  kNack = 7,     // body: Nack
  kWaiting = 8,  // to a parked pull, each second, with the missing ranks
  kResendPush = 9,
  kRecords = 10,  // whole rows in checkpoint form
  kFence = 11,
  kResolve = 12,
  kCut = 13,
  kRollback = 14,
  kMap = 15,
  // Control plane: the body is one protobuf of control.proto.
  kJoin = 64,
  kJoinReply = 65,
  kHello = 66,  // the scheduler dials back to each shard
  kHelloReply = 67,
  kStart = 68,
  kStarted = 69,
  kHeartbeat = 70,
  kHeartbeatReply = 71,
  kLeaseRequest = 72,
  kLeaseReply = 73,
  kLeaseDone = 74,
  kLeaseDoneReply = 75,
  kLeaseClose = 76,  // scheduler → shard
  kLeaseClosed = 77,
  kRankDone = 78,
  kRankDoneReply = 79,
  kEnd = 82,  // scheduler → everybody: the job is over (well or not)
  kBye = 83,
  kProgress = 84,  // home shard → scheduler
  kFailed = 85,    // node → scheduler: it cannot go on
  kCutState = 86,  // shard → scheduler: how far a CUT is
  kCutAbort = 87,  // scheduler → shard: give it up
};

std::string_view ToString(MessageKind kind);
bool IsKnown(MessageKind kind);

enum FrameFlags : uint32_t {
  kFlagEnd = 1u << 0,      // push: this rank has no more data in this epoch
  kFlagEnter = 1u << 1,    // commit: the rank enters the ssp minimum
  kFlagLeave = 1u << 2,    // commit: the rank leaves it
  kFlagJobDone = 1u << 3,  // rows: the job is done, no step follows
  kFlagExtra = 1u << 4,    // pull: repeats `done`, commits nothing
  kKnownFlags = (1u << 5) - 1,
};

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  uint16_t kind = 0;
  uint32_t flags = 0;
  uint16_t header_len = 128;
  uint16_t sections = 0;
  uint64_t job = 0;
  uint32_t src_node = kNoNode;
  uint32_t src_incarnation = 0;
  uint32_t dst_incarnation = 0;  // 0 = not known yet
  uint32_t generation = 0;
  uint32_t map_epoch = 0;
  uint32_t rank = kNoRank;
  uint32_t rank_term = 0;
  uint16_t part = 0;
  uint16_t parts = 1;
  uint64_t request = 0;  // repeated by the answer
  uint64_t step = 0;
  uint64_t done = 0;
  uint64_t lease = 0;
  uint64_t lsn = 0;  // number of the last operation of the answering shard
  uint32_t credit = 0;
  uint32_t deadline_ms = 0;
  uint32_t body_len = 0;
  uint32_t spare = 0;
  uint64_t body_xxh3 = 0;
  uint64_t header_xxh3 = 0;  // of the 120 bytes before it

  MessageKind Kind() const { return static_cast<MessageKind>(kind); }
};

static_assert(sizeof(FrameHeader) == 128, "changing this breaks running clusters");
static_assert(offsetof(FrameHeader, version) == 4);
static_assert(offsetof(FrameHeader, kind) == 6);
static_assert(offsetof(FrameHeader, flags) == 8);
static_assert(offsetof(FrameHeader, header_len) == 12);
static_assert(offsetof(FrameHeader, sections) == 14);
static_assert(offsetof(FrameHeader, job) == 16);
static_assert(offsetof(FrameHeader, src_node) == 24);
static_assert(offsetof(FrameHeader, src_incarnation) == 28);
static_assert(offsetof(FrameHeader, dst_incarnation) == 32);
static_assert(offsetof(FrameHeader, generation) == 36);
static_assert(offsetof(FrameHeader, map_epoch) == 40);
static_assert(offsetof(FrameHeader, rank) == 44);
static_assert(offsetof(FrameHeader, rank_term) == 48);
static_assert(offsetof(FrameHeader, part) == 52);
static_assert(offsetof(FrameHeader, parts) == 54);
static_assert(offsetof(FrameHeader, request) == 56);
static_assert(offsetof(FrameHeader, step) == 64);
static_assert(offsetof(FrameHeader, done) == 72);
static_assert(offsetof(FrameHeader, lease) == 80);
static_assert(offsetof(FrameHeader, lsn) == 88);
static_assert(offsetof(FrameHeader, credit) == 96);
static_assert(offsetof(FrameHeader, deadline_ms) == 100);
static_assert(offsetof(FrameHeader, body_len) == 104);
static_assert(offsetof(FrameHeader, spare) == 108);
static_assert(offsetof(FrameHeader, body_xxh3) == 112);
static_assert(offsetof(FrameHeader, header_xxh3) == 120, "the checksum covers all before it");
static_assert(std::has_unique_object_representations_v<FrameHeader>, "no padding");
static_assert(std::is_trivially_copyable_v<FrameHeader>);

// A frame in memory. The header's body_len and checksums are filled by SealFrame.
struct Message {
  FrameHeader header;
  Buffer body;
};

// Fills body_len and both checksums from the body. A message sent twice is sealed twice; that is cheap only
// for small bodies, so senders keep sealed messages.
void SealFrame(Message& message);

// Reads a header out of exactly 128 bytes and believes nothing before the checksum holds. kDataLoss: size,
// magic, checksum; kInvalidArgument: another version (both are named), unknown kind or flags, non-zero unused
// bits, body_len over kMaxBodyBytes, part ≥ parts.
absl::StatusOr<FrameHeader> ParseFrameHeader(const void* data, size_t size);

// kDataLoss unless the body has the length and checksum the header promises.
absl::Status CheckFrameBody(const FrameHeader& header, const void* body, size_t size);

}  // namespace capstan
