#include "ps/push_assembler.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/core_testing.h"

namespace capstan {
namespace {

using testing::Info;
using testing::PushFrame;

// Part `part` of `parts` of a push; part 0 has the info.
Message PushPart(uint64_t request, uint16_t part, uint16_t parts, Rank rank = 0) {
  Message message = PushFrame(rank, 5, request, Info(1, 1), {{0, {Key{10} + part}, {1.0f}}});
  message.header.part = part;
  message.header.parts = parts;
  return testing::Sealed(std::move(message));
}

absl::StatusOr<std::optional<PushRecord>> AddPart(PushAssembler& assembler, const Message& message) {
  absl::StatusOr<BodyView> body = ParseBody(message.header.sections, message.body);
  if (!body.ok()) return body.status();
  return assembler.Add(message.header, *std::move(body));
}

TEST(PushAssembler, JoinsPartsInAnyOrderWithRepeats) {
  std::vector<uint16_t> order = {0, 1, 2};
  do {
    PushAssembler assembler;
    for (size_t i = 0; i < 3; ++i) {
      const absl::StatusOr<std::optional<PushRecord>> push = AddPart(assembler, PushPart(7, order[i], 3));
      ASSERT_TRUE(push.ok()) << push.status();
      if (i == 2) {
        ASSERT_TRUE(push->has_value());
        ASSERT_EQ((*push)->parts.size(), 3u);
        for (uint16_t part = 0; part < 3; ++part) {
          EXPECT_EQ((*push)->hashes[part], PushPart(7, part, 3).header.body_xxh3);
          EXPECT_EQ((*push)->parts[part].Find(SectionKind::kKeys)->As<Key>()[0], Key{10} + part);
        }
        EXPECT_EQ((*push)->step, 5u);
        EXPECT_EQ((*push)->info.examples, 1u);
        continue;
      }
      EXPECT_FALSE(push->has_value());
      const absl::StatusOr<std::optional<PushRecord>> again = AddPart(assembler, PushPart(7, order[i], 3));
      ASSERT_TRUE(again.ok());
      EXPECT_FALSE(again->has_value()) << "a repeat completed the push";
    }
    EXPECT_EQ(assembler.bytes(), 0u);
    EXPECT_EQ(assembler.incomplete(), 0u);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(PushAssembler, NeverMixesPartsOfTwoPushes) {
  struct Case {
    const char* why;
    void (*change)(FrameHeader& header);
    bool refused;  // else: the part begins another push, or is ignored
  };
  const Case cases[] = {
      {"another number of parts", [](FrameHeader& h) { h.parts = 3; }, true},
      {"another term", [](FrameHeader& h) { h.rank_term = 2; }, true},
      {"another step", [](FrameHeader& h) { h.step = 6; }, true},
      {"another lease", [](FrameHeader& h) { h.lease = 6; }, true},
      {"another flag", [](FrameHeader& h) { h.flags = kFlagEnd; }, true},
      {"another process", [](FrameHeader& h) { h.src_incarnation = 1; }, false},
      {"another node", [](FrameHeader& h) { h.src_node = 1; }, false},
      {"another generation", [](FrameHeader& h) { h.generation = 2; }, false},
      {"a newer request", [](FrameHeader& h) { h.request = 8; }, false},
      {"an older request", [](FrameHeader& h) { h.request = 6; }, false},
      {"another rank", [](FrameHeader& h) { h.rank = 1; }, false},
  };
  for (const Case& c : cases) {
    PushAssembler assembler;
    ASSERT_TRUE(AddPart(assembler, PushPart(7, 0, 2)).ok());
    Message second = PushPart(7, 1, 2);
    c.change(second.header);
    const absl::StatusOr<std::optional<PushRecord>> push = AddPart(assembler, second);
    EXPECT_EQ(push.ok(), !c.refused) << c.why;
    EXPECT_FALSE(push.ok() && push->has_value()) << c.why;
    if (!c.refused) continue;
    EXPECT_EQ(assembler.bytes(), 0u) << c.why << ": the push is forgotten";
  }
}

TEST(PushAssembler, KeepsOnlyTheNewestIncompletePushOfARank) {
  PushAssembler assembler;
  size_t one = 0;
  for (uint64_t request = 1; request <= 1000; ++request) {
    ASSERT_TRUE(AddPart(assembler, PushPart(request, 0, 65535)).ok());
    if (request == 1) one = assembler.bytes();
  }
  EXPECT_EQ(assembler.bytes(), one);
  EXPECT_EQ(assembler.incomplete(), 1u);
  ASSERT_TRUE(AddPart(assembler, PushPart(999, 0, 65535)).ok()) << "an older one changes nothing";
  EXPECT_EQ(assembler.bytes(), one);
}

TEST(PushAssembler, MemoryGrowsWithWhatCameNotWithWhatWasPromised) {
  PushAssembler assembler;
  for (Rank rank = 0; rank < 1000; ++rank) ASSERT_TRUE(AddPart(assembler, PushPart(1, 7, 65535, rank)).ok());
  EXPECT_LT(assembler.bytes(), 1000u * 2048);
  EXPECT_EQ(assembler.incomplete(), 1000u);
}

TEST(PushAssembler, DiscardForgetsARank) {
  PushAssembler assembler;
  ASSERT_TRUE(AddPart(assembler, PushPart(1, 0, 2, 0)).ok());
  ASSERT_TRUE(AddPart(assembler, PushPart(1, 0, 2, 1)).ok());
  assembler.Discard(0);
  assembler.Discard(5);
  EXPECT_EQ(assembler.incomplete(), 1u);
  const absl::StatusOr<std::optional<PushRecord>> push = AddPart(assembler, PushPart(1, 1, 2, 0));
  ASSERT_TRUE(push.ok());
  EXPECT_FALSE(push->has_value());
  assembler.Discard(0);
  assembler.Discard(1);
  EXPECT_EQ(assembler.bytes(), 0u);
}

TEST(PushAssembler, RefusesAPushWithoutItsInfo) {
  PushAssembler assembler;
  Message message = testing::PullFrame(0, 5, 7, {{0, {1}, {}}});
  message.header.kind = static_cast<uint16_t>(MessageKind::kPush);
  EXPECT_FALSE(AddPart(assembler, message).ok());
  EXPECT_EQ(assembler.bytes(), 0u);
}

}  // namespace
}  // namespace capstan
