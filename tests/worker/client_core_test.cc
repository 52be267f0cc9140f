#include "worker/client_core.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client_harness.h"

namespace capstan {
namespace {

using testing::Body;
using testing::ClientHarness;
using testing::Info;
using testing::JobOptions;
using testing::kJob;
using testing::kServerIncarnation;
using testing::kWorkerIncarnation;
using testing::OrderHeader;
using testing::Sealed;
using testing::Sent;
using ::testing::HasSubstr;

constexpr Duration kClientSecond = std::chrono::seconds(1);

JobOptions Mode(const std::string& consistency, uint32_t ranks = 1, uint32_t servers = 2) {
  JobOptions options;
  options.consistency = consistency;
  options.ranks = ranks;
  options.servers = servers;
  options.epochs = 1;
  options.split_rows = {4};  // two batches
  return options;
}

RowsInfo At(Step version, uint32_t epoch = 0, Step epoch_first = 0, bool job_done = false) {
  RowsInfo info;
  info.version = version;
  info.epoch = epoch;
  info.epoch_first = epoch_first;
  info.job_done = job_done ? 1 : 0;
  return info;
}

// ---- the ranks ----------------------------------------------------------------------------------------------

TEST(RankMachineSync, PullsComputesPushesAndCommitsWithTheNextPull) {
  ClientHarness client(Mode("sync"));
  std::vector<Sent> pulls = client.Requests();
  ASSERT_EQ(pulls.size(), 2u) << "every shard; first without keys, to learn where the epoch stands";
  EXPECT_EQ(pulls[0].kind(), MessageKind::kPull);
  for (const Sent& pull : pulls) client.Deliver(pull.to, ClientHarness::Rows(pull, At(0)));
  ASSERT_EQ(client.driver().prepares.size(), 1u);
  EXPECT_EQ(client.driver().prepares[0].batch, (BatchId{0, 0, 0}));
  EXPECT_EQ(client.driver().prepares[0].upcoming, (BatchId{0, 0, 1}));
  client.Prepared();
  client.AnswerPulls(At(0));
  ASSERT_EQ(client.driver().computes.size(), 1u);
  EXPECT_EQ(client.driver().infos[0].optimizer_step, 1u);
  EXPECT_EQ(client.core().WaitingFor(client.now()), "its own rank 0 computes step 0");
  client.Computed();
  std::vector<Sent> pushes = client.Requests();
  ASSERT_EQ(pushes.size(), 2u);
  client.Acknowledge(pushes[1]);
  client.Acknowledge(pushes[1]);
  EXPECT_EQ(client.machine().step(), 0u) << "one shard, twice, is not two shards";
  client.Acknowledge(pushes[0]);
  EXPECT_EQ(client.machine().step(), 1u);
  client.Prepared();
  for (const Sent& pull : client.Requests()) {
    EXPECT_EQ(pull.message.header.done, 1u) << "the commit";
    client.Deliver(pull.to, ClientHarness::Rows(pull, At(1)));
  }
  client.Computed();
  client.AcknowledgeAll();
  EXPECT_EQ(client.driver().prepares.size(), 2u) << "no batch is left";
  client.AnswerPulls(At(2));
  for (const Sent& push : client.Requests()) {
    EXPECT_EQ(push.message.header.flags, kFlagEnd);
    EXPECT_EQ(ReadStruct<PushInfo>(*ParseBody(push.message.header.sections, push.message.body),
                                   SectionKind::kPushInfo)->examples, 0u);
    client.Acknowledge(push);
  }
  const std::vector<Sent> pull_of_the_end = client.Requests();
  EXPECT_EQ(client.Asked().size(), 1u) << "until here the scheduler heard of the START alone";
  for (const Sent& pull : pull_of_the_end) client.Deliver(pull.to, ClientHarness::Rows(pull, At(3, 1, 3, true)));
  const std::vector<Sent> asked = client.Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].kind(), MessageKind::kRankDone);
}

TEST(RankMachineSync, ReportsItsEndUntilThatIsConfirmed) {
  JobOptions options = Mode("sync", 1, 1);
  options.split_rows = {};
  ClientHarness client(options);
  client.AnswerPulls(At(0));
  client.AcknowledgeAll();  // of its END
  client.AnswerPulls(At(1, 1, 1, true));
  for (int i = 0; i < 3; ++i) {
    const std::vector<Sent> asked = client.Asked();
    ASSERT_FALSE(asked.empty());
    EXPECT_EQ(asked.back().kind(), MessageKind::kRankDone);
    EXPECT_THAT(client.core().WaitingFor(client.now()), HasSubstr("the scheduler's answer about rank done 0"));
    client.Tick(3 * kClientSecond);
  }
  RankDone done;
  done.set_rank(5);
  client.FromScheduler(MessageKind::kRankDoneReply, done);
  EXPECT_FALSE(client.machine().finished()) << "about another rank";
  done.set_rank(0);
  client.FromScheduler(MessageKind::kRankDoneReply, done);
  client.FromScheduler(MessageKind::kRankDoneReply, done);
  EXPECT_TRUE(client.machine().finished());
  EXPECT_EQ(client.driver().finished.size(), 1u);
  EXPECT_EQ(client.core().WaitingFor(client.now()), "the scheduler's END");
}

TEST(RankMachineSync, AWrongVersionEndsTheJob) {
  ClientHarness client(Mode("sync"));
  const std::vector<Sent> pulls = client.Requests();
  Message rows = ClientHarness::Rows(pulls[0], At(0));
  rows.header.step = 7;
  client.Deliver(pulls[0].to, Sealed(rows));
  EXPECT_TRUE(client.core().member().failing());
  EXPECT_EQ(Body<Failed>(client.Asked().back()).exit_code(), 1);
}

LeaseReply Granted(uint64_t sequence, LeaseId lease, uint32_t first, uint32_t count, Rank rank = 0) {
  LeaseReply reply;
  reply.set_rank(rank);
  reply.set_sequence(sequence);
  reply.set_lease(lease);
  reply.set_first(first);
  reply.set_count(count);
  return reply;
}
LeaseReply NoMore(uint64_t sequence) {
  LeaseReply reply;
  reply.set_answer(LeaseReply::NO_MORE);
  reply.set_sequence(sequence);
  return reply;
}

void DoBatch(ClientHarness& client) {
  client.Prepared();
  client.AnswerPulls(At(0));
  client.Computed();
  client.AcknowledgeAll();
}

TEST(RankMachineAsync, WorksThroughLeasesAndAsksAheadOfNeed) {
  ClientHarness client(Mode("async"));
  EXPECT_EQ(client.Asked().back().kind(), MessageKind::kLeaseRequest);
  client.FromScheduler(MessageKind::kLeaseReply, Granted(1, 10, 0, 2));
  ASSERT_EQ(client.driver().prepares.size(), 1u);
  EXPECT_TRUE(client.Asked().empty()) << "not before the last batch of the lease";
  DoBatch(client);
  ASSERT_EQ(client.driver().prepares.size(), 2u);
  EXPECT_EQ(client.driver().prepares[1].batch.index, 1u);
  const std::vector<Sent> asked = client.Asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(Body<LeaseRequest>(asked[0]).sequence(), 2u);
  client.FromScheduler(MessageKind::kLeaseReply, NoMore(2));
  DoBatch(client);
  const std::vector<Sent> reports = client.Asked();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].kind(), MessageKind::kLeaseDone);
  EXPECT_EQ(Body<LeaseDone>(reports[0]).lease(), 10u);
  client.FromScheduler(MessageKind::kLeaseDoneReply, Body<LeaseDone>(reports[0]));
  EXPECT_EQ(client.Asked().back().kind(), MessageKind::kRankDone);
}

TEST(RankMachineAsync, AnswersToOldRequestsChangeNothing) {
  ClientHarness client(Mode("async"));
  client.FromScheduler(MessageKind::kLeaseReply, Granted(7, 99, 0, 1));
  client.FromScheduler(MessageKind::kLeaseReply, Granted(1, 99, 0, 1, /*rank=*/4));
  EXPECT_TRUE(client.driver().prepares.empty());
  client.FromScheduler(MessageKind::kLeaseReply, Granted(1, 10, 0, 1));
  DoBatch(client);  // asks for the next
  client.FromScheduler(MessageKind::kLeaseReply, Granted(1, 10, 0, 1));
  EXPECT_EQ(client.driver().prepares.size(), 1u) << "a doubled answer is no new lease";
  client.FromScheduler(MessageKind::kLeaseReply, Granted(2, 11, 1, 1));
  EXPECT_EQ(client.driver().prepares.size(), 2u);
}

TEST(RankMachineSsp, EntersAtTheHighestClockAndLeavesWithoutALease) {
  ClientHarness client(Mode("ssp:1"));
  client.FromScheduler(MessageKind::kLeaseReply, Granted(1, 10, 0, 1));
  EXPECT_TRUE(client.driver().prepares.empty()) << "first it enters";
  EXPECT_FALSE(client.machine().in_minimum());
  Step clock = 5;
  for (const Sent& enter : client.Requests()) {
    EXPECT_EQ(enter.message.header.flags, kFlagEnter);
    Message ack = ClientHarness::AnswerTo(enter, MessageKind::kAck);
    ack.header.done = clock++;
    client.Deliver(enter.to, Sealed(ack));
  }
  EXPECT_EQ(client.machine().step(), 6u);
  EXPECT_TRUE(client.machine().in_minimum());
  client.Prepared();
  client.AnswerPulls(At(0));
  client.Computed();
  for (const Sent& push : client.Requests()) client.Acknowledge(push);
  const std::vector<Sent> leaves = client.Requests();
  ASSERT_EQ(leaves.size(), 2u) << "no next lease yet";
  EXPECT_EQ(leaves[0].message.header.flags, kFlagLeave);
  EXPECT_EQ(leaves[0].message.header.done, 7u);
  client.FromScheduler(MessageKind::kLeaseReply, Granted(2, 11, 1, 1));
  EXPECT_EQ(client.driver().prepares.size(), 1u) << "it is still leaving";
  for (const Sent& leave : leaves) client.Acknowledge(leave);
  const std::vector<Sent> enters = client.Requests();
  ASSERT_EQ(enters.size(), 2u);
  EXPECT_EQ(enters[0].message.header.flags, kFlagEnter);
}

TEST(ClientCore, HostsSeveralRanksNoneOfWhichWaitsForAnother) {
  ClientHarness client(Mode("sync", 2, 1), {0, 1});
  const std::vector<Sent> pulls = client.Requests();
  ASSERT_EQ(pulls.size(), 2u);
  client.Deliver(pulls[1].to, ClientHarness::Rows(pulls[1], At(0)));
  EXPECT_EQ(client.Requests().size(), 1u) << "rank 1 has no data: it pushes its END while rank 0 still waits";
}

// ---- frames that do not fit ---------------------------------------------------------------------------------

TEST(ClientCore, IgnoresWhatIsNotForIt) {
  struct Case {
    const char* why;
    std::function<void(FrameHeader&)> change;
  };
  const Case cases[] = {
      {"another job", [](FrameHeader& h) { h.job = 1; }},
      {"another process", [](FrameHeader& h) { h.dst_incarnation = 1; }},
      {"nobody in particular", [](FrameHeader& h) { h.dst_incarnation = 0; }},
      {"another generation", [](FrameHeader& h) { h.generation = 2; }},
      {"an old generation", [](FrameHeader& h) { h.generation = 0; }},
      {"another term", [](FrameHeader& h) { h.rank_term = 2; }},
      {"a request that was never made", [](FrameHeader& h) { h.request = 999; }},
      {"a part that was not asked for", [](FrameHeader& h) { h.part = 1; h.parts = 2; }},
      {"an acknowledgement of a pull", [](FrameHeader& h) { h.kind = static_cast<uint16_t>(MessageKind::kAck); }},
      {"a kind for others", [](FrameHeader& h) { h.kind = static_cast<uint16_t>(MessageKind::kPull); }},
  };
  for (const Case& c : cases) {
    ClientHarness client(Mode("sync", 1, 1));
    const Sent pull = client.Requests().at(0);
    Message rows = ClientHarness::Rows(pull, At(0));
    const Message good = rows;
    c.change(rows.header);
    client.Deliver(pull.to, Sealed(rows));
    EXPECT_TRUE(client.driver().prepares.empty()) << c.why;
    client.Deliver(12345, good);
    EXPECT_TRUE(client.driver().prepares.empty()) << c.why << ": an unknown peer";
    EXPECT_FALSE(client.core().member().failing()) << c.why;
    client.Deliver(pull.to, good);
    EXPECT_EQ(client.driver().prepares.size(), 1u) << c.why << ": the right answer still counts";
  }
}

TEST(ClientCore, ReactsToRefusalsByTheirCode) {
  struct Case {
    NackCode code;
    bool fails;
    int exit_code;
  };
  const Case cases[] = {
      {NackCode::kNotReady, false, 0},     {NackCode::kOverloaded, false, 0},       {NackCode::kMalformed, true, 1},
      {NackCode::kWrongTerm, true, 1},     {NackCode::kWrongGeneration, true, 1},   {NackCode::kWrongMap, true, 1},
      {NackCode::kWrongJob, true, 201},    {NackCode::kStepConflict, true, 1},      {NackCode{12345}, true, 1},
  };
  for (const Case& c : cases) {
    ClientHarness other(Mode("sync", 1, 1));
    const Sent pull = other.Requests().at(0);
    Nack nack;
    nack.set_code(static_cast<uint32_t>(c.code));
    nack.set_reason("server-0/shard-0: because\x1b");
    const std::string body = nack.SerializeAsString();
    other.Asked();
    other.Deliver(pull.to, ClientHarness::AnswerTo(pull, MessageKind::kNack, Buffer::CopyOf(body.data(), body.size())));
    EXPECT_EQ(other.core().member().failing(), c.fails);
    if (c.fails) {
      const auto failed = Body<Failed>(other.Asked().back());
      EXPECT_EQ(failed.exit_code(), c.exit_code);
      EXPECT_EQ(failed.reason(), "worker-0: server-0/shard-0: because?");
      other.Tick(10 * kClientSecond);
      EXPECT_TRUE(other.Requests().empty()) << "after a failure nothing goes to a shard";
    } else {
      other.Tick(kClientSecond / 2);
      EXPECT_EQ(other.Requests().size(), 1u) << "soon again";
    }
  }
}

TEST(ClientCore, RefusesALeaseThatIsNotInThePlan) {
  struct Case {
    const char* why;
    std::function<void(LeaseReply&)> change;
  };
  const Case cases[] = {
      {"a split that is not there", [](LeaseReply& r) { r.set_split(1); }},
      {"more batches than there are", [](LeaseReply& r) { r.set_count(3); }},
      {"batches that overflow", [](LeaseReply& r) { r.set_first(~0u); }},
      {"no batch", [](LeaseReply& r) { r.set_count(0); }},
      {"no id", [](LeaseReply& r) { r.set_lease(0); }},
      {"an epoch after the last", [](LeaseReply& r) { r.set_epoch(1); }},
  };
  for (const Case& c : cases) {
    ClientHarness client(Mode("async", 1, 1));
    LeaseReply reply = Granted(1, 10, 0, 2);
    c.change(reply);
    client.FromScheduler(MessageKind::kLeaseReply, reply);
    EXPECT_TRUE(client.core().member().failing()) << c.why;
    EXPECT_TRUE(client.driver().prepares.empty()) << c.why;
  }
}

TEST(ClientCore, RefusesAStartThatContradictsItself) {
  struct Case {
    const char* why;
    std::function<void(Start&)> change;
  };
  const Case cases[] = {
      {"a rank out of range", [](Start& s) { s.mutable_grant(0)->set_rank(1); }},
      {"a rank twice", [](Start& s) { *s.add_grant() = s.grant(0); }},
      {"no shards", [](Start& s) { s.mutable_job()->clear_shard_endpoint(); }},
      {"a strange consistency", [](Start& s) { s.mutable_job()->mutable_config()->set_consistency("x"); }},
      {"batches of no rows", [](Start& s) { s.mutable_job()->mutable_config()->mutable_batch()->set_micro(0); }},
      {"batches that overflow",
       [](Start& s) {
         s.mutable_job()->mutable_config()->mutable_batch()->set_micro(1u << 31);
         s.mutable_job()->mutable_config()->mutable_batch()->set_accumulation(2);
       }},
      {"an address that cannot be dialed", [](Start& s) { s.mutable_job()->set_shard_endpoint(0, "nonsense"); }},
  };
  for (const Case& c : cases) {
    ClientHarness client(Mode("sync", 1, 1), {0}, /*start=*/false);
    Start start = client.StartOrder();
    c.change(start);
    client.FromScheduler(MessageKind::kStart, start);
    EXPECT_TRUE(client.core().member().failing()) << c.why;
    for (const Sent& sent : client.Asked()) EXPECT_NE(sent.kind(), MessageKind::kStarted) << c.why;
  }
}

TEST(ClientCore, StartMayComeInPartsAndAgain) {
  ClientHarness client(Mode("sync", 1, 1), {0}, /*start=*/false);
  Start start = client.StartOrder();
  start.mutable_job()->mutable_recipe()->add_column(std::string(kMaxBodyBytes, 'x'));
  const std::vector<Message> parts =
      SplitControl(OrderHeader(MessageKind::kStart, kWorkerIncarnation), start.SerializeAsString());
  const PeerId scheduler = client.outbox().Connect("test://scheduler");
  client.Deliver(scheduler, parts.at(1));
  EXPECT_EQ(client.core().WaitingFor(client.now()), "the scheduler's START");
  client.Deliver(scheduler, parts.at(0));
  EXPECT_EQ(client.Requests().size(), 1u);
  client.Deliver(scheduler, parts.at(0));
  EXPECT_EQ(client.Requests().size(), 0u) << "the ranks began once";
  EXPECT_EQ(client.Asked().size(), 2u) << "STARTED is said again";
}

TEST(ClientCore, WhatTheTrainerCannotDoEndsTheJobWithItsCode) {
  struct Case {
    absl::Status status;
    int exit_code;
  };
  const Case cases[] = {
      {InvalidArgument("line 3"), 3}, {DataLoss("cut"), 3}, {NotFound("gone"), 3}, {Internal("oops"), 1}};
  for (const Case& c : cases) {
    ClientHarness client(Mode("sync", 1, 1));
    client.AnswerPulls(At(0));
    client.core().Prepared(0, 0, c.status);
    EXPECT_EQ(Body<Failed>(client.Asked().back()).exit_code(), c.exit_code);
  }
}

TEST(ClientCore, EndStopsItWhateverComesAfter) {
  ClientHarness client(Mode("sync", 1, 1));
  const Sent pull = client.Requests().at(0);
  End end;
  end.set_exit_code(130);
  client.FromScheduler(MessageKind::kEnd, end);
  EXPECT_TRUE(client.core().ended());
  client.FromScheduler(MessageKind::kStart, client.StartOrder());
  client.Deliver(pull.to, ClientHarness::Rows(pull, At(0)));
  client.core().Prepared(0, 0, client.Parts());
  client.Tick(10 * kClientSecond);
  EXPECT_TRUE(client.Requests().empty());
  EXPECT_TRUE(client.driver().prepares.empty());
}

}  // namespace
}  // namespace capstan
