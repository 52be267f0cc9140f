#include "ps/shard_core.h"

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard_harness.h"

namespace capstan {
namespace {

using testing::Body;
using testing::DataHeader;
using testing::Info;
using testing::JobOptions;
using testing::kJob;
using testing::kSchedulerPeer;
using testing::kServerIncarnation;
using testing::kWorkerIncarnation;
using testing::kWorkerPeer;
using testing::OrderHeader;
using testing::PullFrame;
using testing::PushFrame;
using testing::Sealed;
using testing::Sent;
using testing::ShardHarness;
using testing::TableRows;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kSecond = std::chrono::seconds(1);

Message Changed(Message message, const std::function<void(FrameHeader&)>& change) {
  change(message.header);
  return Sealed(std::move(message));
}

Message CommitFrame(Rank rank, Step done, uint64_t request, uint32_t flags = 0) {
  Message message{DataHeader(MessageKind::kCommit, rank, done, request), Buffer()};
  message.header.flags = flags;
  return Sealed(std::move(message));
}

Message GoodPush(Rank rank = 0, uint64_t request = 1) {
  return PushFrame(rank, 0, request, Info(1, 1), {{0, {5}, {-1}}});
}

Message InfoPush(const std::function<void(PushInfo&)>& change) {
  PushInfo info = Info(1, 1);
  change(info);
  return PushFrame(0, 0, 1, info, {});
}

TEST(ShardCoreRefuses, EveryFrameThatDoesNotFit) {
  struct Case {
    const char* why;
    NackCode code;
    Message message;
  };
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr double kInf = std::numeric_limits<double>::infinity();
  const auto pull = [] { return PullFrame(0, 0, 1, {{0, {5}, {}}}); };
  const std::vector<Case> cases = {
      {"another job", NackCode::kWrongJob, Changed(pull(), [](FrameHeader& h) { h.job = 1; })},
      {"a newer generation", NackCode::kWrongGeneration, Changed(pull(), [](FrameHeader& h) { h.generation = 2; })},
      {"another shard map", NackCode::kWrongMap, Changed(pull(), [](FrameHeader& h) { h.map_epoch = 2; })},
      {"a rank out of range", NackCode::kMalformed, Changed(pull(), [](FrameHeader& h) { h.rank = 2; })},
      {"no rank", NackCode::kMalformed, Changed(pull(), [](FrameHeader& h) { h.rank = kNoRank; })},
      {"an old term", NackCode::kWrongTerm, Changed(pull(), [](FrameHeader& h) { h.rank_term = 0; })},
      {"a newer term", NackCode::kWrongTerm, Changed(pull(), [](FrameHeader& h) { h.rank_term = 2; })},
      {"a kind for others", NackCode::kUnsupported, Changed(pull(), [](FrameHeader& h) { h.kind = 3; })},
      {"a read without a rank", NackCode::kUnsupported, Changed(pull(), [](FrameHeader& h) { h.kind = 2; })},
      {"more sections than there are", NackCode::kMalformed, Changed(pull(), [](FrameHeader& h) { ++h.sections; })},
      {"a pull ahead of its commit", NackCode::kStepConflict, Changed(pull(), [](FrameHeader& h) { h.step = 1; })},
      {"a commit without a push", NackCode::kStepConflict,
       Changed(pull(), [](FrameHeader& h) { h.step = h.done = 1; })},
      {"an unknown table", NackCode::kMalformed, PullFrame(0, 0, 1, {{7, {5}, {}}})},
      {"unsorted keys", NackCode::kMalformed, PullFrame(0, 0, 1, {{0, {5, 4}, {}}})},
      {"a key twice", NackCode::kMalformed, PullFrame(0, 0, 1, {{0, {5, 5}, {}}})},
      {"gradients in a pull", NackCode::kMalformed, Changed(GoodPush(), [](FrameHeader& h) { h.kind = 1; })},
      {"a push of a later step", NackCode::kStepConflict, Changed(GoodPush(), [](FrameHeader& h) { h.step = 1; })},
      {"rows of another width", NackCode::kMalformed, PushFrame(0, 0, 1, Info(1, 1), {{0, {5}, {1, 2}}})},
      {"a push without its info", NackCode::kMalformed, Changed(pull(), [](FrameHeader& h) { h.kind = 4; })},
      {"gradients without an example", NackCode::kMalformed, PushFrame(0, 0, 1, Info(0, 0), {{0, {5}, {1}}})},
      {"END with gradients", NackCode::kMalformed, Changed(GoodPush(), [](FrameHeader& h) { h.flags = kFlagEnd; })},
      {"a weight that is no number", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.weight_sum = std::nan(""); })},
      {"an infinite weight", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.weight_sum = kInf; })},
      {"a negative weight", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.weight_sum = -1; })},
      {"a loss that is no number", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.loss_sum = std::nan(""); })},
      {"a rate that is no number", NackCode::kMalformed,
       InfoPush([](PushInfo& i) { i.lr_factor_bits = std::bit_cast<uint32_t>(kNan); })},
      {"a negative rate", NackCode::kMalformed,
       InfoPush([](PushInfo& i) { i.lr_factor_bits = std::bit_cast<uint32_t>(-1.0f); })},
      {"more examples than there can be", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.examples = ~uint64_t{0}; })},
      {"an epoch after the last", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.epoch = 2; })},
      {"optimizer step 0", NackCode::kMalformed, InfoPush([](PushInfo& i) { i.optimizer_step = 0; })},
      {"START of a worker", NackCode::kUnsupported,
       Sealed(Message{DataHeader(MessageKind::kStart, 0, 0, 1), Buffer()})},
      {"CUT of a worker", NackCode::kUnsupported, Sealed(Message{DataHeader(MessageKind::kCut, 0, 0, 1), Buffer()})},
      {"CUT_ABORT of a worker", NackCode::kUnsupported,
       Sealed(Message{DataHeader(MessageKind::kCutAbort, 0, 0, 1), Buffer()})},
      {"LEASE_CLOSE of a worker", NackCode::kUnsupported,
       Sealed(Message{DataHeader(MessageKind::kLeaseClose, 0, 0, 1), Buffer()})},
      {"END of a worker", NackCode::kUnsupported, Sealed(Message{DataHeader(MessageKind::kEnd, 0, 0, 1), Buffer()})},
  };
  for (const Case& c : cases) {
    ShardHarness shard((JobOptions()));
    const uint64_t before = shard.core().state()->lsn();
    EXPECT_EQ(static_cast<int>(shard.RefusalOf(c.message)), static_cast<int>(c.code)) << c.why;
    EXPECT_EQ(shard.core().state()->lsn(), before) << c.why << ": refused, yet something changed";
    EXPECT_EQ(shard.core().held_bytes(), 0u) << c.why;
    EXPECT_EQ(shard.Ask(GoodPush()).kind(), MessageKind::kAck) << c.why << ": the next good push";
  }
}

TEST(ShardCoreRefuses, ANackIsReadByWhoeverAsked) {
  ShardHarness shard((JobOptions()));
  const Sent answer = shard.Ask(Changed(GoodPush(), [](FrameHeader& h) { h.job = 1; }));
  EXPECT_EQ(answer.message.header.job, 1u);
  EXPECT_EQ(answer.message.header.request, 1u);
  EXPECT_EQ(answer.message.header.dst_incarnation, kWorkerIncarnation);
  EXPECT_THAT(Body<Nack>(answer).reason(), HasSubstr("server-0/shard-0"));
  shard.FromWorker(Changed(answer.message, [](FrameHeader& h) { h.job = kJob; h.dst_incarnation = kServerIncarnation; }));
  EXPECT_TRUE(shard.outbox().Take().empty()) << "a refusal is never answered";
}

TEST(ShardCoreRefuses, KeysOfAnotherShard) {
  JobOptions options;
  options.servers = 2;
  ShardHarness shard(options);
  const ShardMap map = *ShardMap::Even(8, 2);
  Key foreign = 0;
  while (map.OwnerOf(foreign) == 0) ++foreign;
  EXPECT_EQ(shard.RefusalOf(PullFrame(0, 0, 1, {{0, {foreign}, {}}})), NackCode::kWrongMap);
  EXPECT_EQ(shard.RefusalOf(PushFrame(0, 0, 1, Info(1, 1), {{0, {foreign}, {1}}})), NackCode::kWrongMap);
}

TEST(ShardCoreRefuses, AnAnswerThatFitsNoFrame) {
  ShardHarness shard((JobOptions()));
  std::vector<TableRows> sections(kMaxSections, TableRows{0, {}, {}});
  EXPECT_EQ(shard.RefusalOf(PullFrame(0, 0, 1, sections)), NackCode::kMalformed) << "one section too many";
  sections.pop_back();
  const Sent rows = shard.Ask(PullFrame(0, 0, 2, sections));
  ASSERT_EQ(rows.kind(), MessageKind::kRows);
  EXPECT_EQ(rows.message.header.sections, kMaxSections);
  std::vector<Key> keys(kMaxBodyBytes / 8 - 8);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  EXPECT_EQ(shard.RefusalOf(PullFrame(0, 0, 3, {{1, keys, {}}})), NackCode::kMalformed) << "1 MiB of keys, more of rows";
}

TEST(ShardCoreRefuses, WhatComesBeforeStart) {
  ShardHarness shard(JobOptions(), /*start=*/false);
  EXPECT_EQ(shard.RefusalOf(GoodPush()), NackCode::kWrongJob);
  shard.Hello();
  EXPECT_EQ(shard.RefusalOf(GoodPush()), NackCode::kNotReady);
  EXPECT_EQ(shard.core().WaitingFor(), "the scheduler's START");
  shard.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kCut, kServerIncarnation), Cut()));
  EXPECT_EQ(shard.outbox().Take(MessageKind::kNack).size(), 1u);
  shard.Tick(kSecond);
}

TEST(ShardCoreStart, RefusesWhatContradictsItself) {
  struct Case {
    const char* why;
    std::function<void(Start&)> change;
  };
  const Case cases[] = {
      {"no ranks", [](Start& s) { s.mutable_job()->mutable_config()->set_ranks(0); s.clear_grant(); }},
      {"a rank without a term", [](Start& s) { s.mutable_grant()->RemoveLast(); }},
      {"a rank twice", [](Start& s) { s.mutable_grant(1)->set_rank(0); }},
      {"a rank out of range", [](Start& s) { s.mutable_grant(1)->set_rank(2); }},
      {"no epoch", [](Start& s) { s.mutable_job()->mutable_config()->set_epochs(0); }},
      {"a shard out of range", [](Start& s) { s.set_shard(1); }},
      {"no shards", [](Start& s) { s.mutable_job()->clear_shard_endpoint(); }},
      {"a strange consistency", [](Start& s) { s.mutable_job()->mutable_config()->set_consistency("often"); }},
      {"3 partitions", [](Start& s) { s.mutable_job()->mutable_config()->mutable_cluster()->set_partitions(3); }},
      {"a table out of order", [](Start& s) { s.mutable_job()->mutable_table(1)->set_id(7); }},
      {"an unknown optimizer", [](Start& s) { s.mutable_job()->mutable_table(1)->mutable_optimizer()->set_name("x"); }},
  };
  for (const Case& c : cases) {
    ShardHarness shard(JobOptions(), /*start=*/false);
    shard.Hello();
    shard.outbox().Take();
    Start start = shard.StartOrder();
    c.change(start);
    shard.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kStart, kServerIncarnation), start));
    EXPECT_EQ(shard.outbox().Take(MessageKind::kNack).size(), 1u) << c.why;
    EXPECT_EQ(shard.core().state(), nullptr) << c.why;
  }
}

TEST(ShardCoreStart, TakesPartsInAnyOrderAndAnswersRepeats) {
  ShardHarness shard(JobOptions(), /*start=*/false);
  shard.Hello();
  shard.outbox().Take();
  Start start = shard.StartOrder();
  start.mutable_job()->mutable_recipe()->add_column(std::string(kMaxBodyBytes + 5, 'x'));
  const std::vector<Message> parts =
      SplitControl(OrderHeader(MessageKind::kStart, kServerIncarnation), start.SerializeAsString());
  ASSERT_EQ(parts.size(), 2u);
  shard.Deliver(kSchedulerPeer, parts[1]);
  shard.Deliver(kSchedulerPeer, parts[1]);
  EXPECT_TRUE(shard.outbox().Take().empty());
  shard.Deliver(kSchedulerPeer, parts[0]);
  EXPECT_EQ(shard.outbox().Take(MessageKind::kStarted).size(), 1u);
  ASSERT_NE(shard.core().state(), nullptr);
  shard.Deliver(kSchedulerPeer, parts[0]);
  EXPECT_EQ(shard.outbox().Take(MessageKind::kStarted).size(), 1u) << "the first STARTED may be lost";
}

TEST(ShardCoreHello, OnlyTheFirstSchedulerCounts) {
  ShardHarness shard((JobOptions()));
  struct Case {
    const char* why;
    std::function<void(FrameHeader&)> change;
    MessageKind answer;
  };
  const Case cases[] = {
      {"the same again", [](FrameHeader&) {}, MessageKind::kHelloReply},
      {"another job", [](FrameHeader& h) { h.job = 1; }, MessageKind::kNack},
      {"no job", [](FrameHeader& h) { h.job = 0; }, MessageKind::kNack},
      {"another scheduler", [](FrameHeader& h) { h.src_incarnation = 1; }, MessageKind::kNack},
      {"a worker", [](FrameHeader& h) { h.src_node = 3; }, MessageKind::kNack},
      {"not said to us", [](FrameHeader& h) { h.dst_incarnation = 0; }, MessageKind::kNack},
  };
  for (const Case& c : cases) {
    Message hello = MakeControl(OrderHeader(MessageKind::kHello, kServerIncarnation), Hello());
    EXPECT_EQ(shard.Ask(Changed(hello, c.change)).kind(), c.answer) << c.why;
  }
}

TEST(ShardCorePull, AnswersAtItsVersionWithWhatTheJobIsAt) {
  ShardHarness shard((JobOptions()));
  const Sent rows = shard.Ask(PullFrame(0, 0, 42, {{1, {3, 9}, {}}, {0, {4}, {}}}));
  ASSERT_EQ(rows.kind(), MessageKind::kRows);
  EXPECT_EQ(rows.message.header.request, 42u);
  EXPECT_EQ(rows.message.header.step, 0u);
  const BodyView body = *ParseBody(rows.message.header.sections, rows.message.body);
  ASSERT_EQ(body.sections().size(), 3u);
  EXPECT_EQ(ReadStruct<RowsInfo>(body, SectionKind::kRowsInfo)->version, 0u);
  EXPECT_EQ(body.sections()[1].table(), 1);
  EXPECT_EQ(body.sections()[1].descriptor.rows, 2u);
  EXPECT_EQ(body.sections()[2].table(), 0);
}

// Ranks 0 and 1 push step 0; rank 0 goes on.
void PushBoth(ShardHarness& shard) {
  ASSERT_EQ(shard.Ask(GoodPush(0, 1)).kind(), MessageKind::kAck);
  ASSERT_EQ(shard.Ask(GoodPush(1, 2)).kind(), MessageKind::kAck);
}

TEST(ShardCorePull, WaitsForTheOthersIsToldSoAndAnsweredOnce) {
  ShardHarness shard((JobOptions()));
  PushBoth(shard);
  const Message wanted = PullFrame(0, 1, 3, {{0, {5}, {}}});
  shard.FromWorker(wanted);
  EXPECT_TRUE(shard.outbox().Take().empty());
  EXPECT_EQ(shard.core().parked(), 1u);
  EXPECT_THAT(shard.core().WaitingFor(), HasSubstr("rank 1 to commit step 0"));
  for (int i = 0; i < 3; ++i) {
    shard.Tick(kSecond);
    const std::vector<Sent> words = shard.outbox().Take(MessageKind::kWaiting);
    ASSERT_EQ(words.size(), 1u) << "each second";
    const BodyView body = *ParseBody(words[0].message.header.sections, words[0].message.body);
    EXPECT_THAT(body.Find(SectionKind::kRankList)->As<uint32_t>(), ElementsAre(1));
    EXPECT_EQ(words[0].message.header.request, 3u);
  }
  shard.Tick(kSecond / 2);
  EXPECT_TRUE(shard.outbox().Take(MessageKind::kWaiting).empty());
  shard.Deliver(8, wanted);  // a repeat over a new connection
  EXPECT_EQ(shard.core().parked(), 1u);
  shard.Tick(Duration(1));
  ASSERT_EQ(shard.outbox().Take(MessageKind::kWaiting).size(), 1u) << "who asks again is told at once";
  shard.FromWorker(PullFrame(1, 1, 4, {{0, {6}, {}}}));
  const std::vector<Sent> rows = shard.outbox().Take(MessageKind::kRows);
  ASSERT_EQ(rows.size(), 2u);
  for (const Sent& answer : rows) {
    EXPECT_EQ(answer.message.header.step, 1u);
    EXPECT_EQ(answer.to, answer.message.header.request == 3 ? 8u : kWorkerPeer) << "the newest connection";
  }
  EXPECT_EQ(shard.core().parked(), 0u);
  EXPECT_EQ(shard.core().held_bytes(), 0u);
  EXPECT_EQ(shard.Ask(wanted).kind(), MessageKind::kRows) << "its answer was lost";
}

TEST(ShardCorePull, KeepsOnePullOfARank) {
  ShardHarness shard((JobOptions()));
  PushBoth(shard);
  for (uint64_t request = 1; request <= 1000; ++request) {
    for (const uint16_t part : {0, 1}) {
      shard.FromWorker(Changed(PullFrame(0, 1, request, {{0, {5}, {}}}), [part](FrameHeader& h) {
        h.part = part;
        h.parts = 2;
      }));
    }
  }
  EXPECT_EQ(shard.core().parked(), 2u);
  shard.FromWorker(PullFrame(0, 1, 7, {{0, {5}, {}}}));
  EXPECT_EQ(shard.core().parked(), 2u) << "an older one that comes late";
  shard.FromWorker(Changed(PullFrame(0, 1, 3, {{0, {5}, {}}}), [](FrameHeader& h) { h.src_incarnation = 1; }));
  EXPECT_EQ(shard.core().parked(), 1u) << "of another process: takes its place";
}

TEST(ShardCorePush, IsKeptOnceAndAcknowledgedAgain) {
  ShardHarness shard((JobOptions()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(shard.Ask(GoodPush()).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.core().state()->lsn(), 1u);
  EXPECT_EQ(shard.RefusalOf(PushFrame(0, 0, 1, Info(1, 1), {{0, {5}, {-2}}})), NackCode::kStepConflict)
      << "other bits";
  EXPECT_EQ(shard.core().violations(), 1u);
  shard.Ask(GoodPush(1, 2));
  shard.FromWorker(PullFrame(0, 1, 3, {}));
  shard.FromWorker(PullFrame(1, 1, 4, {}));
  ASSERT_EQ(shard.core().state()->version(), 1u);
  EXPECT_EQ(shard.Ask(GoodPush()).kind(), MessageKind::kAck) << "applied long ago";
  EXPECT_EQ(shard.core().state()->totals().examples, 2u);
}

TEST(ShardCorePush, AllPartsMustBeHereBeforeItIsAcknowledged) {
  ShardHarness shard((JobOptions()));
  const auto part = [](uint16_t number, Key key) {
    return Changed(PushFrame(0, 0, 1, Info(1, 1), {{0, {key}, {-1}}}), [number](FrameHeader& h) {
      h.part = number;
      h.parts = 2;
    });
  };
  shard.FromWorker(part(1, 9));
  shard.FromWorker(part(1, 9));
  EXPECT_TRUE(shard.outbox().Take().empty());
  EXPECT_GT(shard.core().held_bytes(), 0u);
  EXPECT_EQ(shard.Ask(part(0, 5)).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.Ask(part(1, 9)).kind(), MessageKind::kAck);
  ShardHarness other((JobOptions()));
  other.FromWorker(part(1, 5));
  EXPECT_EQ(other.RefusalOf(part(0, 9)), NackCode::kMalformed) << "keys go on increasing from part to part";
  EXPECT_EQ(other.core().held_bytes(), 0u);
}

TEST(ShardCorePush, RanksMustAgreeAboutTheRate) {
  ShardHarness shard((JobOptions()));
  ASSERT_EQ(shard.Ask(GoodPush(0, 1)).kind(), MessageKind::kAck);
  PushInfo info = Info(1, 1);
  info.lr_factor_bits = std::bit_cast<uint32_t>(0.5f);
  EXPECT_EQ(shard.RefusalOf(PushFrame(1, 0, 2, info, {{0, {5}, {-1}}})), NackCode::kStepConflict);
  EXPECT_EQ(shard.RefusalOf(PushFrame(1, 0, 3, Info(1, 1, 7), {{0, {5}, {-1}}})), NackCode::kStepConflict);
  EXPECT_EQ(shard.Ask(PushFrame(1, 0, 4, Info(0, 0, 7), {})).kind(), MessageKind::kAck) << "an empty one has no say";
}

TEST(ShardCorePush, IsRefusedForNowWhenThereIsNoRoom) {
  JobOptions options;
  options.shard_buffer_bytes = 700;
  ShardHarness shard(options);
  ASSERT_EQ(shard.Ask(GoodPush(0, 1)).kind(), MessageKind::kAck);
  std::vector<Key> keys;
  for (Key key = 0; key < 100; ++key) keys.push_back(key);
  const Message large = PushFrame(1, 0, 2, Info(1, 1), {{0, keys, std::vector<float>(100, 1.0f)}});
  EXPECT_EQ(shard.RefusalOf(large), NackCode::kOverloaded);
  EXPECT_THAT(shard.core().WaitingFor(), HasSubstr("shard_buffer_bytes"));
  EXPECT_LE(shard.core().held_bytes(), 700u);
}

TEST(ShardCoreAsync, MayCommitOnlyStepByStepAndAppliesALeaseOnce) {
  JobOptions options;
  options.consistency = "async";
  ShardHarness shard(options);
  EXPECT_EQ(shard.RefusalOf(GoodPush()), NackCode::kMalformed) << "no lease";
  const auto push = [](uint32_t index, uint64_t request) {
    PushInfo info = Info(1, 1);
    info.index = index;
    return Changed(PushFrame(0, 0, request, info, {{0, {5}, {-1}}}), [](FrameHeader& h) { h.lease = 1; });
  };
  EXPECT_EQ(shard.Ask(push(0, 1)).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.Ask(push(0, 1)).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.Ask(push(0, 2)).kind(), MessageKind::kAck) << "another process sends the batch again";
  EXPECT_EQ(shard.core().state()->totals().examples, 1u);
  EXPECT_EQ(shard.Ask(push(1, 3)).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.RefusalOf(push(2, 4)), NackCode::kOverloaded) << "the lease has two batches";
  LeaseClose close;
  close.set_below(2);
  close.set_sequence(1);
  shard.Deliver(kSchedulerPeer, MakeControl(OrderHeader(MessageKind::kLeaseClose, kServerIncarnation), close));
  EXPECT_EQ(shard.outbox().Take(MessageKind::kLeaseClosed).size(), 1u);
  EXPECT_EQ(shard.Ask(push(1, 5)).kind(), MessageKind::kAck);
  EXPECT_EQ(shard.core().state()->totals().examples, 2u);
  EXPECT_EQ(shard.Ask(PullFrame(0, 1, 6, {})).kind(), MessageKind::kRows);
  EXPECT_EQ(shard.RefusalOf(PullFrame(0, 9, 7, {})), NackCode::kStepConflict);
}

TEST(ShardCoreSsp, EnterAndLeaveAreAcknowledgedWithTheHighestClock) {
  JobOptions options;
  options.consistency = "ssp:1";
  ShardHarness shard(options);
  EXPECT_EQ(shard.Ask(CommitFrame(0, 0, 1, kFlagEnter)).message.header.done, 0u);
  EXPECT_EQ(shard.Ask(PullFrame(0, 1, 2, {})).kind(), MessageKind::kRows);
  EXPECT_EQ(shard.Ask(CommitFrame(1, 0, 3, kFlagEnter)).message.header.done, 1u);
  EXPECT_EQ(shard.core().state()->DoneOf(1), 1u);
  EXPECT_EQ(shard.RefusalOf(CommitFrame(1, 5, 4)), NackCode::kStepConflict);
  EXPECT_EQ(shard.Ask(PullFrame(0, 2, 5, {})).kind(), MessageKind::kRows);
  shard.FromWorker(PullFrame(0, 3, 6, {}));
  EXPECT_EQ(shard.core().parked(), 1u);
  EXPECT_THAT(shard.core().WaitingFor(), HasSubstr("rank 1"));
  shard.FromWorker(CommitFrame(1, 1, 7, kFlagLeave));
  EXPECT_EQ(shard.core().parked(), 0u);
}

TEST(ShardCoreProgress, TheHomeShardReportsAfterChangesAndNowAndThen) {
  ShardHarness shard((JobOptions()));
  const auto reports = [&shard](Duration after) {
    shard.Tick(after);
    return shard.outbox().Take(MessageKind::kProgress).size();
  };
  EXPECT_LE(reports(kSecond), 1u);
  shard.Ask(GoodPush());
  EXPECT_EQ(reports(kSecond), 1u);
  EXPECT_EQ(reports(kSecond / 10), 0u);
  EXPECT_EQ(reports(2 * kSecond), 1u) << "a sign of life even when nothing changes";
}

TEST(ShardCore, DropsWhatIsMeantForItsPredecessorOrCameBeforeARewind) {
  ShardHarness shard((JobOptions()));
  shard.FromWorker(Changed(GoodPush(), [](FrameHeader& h) { h.dst_incarnation = 5; }));
  shard.FromWorker(Changed(GoodPush(), [](FrameHeader& h) { h.generation = 0; }));
  EXPECT_TRUE(shard.outbox().Take().empty());
  EXPECT_EQ(shard.core().state()->lsn(), 0u);
}

}  // namespace
}  // namespace capstan
