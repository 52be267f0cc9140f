#include "proto/frame.h"

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/hash.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

using HeaderBytes = std::array<uint8_t, sizeof(FrameHeader)>;

HeaderBytes BytesOf(const FrameHeader& header) {
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

// A push with another value in every field.
Message SomeMessage() {
  Message message;
  FrameHeader& h = message.header;
  h.kind = static_cast<uint16_t>(MessageKind::kPush);
  h.flags = kFlagEnd;
  h.sections = 3;
  h.job = 0x1112131415161718;
  h.src_node = 0x21222324;
  h.src_incarnation = 0x31323334;
  h.dst_incarnation = 0x41424344;
  h.generation = 0x51525354;
  h.map_epoch = 0x61626364;
  h.rank = 0x71727374;
  h.rank_term = 0x81828384;
  h.part = 0x0192;
  h.parts = 0x0293;
  h.request = 0xa1a2a3a4a5a6a7a8;
  h.step = 0xb1b2b3b4b5b6b7b8;
  h.done = 0xc1c2c3c4c5c6c7c8;
  h.lease = 0xd1d2d3d4d5d6d7d8;
  h.lsn = 0xe1e2e3e4e5e6e7e8;
  h.credit = 0xf1f2f3f4;
  h.deadline_ms = 0x05060708;
  message.body = Buffer::CopyOf("body bytes", 10);
  SealFrame(message);
  return message;
}

// Seals whatever the header says, so that the checks behind the checksum are reached.
void Reseal(FrameHeader* header) {
  header->header_xxh3 = HashBytes(header, offsetof(FrameHeader, header_xxh3));
}

absl::Status ParseStatus(const FrameHeader& header) {
  return ParseFrameHeader(&header, sizeof header).status();
}

TEST(Frame, GoldenBytes) {  // FORMAT.md's table, byte by byte; a change breaks running clusters
  const HeaderBytes kGolden = {
      0x43, 0x53, 0x50, 0x4e, 0x01, 0x00, 0x04, 0x00, 0x01, 0x00, 0x00, 0x00, 0x80, 0x00, 0x03, 0x00,  // 0
      0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31,  // 16
      0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63, 0x62, 0x61, 0x74, 0x73, 0x72, 0x71,  // 32
      0x84, 0x83, 0x82, 0x81, 0x92, 0x01, 0x93, 0x02, 0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1,  // 48
      0xb8, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1, 0xc8, 0xc7, 0xc6, 0xc5, 0xc4, 0xc3, 0xc2, 0xc1,  // 64
      0xd8, 0xd7, 0xd6, 0xd5, 0xd4, 0xd3, 0xd2, 0xd1, 0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1,  // 80
      0xf4, 0xf3, 0xf2, 0xf1, 0x08, 0x07, 0x06, 0x05, 0x0a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // 96
      0x63, 0xc4, 0xa9, 0x46, 0x2a, 0x89, 0x0f, 0xd1, 0x4e, 0x5d, 0x42, 0x52, 0xcb, 0x59, 0xe2, 0x25,  // 112
  };
  EXPECT_EQ(BytesOf(SomeMessage().header), kGolden);
}

TEST(Frame, SealedHeadersParseToTheSameFields) {
  const Message message = SomeMessage();
  const HeaderBytes bytes = BytesOf(message.header);
  const absl::StatusOr<FrameHeader> parsed = ParseFrameHeader(bytes.data(), bytes.size());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(BytesOf(*parsed), bytes);
  EXPECT_TRUE(CheckFrameBody(*parsed, message.body.data(), message.body.size()).ok());
}

TEST(Frame, HeadersParseAtAnyAddress) {
  const HeaderBytes bytes = BytesOf(SomeMessage().header);
  std::vector<uint8_t> shifted(bytes.size() + 16);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::memcpy(shifted.data() + shift, bytes.data(), bytes.size());
    EXPECT_TRUE(ParseFrameHeader(shifted.data() + shift, bytes.size()).ok()) << shift;
  }
}

TEST(Frame, AnEmptyBodyIsSealedToo) {
  Message message;
  message.header.kind = static_cast<uint16_t>(MessageKind::kAck);
  SealFrame(message);
  ASSERT_TRUE(ParseStatus(message.header).ok());
  EXPECT_TRUE(CheckFrameBody(message.header, nullptr, 0).ok());
  EXPECT_EQ(CheckFrameBody(message.header, "x", 1).code(), absl::StatusCode::kDataLoss);
}

TEST(Frame, EverySingleBitFlipOfAHeaderIsRefused) {
  const HeaderBytes bytes = BytesOf(SomeMessage().header);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    HeaderBytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_FALSE(ParseFrameHeader(damaged.data(), damaged.size()).ok()) << "bit " << bit;
  }
}

TEST(Frame, EverySingleBitFlipOfABodyIsRefused) {
  const Message message = SomeMessage();
  std::vector<uint8_t> body(message.body.size());
  std::memcpy(body.data(), message.body.data(), body.size());
  for (size_t bit = 0; bit < body.size() * 8; ++bit) {
    body[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_EQ(CheckFrameBody(message.header, body.data(), body.size()).code(), absl::StatusCode::kDataLoss);
    body[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  EXPECT_EQ(CheckFrameBody(message.header, body.data(), body.size() - 1).code(), absl::StatusCode::kDataLoss);
}

TEST(Frame, OtherSizesAreNoHeader) {
  std::vector<uint8_t> bytes(256, 0);
  const HeaderBytes good = BytesOf(SomeMessage().header);
  std::memcpy(bytes.data(), good.data(), good.size());
  for (const size_t size : {0u, 1u, 4u, 127u, 129u, 256u}) {
    EXPECT_EQ(ParseFrameHeader(bytes.data(), size).status().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST(Frame, AnotherVersionNamesBoth) {
  FrameHeader header = SomeMessage().header;
  header.version = 7;
  const std::string want = "frame version 7, this process version 1";
  for (const bool sealed : {false, true}) {  // another version may keep its checksum elsewhere
    if (sealed) Reseal(&header);
    const absl::Status status = ParseStatus(header);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(want));
  }
}

struct BadHeader {
  const char* name;
  std::function<void(FrameHeader*)> damage;
  absl::StatusCode code;
  const char* message;
};

TEST(Frame, FieldsAreCheckedBehindAGoodChecksum) {
  const BadHeader kCases[] = {
      {"magic", [](FrameHeader* h) { h->magic = 0x47455420; }, absl::StatusCode::kDataLoss,
       "47455420, want 4e505343"},
      {"no kind", [](FrameHeader* h) { h->kind = 0; }, absl::StatusCode::kInvalidArgument,
       "unknown message kind 0"},
      {"kind", [](FrameHeader* h) { h->kind = 999; }, absl::StatusCode::kInvalidArgument,
       "unknown message kind 999"},
      {"flags", [](FrameHeader* h) { h->flags = 1u << 5; }, absl::StatusCode::kInvalidArgument,
       "unused header bits"},
      {"high flag", [](FrameHeader* h) { h->flags |= 1u << 31; }, absl::StatusCode::kInvalidArgument,
       "PUSH: unused"},
      {"spare", [](FrameHeader* h) { h->spare = 1; }, absl::StatusCode::kInvalidArgument, "spare 00000001"},
      {"length", [](FrameHeader* h) { h->header_len = 136; }, absl::StatusCode::kInvalidArgument,
       "header_len 136"},
      {"body", [](FrameHeader* h) { h->body_len = kMaxBodyBytes + 1; }, absl::StatusCode::kInvalidArgument,
       "a body of 1048577 bytes, the limit is 1048576"},
      {"part", [](FrameHeader* h) { h->part = h->parts; }, absl::StatusCode::kInvalidArgument,
       "part 659 of 659"},
      {"no parts", [](FrameHeader* h) { h->part = h->parts = 0; }, absl::StatusCode::kInvalidArgument,
       "part 0 of 0"},
  };
  for (const BadHeader& c : kCases) {
    FrameHeader header = SomeMessage().header;
    c.damage(&header);
    Reseal(&header);
    const absl::Status status = ParseStatus(header);
    EXPECT_EQ(status.code(), c.code) << c.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.name;
  }
}

TEST(Frame, TheLargestBodyIsAllowed) {
  FrameHeader header = SomeMessage().header;
  header.body_len = kMaxBodyBytes;
  Reseal(&header);
  EXPECT_TRUE(ParseStatus(header).ok());
}

TEST(Frame, MessageKindsKeepTheirNumbers) {  // FORMAT.md's table
  const std::map<int, std::string> kGolden = {
      {1, "PULL"},
      {2, "PULL_READONLY"},
      {3, "ROWS"},
      {4, "PUSH"},
      {5, "COMMIT"},
      {6, "ACK"},
      {7, "NACK"},
      {8, "WAITING"},
      {9, "RESEND_PUSH"},
      {10, "RECORDS"},
      {11, "FENCE"},
      {12, "RESOLVE"},
      {13, "CUT"},
      {14, "ROLLBACK"},
      {15, "MAP"},
      {64, "JOIN"},
      {65, "JOIN_REPLY"},
      {66, "HELLO"},
      {67, "HELLO_REPLY"},
      {68, "START"},
      {69, "STARTED"},
      {70, "HEARTBEAT"},
      {71, "HEARTBEAT_REPLY"},
      {72, "LEASE_REQUEST"},
      {73, "LEASE_REPLY"},
      {74, "LEASE_DONE"},
      {75, "LEASE_DONE_REPLY"},
      {76, "LEASE_CLOSE"},
      {77, "LEASE_CLOSED"},
      {78, "RANK_DONE"},
      {79, "RANK_DONE_REPLY"},
      {82, "END"},
      {83, "BYE"},
      {84, "PROGRESS"},
      {85, "FAILED"},
      {86, "CUT_STATE"},
      {87, "CUT_ABORT"},
  };
  std::map<int, std::string> found;
  for (int kind = 0; kind <= 0xffff; ++kind) {
    if (IsKnown(static_cast<MessageKind>(kind)))
      found[kind] = std::string(ToString(static_cast<MessageKind>(kind)));
  }
  EXPECT_EQ(found, kGolden);
  EXPECT_EQ(ToString(MessageKind::kNone), "UNKNOWN");
}

}  // namespace
}  // namespace capstan
