// The scheduler and its checkpoints: how a job begins from one, when shards get their orders, how a job ends with one.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler_harness.h"

namespace capstan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::Body;
using testing::JobOptions;
using testing::SchedulerHarness;
using testing::Sent;
using Phase = SchedulerCore::Phase;

constexpr Duration kShortTick = std::chrono::milliseconds(50);

JobOptions Mode(const std::string& consistency) {
  JobOptions options;
  options.consistency = consistency;
  options.ranks = 1;
  return options;
}

std::vector<Cut> OrdersOf(SchedulerHarness& scheduler) {
  std::vector<Cut> orders;
  for (const Sent& sent : scheduler.outbox().Take(MessageKind::kCut)) orders.push_back(Body<Cut>(sent));
  return orders;
}

// ---- the beginning ----------------------------------------------------------------------------------------------

SchedulerOptions::From AtStep12() {
  SchedulerOptions::From from;
  from.folder = "old/C000003";
  from.imports = {{4, 0}, {2, 1}};
  from.version = 12;
  from.examples = 48;
  from.epoch = 1;
  from.first_step = 12;
  return from;
}

TEST(SchedulerResume, TellsShardsWhatToReadAndRanksWhereToBegin) {
  SchedulerHarness scheduler(JobOptions(), /*heartbeats=*/false, AtStep12());
  EXPECT_EQ(scheduler.core().last_progress().examples, 48u);
  scheduler.JoinAll();
  std::vector<Sent> starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_THAT(starts, SizeIs(1));
  const Restore restore = Body<Start>(starts[0]).restore();
  EXPECT_EQ(restore.mode(), Restore::RESUME);
  EXPECT_EQ(restore.folder(), "old/C000003");
  EXPECT_EQ(restore.clock(), 12u);
  ASSERT_EQ(restore.import_size(), 2);
  EXPECT_EQ(restore.import(0).from(), 4u);
  EXPECT_EQ(restore.import(0).to(), 0u);
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kStarted, Started());
  starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_THAT(starts, SizeIs(1));
  const Start to_worker = Body<Start>(starts[0]);
  EXPECT_FALSE(to_worker.has_restore()) << "a worker reads no checkpoint";
  EXPECT_EQ(to_worker.grant_size(), 2);
  for (const RankGrant& grant : to_worker.grant()) EXPECT_EQ(grant.first_step(), 12u);
}

TEST(SchedulerResume, AWarmStartBeginsAtStepZeroAndSaysSo) {
  SchedulerOptions::From from;
  from.folder = "old/C000003";
  from.warm = true;
  from.imports = {{0, 1}};
  SchedulerHarness scheduler(JobOptions(), /*heartbeats=*/false, from);
  scheduler.JoinAll();
  const std::vector<Sent> starts = scheduler.outbox().Take(MessageKind::kStart);
  ASSERT_THAT(starts, SizeIs(1));
  EXPECT_EQ(Body<Start>(starts[0]).restore().mode(), Restore::WARM_START);
  EXPECT_EQ(Body<Start>(starts[0]).restore().clock(), 0u);
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kStarted, Started());
  scheduler.Send(scheduler.Worker(0), scheduler.WorkerId(0), MessageKind::kStarted, Started());
  scheduler.FinishTraining();
  scheduler.AllWritten();
  ASSERT_THAT(scheduler.store().heads, SizeIs(1));
  EXPECT_TRUE(scheduler.store().heads[0].warm_started());
  EXPECT_THAT(scheduler.store().heads[0].lineage(), ElementsAre(7u, 8u));
  EXPECT_EQ(scheduler.store().heads[0].job().job_id(), testing::kJob);
  EXPECT_EQ(scheduler.store().heads[0].job().shard_endpoint_size(), 0) << "those of this run mean nothing later";
  EXPECT_FALSE(scheduler.store().heads[0].has_leases()) << "sync";
}

TEST(SchedulerResume, ACheckpointThatAShardCannotReadEndsTheJob) {
  SchedulerHarness scheduler(JobOptions(), /*heartbeats=*/false, AtStep12());
  scheduler.JoinAll();
  Nack nack;
  nack.set_code(static_cast<uint32_t>(NackCode::kBadCheckpoint));
  nack.set_reason("server-0/shard-0: reading the checkpoint old/C000003: 'x.sst' is damaged");
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kNack, nack);
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kCheckpoint);
  EXPECT_THAT(scheduler.core().reason(), AllOf(HasSubstr("server-0"), HasSubstr("'x.sst' is damaged")));
}

TEST(SchedulerResume, ClosedLeasesAreToldToShardsAndNotGrantedAgain) {
  SchedulerOptions::From from = AtStep12();
  from.leases.closed = {1, 3};  // two an epoch
  SchedulerHarness scheduler(Mode("async"), /*heartbeats=*/false, from);
  scheduler.StartTraining();
  scheduler.Tick(std::chrono::seconds(1));
  const std::vector<Sent> closings = scheduler.outbox().Take(MessageKind::kLeaseClose);
  ASSERT_THAT(closings, SizeIs(1));
  EXPECT_EQ(Body<LeaseClose>(closings[0]).below(), 2u);
  EXPECT_THAT(Body<LeaseClose>(closings[0]).lease(), ElementsAre(3u));
  EXPECT_EQ(scheduler.TakeLease(), 2u);
  EXPECT_EQ(scheduler.TakeLease(), 4u);
}

// ---- training ---------------------------------------------------------------------------------------------------

TEST(SchedulerCheckpoints, AFailureIsALineAndTrainingGoesOn) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.Tick(kShortTick);
  const std::vector<Cut> orders = OrdersOf(scheduler);
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_EQ(orders[0].epoch(), 1u) << "the policy of a job that says nothing";
  scheduler.FailCut(0, "disk full\x1b[2J");
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining);
  EXPECT_THAT(scheduler.events().phases,
              Contains(AllOf(HasSubstr("server-0: disk full?[2J"), HasSubstr("training goes on"))));
  EXPECT_THAT(scheduler.store().abandoned, ElementsAre(1u));
  EXPECT_THAT(scheduler.outbox().Take(MessageKind::kCutAbort), SizeIs(1));
}

TEST(SchedulerCheckpoints, AsyncStoresTheLeasesAsTheyWereBeforeTheFirstOrder) {
  SchedulerHarness scheduler(Mode("async"));
  scheduler.StartTraining();
  scheduler.EndLease(scheduler.TakeLease());
  const LeaseId out = scheduler.TakeLease();
  scheduler.core().AskCheckpoint("SIGUSR1");
  scheduler.Tick(kShortTick);
  const std::vector<Cut> orders = OrdersOf(scheduler);
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_TRUE(orders[0].now());
  scheduler.EndLease(out);
  scheduler.AllWritten();
  ASSERT_THAT(scheduler.store().heads, SizeIs(1));
  const LeaseRecord& leases = scheduler.store().heads[0].leases();
  EXPECT_EQ(leases.closed_below(), 2u);
  EXPECT_THAT(leases.granted(), ElementsAre(2u));
  EXPECT_EQ(scheduler.store().heads[0].reason(), "SIGUSR1");
}

TEST(SchedulerCheckpoints, AsyncTakesOneWhenAnEpochsLeasesAreClosedButNotTheLasts) {
  SchedulerHarness scheduler(Mode("async"));
  scheduler.StartTraining();
  std::vector<LeaseId> leases;
  for (int i = 0; i < 4; ++i) leases.push_back(scheduler.TakeLease());
  ASSERT_THAT(leases, ElementsAre(1u, 2u, 3u, 4u));
  for (const LeaseId lease : {1, 3}) scheduler.EndLease(lease);
  scheduler.Tick(kShortTick);
  EXPECT_THAT(OrdersOf(scheduler), IsEmpty());
  scheduler.EndLease(2);
  scheduler.Tick(kShortTick);
  EXPECT_THAT(OrdersOf(scheduler), SizeIs(1));
  scheduler.AllWritten();
  EXPECT_EQ(scheduler.store().heads.at(0).reason(), "the end of an epoch");
  scheduler.EndLease(4);
  for (int i = 0; i < 100; ++i) scheduler.Tick(kShortTick);
  EXPECT_THAT(OrdersOf(scheduler), IsEmpty());
}

TEST(SchedulerCheckpoints, WhatIsUnderWayIsGivenUpWhenTheJobFails) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.Tick(kShortTick);
  ASSERT_THAT(OrdersOf(scheduler), SizeIs(1));
  scheduler.core().Fail(ExitCode::kWorkerLost, "worker-0 is lost", scheduler.clock().Now());
  const std::vector<Sent> aborts = scheduler.outbox().Take(MessageKind::kCutAbort);
  ASSERT_THAT(aborts, SizeIs(1));
  EXPECT_EQ(Body<CutAbort>(aborts[0]).id(), 1u);
  EXPECT_THAT(scheduler.store().abandoned, ElementsAre(1u));
  scheduler.AllWritten();
  EXPECT_THAT(scheduler.store().heads, IsEmpty()) << "an answer that comes late";
}

// ---- the end ----------------------------------------------------------------------------------------------------

TEST(SchedulerCheckpoints, ALastOneWhoseWriterHangsEndsTheJobInItsName) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.FinishTraining();
  CutState writing = scheduler.WrittenBy(0);
  writing.set_state(CutState::WRITING);
  for (int i = 0; i < 150 && scheduler.core().phase() == Phase::kSaving; ++i) {
    writing.set_bytes(i < 100 ? 100 + i : 200);  // for 50 s it gets on
    scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kCutState, writing);
    scheduler.Tick(std::chrono::milliseconds(500));
  }
  EXPECT_EQ(scheduler.core().phase(), Phase::kSaving) << "75 s, but only 25 s without progress";
  for (int i = 0; i < 80 && scheduler.core().phase() == Phase::kSaving; ++i) {
    scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kCutState, writing);
    scheduler.Tick(std::chrono::milliseconds(500));
  }
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kStalled);
  EXPECT_THAT(scheduler.core().reason(), HasSubstr("no part of server-0 (shard 0)"));
}

TEST(SchedulerPreempt, AsyncIsNow) {
  SchedulerHarness scheduler(Mode("async"));
  scheduler.StartTraining();
  scheduler.core().Preempt("SIGTERM", scheduler.clock().Now());
  scheduler.Tick(kShortTick);
  const std::vector<Cut> orders = OrdersOf(scheduler);
  ASSERT_THAT(orders, SizeIs(1));
  EXPECT_TRUE(orders[0].now());
  scheduler.AllWritten();
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kPreempted);
  EXPECT_THAT(scheduler.core().reason(), HasSubstr("checkpoint 1 is there"));
}

TEST(SchedulerPreempt, DoesNotWaitOutThePauseAfterAFailure) {
  SchedulerHarness scheduler(Mode("async"));
  scheduler.StartTraining();
  scheduler.core().AskCheckpoint("SIGUSR1");
  scheduler.Tick(kShortTick);
  scheduler.FailCut(0, "disk full");
  OrdersOf(scheduler);
  scheduler.core().Preempt("SIGTERM", scheduler.clock().Now());
  scheduler.Tick(kShortTick);
  EXPECT_THAT(OrdersOf(scheduler), SizeIs(1));
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining);
  scheduler.FailCut(0, "disk full");
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kPreempted);
  EXPECT_THAT(scheduler.core().reason(), HasSubstr("no checkpoint could be taken"));
}

TEST(SchedulerPreempt, TriesItsOwnCheckpointWhenTheOneUnderWayFails) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.Tick(kShortTick);
  CutState writing = scheduler.WrittenBy(0);
  writing.set_state(CutState::WRITING);
  scheduler.SendFromShard(scheduler.Server(0), 0, MessageKind::kCutState, writing);
  scheduler.core().Preempt("SIGTERM", scheduler.clock().Now());
  scheduler.Tick(kShortTick);
  EXPECT_EQ(scheduler.cut_id(), 1u) << "what is being written is waited for";
  scheduler.FailCut(0, "the writer died");
  EXPECT_EQ(scheduler.core().phase(), Phase::kTraining);
  EXPECT_EQ(scheduler.cut_id(), 2u);
  scheduler.AllWritten();
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kPreempted);
  EXPECT_THAT(scheduler.core().reason(), HasSubstr("checkpoint 2 is there"));
}

TEST(SchedulerPreempt, BeforeTrainingEndsAtOnceAndWhileTheLastOneIsStoredWaitsForIt) {
  SchedulerHarness early((JobOptions()));
  early.core().Preempt("SIGTERM", early.clock().Now());
  EXPECT_EQ(early.core().exit_code(), ExitCode::kInterrupted);
  SchedulerHarness late((JobOptions()));
  late.StartTraining();
  late.FinishTraining();
  late.core().Preempt("SIGTERM", late.clock().Now());
  EXPECT_EQ(late.core().phase(), Phase::kSaving);
  late.AllWritten();
  EXPECT_EQ(late.core().phase(), Phase::kEnding);
  EXPECT_EQ(late.core().exit_code(), ExitCode::kDone) << "all is there";
  SchedulerHarness impatient((JobOptions()));
  impatient.StartTraining();
  impatient.FinishTraining();
  for (int i = 0; i < 2; ++i) impatient.core().Preempt("SIGTERM", impatient.clock().Now());
  EXPECT_EQ(impatient.core().exit_code(), ExitCode::kInterrupted);
}

TEST(SchedulerPreempt, TrainingThatEndsMeanwhileIsJustDone) {
  SchedulerHarness scheduler((JobOptions()));
  scheduler.StartTraining();
  scheduler.core().Preempt("SIGTERM", scheduler.clock().Now());
  scheduler.Tick(kShortTick);
  scheduler.FinishTraining();
  ASSERT_EQ(scheduler.core().phase(), Phase::kSaving);
  const std::vector<Cut> orders = OrdersOf(scheduler);
  ASSERT_FALSE(orders.empty());
  EXPECT_TRUE(orders.back().model_sha256());
  scheduler.AllWritten();
  EXPECT_EQ(scheduler.core().exit_code(), ExitCode::kDone);
}

}  // namespace
}  // namespace capstan
