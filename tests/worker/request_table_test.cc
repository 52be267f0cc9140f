#include "worker/request_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/clock.h"
#include "tests/support/core_testing.h"

namespace capstan {
namespace {

using testing::RecordingOutbox;
using Outcome = RequestTable::Outcome;
using ::testing::HasSubstr;

constexpr Duration kSecond = std::chrono::seconds(1);

class TableHarness {
 public:
  explicit TableHarness(size_t inflight) : table_({inflight, 2 * kSecond}, outbox_, metrics_) {
    table_.SetShards({100, 101});
  }
  uint64_t Pull(ShardId shard, size_t parts, size_t body_bytes, uint32_t reply_bytes = 0) {
    return Begin(shard, MessageKind::kPull, parts, body_bytes, reply_bytes);
  }
  uint64_t Push(ShardId shard, size_t parts, size_t body_bytes) {
    return Begin(shard, MessageKind::kPush, parts, body_bytes, 0);
  }
  size_t Sent() { return outbox_.Take().size(); }
  size_t SentAfter(Duration after) {
    clock_.Advance(after);
    table_.Tick(clock_.Now());
    return Sent();
  }
  RequestTable& table() { return table_; }
  RecordingOutbox& outbox() { return outbox_; }
  Time now() const { return clock_.Now(); }

 private:
  uint64_t Begin(ShardId shard, MessageKind kind, size_t parts, size_t body_bytes, uint32_t reply_bytes) {
    std::vector<RequestPart> all(parts);
    for (RequestPart& part : all) {
      part.body = Buffer::Allocate(body_bytes);
      std::fill(part.body.bytes().begin(), part.body.bytes().end(), std::byte{0});
      part.reply_bytes = reply_bytes;
    }
    FrameHeader header;
    header.kind = static_cast<uint16_t>(kind);
    header.rank = 3;
    header.step = 7;
    return table_.Begin(shard, header, std::move(all), kind == MessageKind::kPull, clock_.Now());
  }
  ManualClock clock_;
  RecordingOutbox outbox_;
  MetricsRegistry metrics_;
  RequestTable table_;
};

TEST(RequestTable, CreditIsGivenByBytesInBothDirections) {
  TableHarness t(1000);
  const uint64_t first = t.Pull(0, 2, 100, 300);  // 800 bytes
  EXPECT_EQ(t.Sent(), 2u);
  const uint64_t second = t.Push(0, 1, 300);
  EXPECT_EQ(t.Sent(), 0u) << "1100 bytes would be too many";
  t.Push(1, 1, 300);
  EXPECT_EQ(t.Sent(), 1u) << "another shard has its own credit";
  EXPECT_EQ(t.table().Answered(0, first, 0, true), Outcome::kPartAnswered);
  EXPECT_EQ(t.Sent(), 1u) << "a part gives its credit back";
  EXPECT_EQ(t.table().Answered(0, first, 1, true), Outcome::kComplete);
  EXPECT_EQ(t.table().Answered(0, second, 0, false), Outcome::kComplete);
  EXPECT_EQ(t.table().waiting(), 1u);
}

TEST(RequestTable, ARequestLargerThanAllCreditGoesAloneAndWhole) {
  TableHarness t(10);
  const uint64_t large = t.Push(0, 3, 100);
  EXPECT_EQ(t.Sent(), 3u);
  const uint64_t next = t.Push(0, 2, 100);
  EXPECT_EQ(t.Sent(), 0u);
  EXPECT_EQ(t.table().Answered(0, next, 0, false), Outcome::kUnknown) << "it was not even sent";
  EXPECT_EQ(t.table().Answered(0, large, 0, false), Outcome::kComplete);
  EXPECT_EQ(t.Sent(), 2u);
}

TEST(RequestTable, AParkedPullHoldsNoCredit) {
  TableHarness t(100);
  const uint64_t pull = t.Pull(0, 1, 50, 50);
  t.Push(0, 1, 100);
  EXPECT_EQ(t.Sent(), 1u);
  t.table().Parked(0, pull, 9, t.now());
  t.table().Parked(1, pull, 0, t.now());
  t.table().Parked(0, 12345, 0, t.now());
  EXPECT_EQ(t.Sent(), 0u) << "words about others change nothing";
  t.table().Parked(0, pull, 0, t.now());
  t.table().Parked(0, pull, 0, t.now());
  EXPECT_EQ(t.Sent(), 1u);
  EXPECT_THAT(t.table().Oldest(t.now()), HasSubstr("PULL of step 7 (rank 3) to shard 0"));
  EXPECT_THAT(t.table().Oldest(t.now()), HasSubstr("parked"));
  EXPECT_EQ(t.table().Answered(0, pull, 0, true), Outcome::kComplete);
  t.Push(0, 1, 1);
  EXPECT_EQ(t.Sent(), 0u) << "the parked one gave its credit back once, not twice";
}

TEST(RequestTable, RepeatsWithBackOffWhatIsNotAnswered) {
  TableHarness t(1 << 20);
  const uint64_t pull = t.Pull(0, 3, 10);
  EXPECT_EQ(t.Sent(), 3u);
  t.table().Answered(0, pull, 1, true);
  EXPECT_EQ(t.SentAfter(kSecond), 0u);
  EXPECT_EQ(t.SentAfter(kSecond), 2u) << "after 2 s, without the part that was answered";
  EXPECT_EQ(t.SentAfter(3 * kSecond), 0u);
  EXPECT_EQ(t.SentAfter(kSecond), 2u) << "4 s later";
  EXPECT_EQ(t.SentAfter(7 * kSecond), 0u);
  EXPECT_EQ(t.SentAfter(kSecond), 2u) << "8 s later";
  EXPECT_EQ(t.SentAfter(7 * kSecond), 0u);
  EXPECT_EQ(t.SentAfter(kSecond), 2u) << "and no longer pause than that";
  t.table().Parked(0, pull, 0, t.now());
  EXPECT_EQ(t.SentAfter(7 * kSecond), 0u) << "a parked one is not lost";
}

TEST(RequestTable, ComesBackSoonWhenTheShardAsksForIt) {
  TableHarness t(1 << 20);
  const uint64_t push = t.Push(0, 2, 10);
  t.Sent();
  t.table().RetryLater(1, push, t.now());
  t.table().RetryLater(0, push + 1, t.now());
  EXPECT_EQ(t.SentAfter(kSecond / 5), 0u);
  t.table().RetryLater(0, push, t.now());
  EXPECT_EQ(t.SentAfter(kSecond / 20), 0u);
  EXPECT_EQ(t.SentAfter(kSecond / 20), 2u);
}

TEST(RequestTable, TakesEachAnswerOnceAndOfTheRightKindOnly) {
  TableHarness t(1 << 20);
  const uint64_t pull = t.Pull(0, 1, 10), push = t.Push(0, 2, 10);
  EXPECT_EQ(t.table().Answered(0, pull, 0, false), Outcome::kUnknown) << "an acknowledgement of a pull";
  EXPECT_EQ(t.table().Answered(0, push, 0, true), Outcome::kUnknown) << "rows for a push";
  EXPECT_EQ(t.table().Answered(1, push, 0, false), Outcome::kUnknown) << "of another shard";
  EXPECT_EQ(t.table().Answered(0, pull, 1, true), Outcome::kUnknown) << "of a part that was not asked for";
  EXPECT_EQ(t.table().Answered(0, pull, 0, true), Outcome::kComplete);
  EXPECT_EQ(t.table().Answered(0, pull, 0, true), Outcome::kUnknown);
  EXPECT_EQ(t.table().Answered(0, push, 0, false), Outcome::kComplete);
  EXPECT_EQ(t.table().Answered(0, push, 0, false), Outcome::kUnknown);
  EXPECT_EQ(t.table().waiting(), 0u);
  EXPECT_EQ(t.table().Oldest(t.now()), "");
  t.Sent();
  EXPECT_EQ(t.SentAfter(100 * kSecond), 0u);
}

}  // namespace
}  // namespace capstan
