#include "scheduler/scheduler_core.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/partition_map.h"
#include "proto/scheduler_state.pb.h"
#include "scheduler_harness.h"

namespace capstan {
namespace {

using testing::Body;
using testing::JobOptions;
using testing::kJob;
using testing::kServerIncarnation;
using testing::Member;
using testing::SchedulerHarness;
using testing::Sent;
using ::testing::HasSubstr;
using ::testing::Not;
using Phase = SchedulerCore::Phase;

constexpr Duration kSecond = std::chrono::seconds(1);

TEST(SchedulerJoin, RefusesWhoDoesNotFit) {
  struct Case {
    const char* why;
    std::function<void(Join&)> change;
    const char* says;
  };
  const Case cases[] = {
      {"another release", [](Join& j) { j.set_version("0.9"); }, "it is Capstan 0.9, this job runs 1.0"},
      {"another job", [](Join& j) { j.set_job_id(1); }, "another job"},
      {"no name", [](Join& j) { j.set_name(""); }, "names no process"},
      {"an endless name", [](Join& j) { j.set_name(std::string(100'000, 'x')); }, "printable"},
      {"a name that moves the cursor", [](Join& j) { j.set_name("\x1b[2Jworker"); }, "printable"},
      {"a host that does", [](Join& j) { j.set_host("a\nb"); }, "printable"},
      {"a scheduler", [](Join& j) { j.set_role(SCHEDULER); }, "role 0"},
      {"an old machine", [](Join& j) { j.set_cpu_isa("sse4"); }, "needs avx2"},
      {"too few shards", [](Join& j) { j.clear_shard_endpoint(); }, "start it with --shards=1"},
      {"an address that cannot be dialed", [](Join& j) { j.set_shard_endpoint(0, "nonsense\x1b"); }, "'nonsense?'"},
  };
  for (const Case& c : cases) {
    SchedulerHarness scheduler((JobOptions()));
    Join join = scheduler.JoinOf(scheduler.Server(0));
    c.change(join);
    const JoinReply reply = scheduler.Join(scheduler.Server(0), join);
    EXPECT_FALSE(reply.accepted()) << c.why;
    EXPECT_FALSE(reply.retry()) << c.why;
    EXPECT_THAT(reply.reason(), HasSubstr(c.says)) << c.why;
    EXPECT_LT(reply.reason().size(), 1000u) << c.why;
    for (const std::string& line : scheduler.events().phases) EXPECT_THAT(line, Not(HasSubstr("\x1b"))) << c.why;
    EXPECT_TRUE(scheduler.Join(scheduler.Server(0)).accepted()) << c.why;
  }
}

TEST(SchedulerJoin, ANameBelongsToOneProcess) {
  SchedulerHarness scheduler((JobOptions()));
  const JoinReply first = scheduler.Join(scheduler.Worker(0));
  EXPECT_TRUE(first.accepted());
  EXPECT_EQ(scheduler.Join(scheduler.Worker(0)).node_id(), first.node_id()) << "its reply was lost";
  Member twin = scheduler.Worker(0);
  twin.incarnation += 100;
  const JoinReply reply = scheduler.Join(twin);
  EXPECT_FALSE(reply.accepted());
  EXPECT_TRUE(reply.retry()) << "the first may be about to be found lost";
  EXPECT_THAT(reply.reason(), HasSubstr("worker-0 is taken"));
  EXPECT_THAT(scheduler.Join(scheduler.Worker(1)).reason(), HasSubstr("has its 1 worker already"));
}

TEST(SchedulerJoin, FindsAMemberAgainThatDialsAnew) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  Member again = scheduler.Worker(0);
  again.peer = 99;
  EXPECT_TRUE(scheduler.Join(again).accepted());
  scheduler.core().Fail(ExitCode::kStalled, "test", scheduler.clock().Now());
  bool reached = false;
  for (const Sent& sent : scheduler.outbox().Take(MessageKind::kEnd)) reached |= sent.to == 99;
  EXPECT_TRUE(reached);
}

TEST(SchedulerStart, GoesThroughItsPhasesAndRepeatsWhatIsNotAnswered) {
  JobOptions options;
  options.servers = 2;
  options.workers = 2;
  options.ranks = 3;
  SchedulerHarness scheduler(options);
  scheduler.Join(scheduler.Server(1));
  scheduler.Join(scheduler.Worker(0));
  scheduler.Tick(kSecond);
  EXPECT_THAT(scheduler.core().WaitingFor(scheduler.clock().Now()), HasSubstr("missing: 1 server, 1 worker"));
  EXPECT_THAT(scheduler.core().WaitingFor(scheduler.clock().Now()), HasSubstr("test://server-1/shard-0"));
  EXPECT_GE(scheduler.outbox().Take(MessageKind::kHello).size(), 1u);
  scheduler.JoinAll();
  EXPECT_EQ(scheduler.core().phase(), Phase::kStartingServers);
  std::vector<Sent> starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(Body<Start>(starts[0]).job().shard_endpoint(0), "test://server-0/shard-0") << "by name, not by luck";
  EXPECT_EQ(Body<Start>(starts[0]).job().cpu_isa(), "avx2") << "the lowest of all";
  EXPECT_FALSE(Body<Start>(starts[0]).job().has_plan());
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kStarted, Started());
  scheduler.outbox().Take();
  scheduler.Tick(kSecond);
  starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_EQ(starts.size(), 1u) << "only who has not answered";
  EXPECT_THAT(scheduler.core().WaitingFor(scheduler.clock().Now()), HasSubstr("server-1"));
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kStarted, Started());
  EXPECT_EQ(scheduler.core().phase(), Phase::kStartingServers) << "a STARTED nobody asked for";
  scheduler.SendFromShard(scheduler.Server(1), 0, MessageKind::kStarted, Started());
  EXPECT_EQ(scheduler.core().phase(), Phase::kStartingWorkers);
  starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(Body<Start>(starts[0]).grant_size() + Body<Start>(starts[1]).grant_size(), 3);
}

TEST(SchedulerStart, APlanLargerThanAFrameTravelsInParts) {
  JobOptions options;
  options.split_rows.assign(400'000, 1);
  SchedulerHarness scheduler(options);
  scheduler.JoinAll();
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kStarted, Started());
  ControlJoiner joiner(size_t{64} << 20);
  std::optional<std::string> whole;
  const std::vector<Sent> starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_GT(starts.size(), 1u);
  for (const Sent& sent : starts) {
    absl::StatusOr<std::optional<std::string>> joined = joiner.Add(sent.message);
    ASSERT_TRUE(joined.ok());
    if (joined->has_value()) whole = *joined;
  }
  Start start;
  ASSERT_TRUE(whole.has_value() && start.ParseFromString(*whole));
  EXPECT_EQ(start.job().plan().split_size(), 400'000);
}

TEST(SchedulerTimeouts, NameWhoIsMissing) {
  JobOptions options;
  options.workers = 2;
  {
    SchedulerHarness scheduler(options);
    scheduler.Join(scheduler.Worker(0));
    scheduler.Wait(61 * kSecond);
    EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kJoinTimeout);
    EXPECT_THAT(scheduler.core().reason(), HasSubstr("missing: 1 server, 1 worker"));
  }
  {
    SchedulerHarness scheduler(options);
    scheduler.Join(scheduler.Server(0));
    for (uint32_t i = 0; i < 2; ++i) scheduler.Join(scheduler.Worker(i));
    scheduler.Wait(61 * kSecond);
    EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kJoinTimeout);
    EXPECT_THAT(scheduler.core().reason(), HasSubstr("cannot be reached at test://server-0/shard-0: check --advertise"));
  }
  {
    SchedulerHarness scheduler(options);
    scheduler.StartTraining();
    ASSERT_EQ(scheduler.core().phase(), Phase::kTraining);
    Progress progress;
    progress.set_version(1);
    progress.set_waiting_for("rank 1 to commit step 1");
    scheduler.Wait(59 * kSecond);
    scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kProgress, progress);
    scheduler.Wait(59 * kSecond);
    EXPECT_EQ(scheduler.core().phase(), Phase::kTraining) << "a step in time";
    scheduler.Wait(2 * kSecond);
    EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kStalled);
    EXPECT_THAT(scheduler.core().reason(), HasSubstr("rank 1 to commit step 1"));
  }
  {
    SchedulerHarness scheduler(options);
    scheduler.StartTraining();
    scheduler.FinishTraining();
    ASSERT_EQ(scheduler.core().phase(), Phase::kSaving);
    scheduler.Wait(61 * kSecond);
    EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kStalled);
    EXPECT_THAT(scheduler.core().reason(), HasSubstr("no part of server-0 (shard 0)"));
  }
}

TEST(SchedulerHeartbeats, ALostNodeEndsTheJobUnderItsName) {
  for (const bool server : {true, false}) {
    SchedulerHarness scheduler(JobOptions(), /*heartbeats=*/true);
    scheduler.StartTraining();
    const Member lost = server ? scheduler.Server(0) : scheduler.Worker(0);
    const Member alive = server ? scheduler.Worker(0) : scheduler.Server(0);
    const NodeId id = server ? scheduler.WorkerId(0) : 1;
    for (int i = 0; i < 12 && scheduler.core().phase() == Phase::kTraining; ++i) {
      scheduler.Send(alive, id, MessageKind::kHeartbeat, Heartbeat());
      scheduler.Tick(kSecond / 2);
    }
    EXPECT_EQ(scheduler.core().exit_code(), server ? ExitCode::kServerLost : ExitCode::kWorkerLost);
    EXPECT_THAT(scheduler.core().reason(), HasSubstr(lost.name));
    EXPECT_EQ(scheduler.outbox().Take(MessageKind::kHeartbeatReply).size(), 10u);
  }
}

TEST(SchedulerHeartbeats, ItsOwnPauseCountsAgainstNobody) {
  SchedulerHarness scheduler(JobOptions(), /*heartbeats=*/true);
  scheduler.StartTraining();
  scheduler.Tick(kSecond / 10);
  scheduler.Tick(100 * kSecond);  // the process was stopped
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining);
  scheduler.Wait(6 * kSecond);
  EXPECT_EQ(scheduler.core().phase(), Phase::kEnding) << "but afterwards they must be heard";
}

TEST(SchedulerRanks, AWorkerSpeaksForItsOwnRanksOnly) {
  JobOptions options;
  options.workers = 2;
  options.consistency = "async";
  SchedulerHarness scheduler(options);
  scheduler.StartTraining();
  LeaseRequest request;
  request.set_rank(1);
  request.set_term(1);
  request.set_sequence(1);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseRequest, request);
  EXPECT_TRUE(scheduler.outbox().Take(MessageKind::kLeaseReply).empty());
  scheduler.Send(scheduler.Worker(1), scheduler.WorkerId(1), MessageKind::kLeaseRequest, request);
  const std::vector<Sent> replies = scheduler.outbox().Take(MessageKind::kLeaseReply);
  ASSERT_EQ(replies.size(), 1u);
  LeaseDone done;
  done.set_rank(0);
  done.set_term(1);
  done.set_lease(Body<LeaseReply>(replies[0]).lease());
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseDone, done);
  EXPECT_TRUE(scheduler.outbox().Take(MessageKind::kLeaseDoneReply).empty()) << "rank 0 never had that lease";
  RankDone rank_done;
  rank_done.set_rank(1);
  rank_done.set_term(1);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kRankDone, rank_done);
  EXPECT_TRUE(scheduler.outbox().Take(MessageKind::kRankDoneReply).empty());
  rank_done.set_term(2);
  scheduler.Send(scheduler.Worker(1), scheduler.WorkerId(1), MessageKind::kRankDone, rank_done);
  EXPECT_TRUE(scheduler.outbox().Take(MessageKind::kRankDoneReply).empty()) << "of a term that was never granted";
  Failed failed;
  failed.set_exit_code(3);
  scheduler.Deliver(51, MakeControl(scheduler.From(scheduler.Worker(1), 77, MessageKind::kFailed), failed));
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining) << "from nobody";
}

TEST(SchedulerFailed, EndsTheJobInTheNameOfTheNode) {
  struct Case {
    int code;
    const char* reason;
    ExitCode wanted;
    const char* says;
  };
  const Case cases[] = {
      {3, "worker-0: no such file", ExitCode::kData, "worker-0: no such file"},
      {0, "worker-0: all is well", ExitCode::kModelError, "worker-0: all is well"},
      {-7, "worker-1: I am another", ExitCode::kModelError, "worker-0: worker-1: I am another"},
      {1'000'000, "\x1b[2J", ExitCode::kModelError, "worker-0: ?[2J"},
  };
  for (const Case& c : cases) {
    SchedulerHarness scheduler((JobOptions()));
    scheduler.StartTraining();
    Failed failed;
    failed.set_exit_code(c.code);
    failed.set_reason(c.reason);
    scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kFailed, failed);
    EXPECT_EQ(scheduler.core().exit_code(), c.wanted);
    EXPECT_EQ(scheduler.core().reason(), c.says);
    EXPECT_EQ(scheduler.outbox().Take(MessageKind::kEnd).size(), 2u);
    failed.set_exit_code(5);
    scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kFailed, failed);
    EXPECT_EQ(scheduler.core().exit_code(), c.wanted) << "the first cause wins";
  }
}

// A job that has come to its last checkpoint.
struct StoringJob {
  explicit StoringJob(const JobOptions& options = JobOptions()) : scheduler(options) {
    scheduler.StartTraining();
    scheduler.FinishTraining();
  }
  SchedulerHarness scheduler;
};

TEST(SchedulerStore, EndsWithAFullCheckpointAndTheModelsHash) {
  JobOptions options;
  options.servers = 2;
  StoringJob job(options);
  EXPECT_EQ(job.scheduler.core().phase(), Phase::kSaving);
  std::vector<Sent> orders = job.scheduler.outbox().Take(MessageKind::kCut);
  ASSERT_EQ(orders.size(), 2u);
  const Cut order = Body<Cut>(orders[1]);
  EXPECT_TRUE(order.now());
  EXPECT_TRUE(order.model_sha256());
  EXPECT_EQ(order.parent(), 0u);
  EXPECT_EQ(order.folder(), "root/C1.tmp/shard-0001");
  EXPECT_EQ(order.token(), "token");
  job.scheduler.SendFromShard(job.scheduler.Server(0), 0, MessageKind::kCutState, job.scheduler.WrittenBy(0));
  job.scheduler.outbox().Take();
  job.scheduler.Wait(kSecond);
  orders = job.scheduler.outbox().Take(MessageKind::kCut);
  ASSERT_FALSE(orders.empty()) << "asked again";
  EXPECT_EQ(Body<Cut>(orders[0]).folder(), "root/C1.tmp/shard-0001") << "and only the one that has not answered";
  EXPECT_THAT(job.scheduler.core().WaitingFor(job.scheduler.clock().Now()), HasSubstr("no part of server-1 (shard 1)"));
  CutState last = job.scheduler.WrittenBy(1);
  last.mutable_progress()->set_version(7);
  last.mutable_progress()->set_examples(70);
  job.scheduler.Deliver(999, MakeControl(job.scheduler.From(job.scheduler.Server(1), 2, MessageKind::kCutState), last));
  EXPECT_EQ(job.scheduler.core().phase(), Phase::kSaving) << "not by the shard's connection";
  job.scheduler.SendFromShard(job.scheduler.Server(1), 0, MessageKind::kCutState, last);
  job.scheduler.Tick(kSecond / 10);
  EXPECT_EQ(job.scheduler.core().phase(), Phase::kEnding);
  EXPECT_EQ(job.scheduler.core().exit_code(), ExitCode::kDone);
  EXPECT_EQ(job.scheduler.core().model_sha256(), "sha");
  EXPECT_EQ(job.scheduler.core().last_progress().examples, 70u);
  EXPECT_EQ(job.scheduler.store().part_counts, (std::vector<size_t>{2}));
}

TEST(SchedulerStore, TriesThreeTimesThenNamesTheServer) {
  StoringJob job;
  for (int tries = 1; tries <= 3; ++tries) {
    EXPECT_EQ(job.scheduler.core().phase(), Phase::kSaving) << tries;
    EXPECT_EQ(job.scheduler.cut_id(), static_cast<uint64_t>(tries));
    CutState failed = job.scheduler.WrittenBy(0);
    failed.set_state(CutState::FAILED);
    failed.set_error("disk full\n");
    job.scheduler.SendFromShard(job.scheduler.Server(0), 0, MessageKind::kCutState, failed);
    job.scheduler.Wait(3 * kSecond);
  }
  EXPECT_EQ(job.scheduler.core().exit_code(), ExitCode::kCheckpoint);
  EXPECT_THAT(job.scheduler.core().reason(), HasSubstr("server-0: disk full"));
  EXPECT_EQ(job.scheduler.store().abandoned.size(), 3u);
}

TEST(SchedulerStore, AnAnswerThatMakesNoSenseChangesNothing) {
  StoringJob job;
  CutState other = job.scheduler.WrittenBy(0);
  other.set_id(99);
  job.scheduler.SendFromShard(job.scheduler.Server(0), 0, MessageKind::kCutState, other);
  Message message = MakeControl(job.scheduler.From(job.scheduler.Server(0), 1, MessageKind::kCutState), other);
  job.scheduler.Deliver(job.scheduler.outbox().Connect("test://server-0/shard-0"),
                        MakeControlFrame(message.header, "\xff\xff\xff"));
  EXPECT_EQ(job.scheduler.core().phase(), Phase::kSaving);
  EXPECT_TRUE(job.scheduler.store().heads.empty());
}

TEST(SchedulerPreempt, TakesACheckpointThenEndsWith203) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.core().Preempt("SIGTERM", scheduler.clock().Now());
  scheduler.Tick(kSecond / 20);
  const std::vector<Sent> orders = scheduler.outbox().Take(MessageKind::kCut);
  ASSERT_FALSE(orders.empty());
  EXPECT_TRUE(Body<Cut>(orders.back()).has_step()) << "sync: a step that all shards can still reach";
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining);
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kCutState, scheduler.WrittenBy(0));
  scheduler.Tick(kSecond / 20);
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kPreempted);
  EXPECT_THAT(scheduler.core().reason(), HasSubstr("SIGTERM"));
  EXPECT_EQ(scheduler.store().heads.size(), 1u);
}

TEST(SchedulerPreempt, DoesNotInsistOnACheckpoint) {
  SchedulerHarness impatient((JobOptions()));
  impatient.StartTraining();
  impatient.core().Preempt("SIGTERM", impatient.clock().Now());
  impatient.core().Preempt("SIGTERM", impatient.clock().Now());
  EXPECT_EQ(impatient.core().phase(), Phase::kEnding) << "asked twice";
  SchedulerHarness full((JobOptions()));
  full.StartTraining();
  full.store().fail_begin = Unavailable("disk full");
  full.core().Preempt("SIGTERM", full.clock().Now());
  full.Tick(kSecond / 20);
  EXPECT_EQ(full.core().exit_code(), ExitCode::kPreempted);
  EXPECT_THAT(full.core().reason(), HasSubstr("no checkpoint could be taken"));
  SchedulerHarness node((JobOptions()));
  node.StartTraining();
  Failed failed;
  failed.set_exit_code(203);
  failed.set_reason("asked to end (SIGTERM)");
  node.Send(node.Worker(0), node.WorkerId(0), MessageKind::kFailed, failed);
  EXPECT_EQ(node.core().phase(), Phase::kTraining) << "first a checkpoint";
  node.Tick(kSecond / 20);
  EXPECT_FALSE(node.outbox().Take(MessageKind::kCut).empty());
}

TEST(SchedulerState, HoldsWhatMustOutliveTheProcess) {
  JobOptions options;
  options.servers = 2;
  options.consistency = "async";
  SchedulerHarness scheduler(options);
  const uint64_t before = scheduler.core().state_changes();
  scheduler.StartTraining();
  EXPECT_GT(scheduler.core().state_changes(), before);
  SchedulerState state;
  scheduler.core().FillState(&state);
  EXPECT_EQ(state.phase(), SchedulerState::TRAINING);
  EXPECT_EQ(state.job_id(), testing::kJob);
  ASSERT_EQ(state.member_size(), 3);
  EXPECT_EQ(state.member(1).name(), "server-1");
  EXPECT_EQ(state.member(1).shard_endpoint(0), "test://server-1/shard-0");
  ASSERT_EQ(state.rank_size(), 2);
  EXPECT_EQ(state.rank(1).term(), 1u);
  EXPECT_TRUE(state.rank(1).has_owner());
  ASSERT_EQ(state.map().shard_size(), 2);
  EXPECT_EQ(state.map().shard(1).owned(0).first(), 4u);
  EXPECT_EQ(state.map().shard(1).owned(0).count(), 4u);
  EXPECT_EQ(state.leases().closed_below(), 1u);
}

TEST(SchedulerEnd, RepeatsEndUntilAllSaidBye) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kBye, End());
  scheduler.FinishTraining();
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kCutState, scheduler.WrittenBy(0));
  scheduler.Tick(kSecond / 20);
  EXPECT_EQ(scheduler.outbox().Take(MessageKind::kEnd).size(), 2u) << "an early BYE counts for nothing";
  scheduler.Send(scheduler.Server(0), 1, MessageKind::kBye, End());
  scheduler.Tick(kSecond);
  EXPECT_EQ(scheduler.outbox().Take(MessageKind::kEnd).size(), 1u);
  EXPECT_FALSE(scheduler.core().finished());
  EXPECT_THAT(scheduler.core().WaitingFor(scheduler.clock().Now()), HasSubstr("worker-0"));
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kBye, End());
  scheduler.Tick(kSecond / 10);
  EXPECT_TRUE(scheduler.core().finished());
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kDone);
  EXPECT_EQ(scheduler.store().heads.size(), 1u);
}

TEST(SchedulerEnd, DoesNotWaitForEverForABye) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.core().Fail(ExitCode::kInterrupted, "interrupted", scheduler.clock().Now());
  scheduler.Wait(4 * kSecond);
  EXPECT_TRUE(scheduler.core().finished());
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kInterrupted);
  EXPECT_THAT(scheduler.Join(scheduler.Worker(1)).reason(), HasSubstr("ended"));
}

TEST(SchedulerLeases, ClosingsGoToShardsUntilTheyAreConfirmed) {
  JobOptions options;
  options.consistency = "async";
  options.ranks = 1;
  SchedulerHarness scheduler(options);
  scheduler.StartTraining();
  LeaseRequest request;
  request.set_rank(0);
  request.set_term(1);
  request.set_sequence(1);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseRequest, request);
  LeaseDone done;
  done.set_rank(0);
  done.set_term(1);
  done.set_lease(1);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseDone, done);
  scheduler.outbox().Take();
  for (int i = 0; i < 2; ++i) {
    scheduler.Tick(kSecond);
    const std::vector<Sent> closings = scheduler.outbox().Take(MessageKind::kLeaseClose);
    ASSERT_EQ(closings.size(), 1u);
    EXPECT_EQ(Body<LeaseClose>(closings[0]).below(), 2u);
  }
  LeaseClose seen;
  seen.set_sequence(~uint64_t{0});  // no more than was sent is believed
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kLeaseClosed, seen);
  scheduler.Tick(kSecond);
  EXPECT_TRUE(scheduler.outbox().Take(MessageKind::kLeaseClose).empty());
  request.set_sequence(2);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseRequest, request);
  done.set_lease(2);
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kLeaseDone, done);
  scheduler.Tick(kSecond);
  EXPECT_EQ(scheduler.outbox().Take(MessageKind::kLeaseClose).size(), 1u);
}

TEST(Roster, DescribesWhoIsThereAndWhoIsNot) {
  Roster roster(2, 1);
  MemberInfo info;
  info.role = MemberRole::kServer;
  info.host = "h";
  info.pid = 7;
  for (const char* name : {"server-10", "server-2"}) {
    info.name = name;
    info.incarnation += 5;
    roster.Add(info);
  }
  EXPECT_EQ(roster.OfRole(MemberRole::kServer)[0]->name, "server-2");
  EXPECT_EQ(roster.Describe(),
            "have 2 of 2 servers [server-10 (pid 7 on h), server-2 (pid 7 on h)], 0 of 1 worker; missing: 1 worker");
  EXPECT_FALSE(roster.Complete());
  EXPECT_NE(roster.Find(1, 5), nullptr);
  EXPECT_EQ(roster.Find(1, 10), nullptr);
  EXPECT_EQ(roster.FindName("server-3"), nullptr);
}

}  // namespace
}  // namespace capstan
