// When checkpoints are ordered, and what becomes of them.
#include "scheduler/checkpoint_director.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_checkpoint_store.h"
#include "proto/checkpoint.pb.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Duration kTick = std::chrono::milliseconds(20);

class DirectorTest : public ::testing::Test, public CheckpointHost {
 protected:
  void Make(bool sync, uint32_t epochs = 3, size_t shards = 2) {
    shards_ = shards;
    director_ = std::make_unique<CheckpointDirector>(config_, sync, epochs, store_,
                                                      static_cast<CheckpointHost&>(*this));
    director_->Start(at_, now_);
  }
  void Tick(Duration after = kTick) {
    now_ += after;
    director_->Tick(at_, now_);
  }
  void Answer(size_t shard, CutState::State state, uint64_t version = 0, const std::string& error = "") {
    CutState answer;
    answer.set_id(store_.newest_id);
    answer.set_state(state);
    answer.set_version(version);
    answer.set_cut_version(version);
    answer.set_error(error);
    answer.set_full(!orders_.back().has_parent());
    director_->OnState(shard, answer, now_);
  }
  void Writing(size_t shard, uint64_t bytes) {
    CutState answer;
    answer.set_id(store_.newest_id);
    answer.set_state(CutState::WRITING);
    answer.set_bytes(bytes);
    director_->OnState(shard, answer, now_);
  }
  void AllWritten(uint64_t version = 0) {
    for (size_t shard = 0; shard < shards_; ++shard) Answer(shard, CutState::WRITTEN, version);
  }

  size_t shards() const override { return shards_; }
  std::string ShardName(size_t shard) const override { return "shard " + std::to_string(shard); }
  void SendCut(size_t, const Cut& order) override { orders_.push_back(order); }
  void SendAbort(size_t, uint64_t id) override { aborts_.push_back(id); }
  void FillLeases(LeaseRecord* leases) const override { leases->set_closed_below(closed_below_); }
  void FillHead(CheckpointManifest*) const override {}
  void OnCheckpoint(const CheckpointEntry& entry, const std::string& reason) override {
    done_.push_back(entry.id);
    reasons_.push_back(reason);
  }
  void OnCheckpointFailed(const std::string& what) override { failures_.push_back(what); }

  CheckpointConfig config_;
  testing::FakeCheckpointStore store_;
  std::unique_ptr<CheckpointDirector> director_;
  CheckpointDirector::Now at_;
  Time now_{std::chrono::seconds(100)};
  size_t shards_ = 2;
  uint64_t closed_below_ = 1;
  std::vector<Cut> orders_;
  std::vector<uint64_t> aborts_, done_;
  std::vector<std::string> reasons_, failures_;
};

TEST_F(DirectorTest, SyncOrdersTheNextStepAndEpochAheadOfTime) {
  config_.set_steps(100);
  Make(true);
  Tick();
  ASSERT_THAT(orders_, SizeIs(2)) << "one a shard";
  EXPECT_EQ(orders_[0].root(), "root");
  EXPECT_EQ(orders_[0].token(), "token");
  EXPECT_EQ(orders_[0].step(), 100u);
  EXPECT_EQ(orders_[0].epoch(), 1u);
  EXPECT_EQ(orders_[0].parent(), 0u) << "the first is full";
  AllWritten(100);
  EXPECT_THAT(done_, ElementsAre(1u));
  EXPECT_THAT(reasons_, ElementsAre("100 steps"));
  at_.version = 101;
  Tick();
  EXPECT_EQ(orders_.back().step(), 200u);
  EXPECT_EQ(orders_.back().parent(), 1u);
  EXPECT_EQ(orders_.back().parent_folder(), "root/C1");
  AllWritten(150);
  EXPECT_EQ(reasons_.back(), "the end of an epoch") << "it came before the step";
}

TEST_F(DirectorTest, TheLastEpochsEndIsLeftToTheLastCheckpoint) {
  Make(true, /*epochs=*/1);
  for (int i = 0; i < 100; ++i) Tick();
  EXPECT_THAT(orders_, IsEmpty());
}

TEST_F(DirectorTest, OrdersAreRepeatedToThoseWhoHaveNotAnswered) {
  config_.set_steps(100);
  Make(true);
  Tick();
  Answer(0, CutState::WRITTEN, 100);
  orders_.clear();
  for (int i = 0; i < 60; ++i) Tick();
  EXPECT_THAT(orders_, SizeIs(2)) << "twice in 1.2 s, to one shard";
  EXPECT_THAT(director_->WaitingFor(), HasSubstr("shard 1"));
  EXPECT_THAT(store_.heads, IsEmpty()) << "half a checkpoint is none";
}

TEST_F(DirectorTest, TooLateNamesALaterStepAtOnce) {
  config_.set_seconds(1);
  config_.set_epoch_end(false);
  Make(true);
  Tick(std::chrono::seconds(2));
  const uint64_t first = orders_.back().step();
  Answer(0, CutState::TOO_LATE, 50);
  EXPECT_THAT(aborts_, ElementsAre(1u, 1u));
  EXPECT_THAT(store_.abandoned, ElementsAre(1u));
  Tick();
  EXPECT_EQ(store_.newest_id, 2u);
  EXPECT_GT(orders_.back().step(), std::max<uint64_t>(first, 50)) << "what the shard said is known";
  EXPECT_THAT(failures_, IsEmpty());
}

TEST_F(DirectorTest, AFailureIsToldAndTriedAgainLater) {
  config_.set_steps(10);
  Make(true);
  Tick();
  Answer(1, CutState::FAILED, 0, "disk full");
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_THAT(failures_[0], AllOf(HasSubstr("disk full"), HasSubstr("training goes on")));
  Tick();
  EXPECT_EQ(store_.newest_id, 1u) << "not at once";
  Tick(std::chrono::seconds(6));
  EXPECT_EQ(store_.newest_id, 2u);
  AllWritten(10);
  EXPECT_THAT(done_, ElementsAre(2u));
}

TEST_F(DirectorTest, AFolderThatCannotBeMadeIsAFailureToo) {
  config_.set_steps(10);
  store_.fail_begin = Unavailable("read-only");
  Make(true);
  Tick();
  ASSERT_THAT(failures_, SizeIs(1));
  store_.fail_begin = absl::OkStatus();
  store_.fail_commit = Unavailable("no space");
  Tick(std::chrono::seconds(6));
  AllWritten(10);
  EXPECT_THAT(failures_.back(), HasSubstr("no space"));
  EXPECT_THAT(store_.abandoned, ElementsAre(1u));
}

TEST_F(DirectorTest, PartsOfDifferentStepsAreNoCheckpoint) {
  config_.set_steps(10);
  Make(true);
  Tick();
  Answer(0, CutState::WRITTEN, 10);
  Answer(1, CutState::WRITTEN, 11);
  EXPECT_THAT(store_.heads, IsEmpty());
  EXPECT_THAT(failures_, SizeIs(1));
}

TEST_F(DirectorTest, AskedOnesReplaceAStandingOrderButNotARunningOne) {
  config_.set_steps(1000);
  Make(true);
  Tick();
  director_->Ask("SIGUSR1");
  Tick();
  EXPECT_THAT(aborts_, ElementsAre(1u, 1u));
  EXPECT_LT(orders_.back().step(), 1000u);
  EXPECT_TRUE(director_->asked());
  Answer(0, CutState::WRITING, 2);
  director_->Ask("SIGUSR1 again");
  Tick();
  EXPECT_EQ(store_.newest_id, 2u);
  AllWritten(2);
  EXPECT_FALSE(director_->asked());
  EXPECT_THAT(reasons_, ElementsAre("SIGUSR1"));
}

TEST_F(DirectorTest, OneThatStandsStillIsGivenUp) {
  config_.set_steps(10);
  config_.set_timeout_ms(30'000);
  Make(true);
  Tick();
  Tick(std::chrono::seconds(40));
  EXPECT_THAT(failures_, IsEmpty()) << "its step has not come: that is no standstill";
  Answer(0, CutState::WRITING, 10);
  Tick(std::chrono::seconds(31));
  ASSERT_THAT(failures_, SizeIs(1));
  EXPECT_THAT(failures_[0], HasSubstr("shard 0, shard 1"));
}

TEST_F(DirectorTest, AsyncIsNowWithTheLeasesFromBefore) {
  config_.set_examples(100);
  Make(false);
  Tick();
  EXPECT_THAT(orders_, IsEmpty());
  at_.examples = 120;
  closed_below_ = 5;
  Tick();
  ASSERT_THAT(orders_, SizeIs(2));
  EXPECT_TRUE(orders_[0].now());
  closed_below_ = 9;
  AllWritten();
  ASSERT_THAT(store_.heads, SizeIs(1));
  EXPECT_EQ(store_.heads[0].leases().closed_below(), 5u);
  Tick();
  EXPECT_EQ(store_.newest_id, 1u) << "the next hundred are not there yet";
  director_->OnEpochEnd(1);
  Tick();
  EXPECT_EQ(store_.newest_id, 2u);
}

TEST_F(DirectorTest, OneOfSoManyIsFull) {
  config_.set_steps(10);
  config_.set_full_every(3);
  config_.set_epoch_end(false);
  Make(true);
  std::vector<bool> full;
  for (uint64_t i = 1; i <= 7; ++i) {
    at_.version = 10 * i;
    Tick();
    full.push_back(orders_.back().parent() == 0);
    AllWritten(orders_.back().step());
  }
  EXPECT_THAT(full, ElementsAre(true, false, false, true, false, false, true));
}

TEST_F(DirectorTest, TheLastOneIsFullAndHashesTheModel) {
  config_.set_steps(10);
  Make(true);
  Tick();
  director_->BeginFinal("the end of the job", now_);
  EXPECT_THAT(aborts_, ElementsAre(1u, 1u)) << "what stood is given up";
  EXPECT_TRUE(orders_.back().now());
  EXPECT_TRUE(orders_.back().model_sha256());
  EXPECT_EQ(orders_.back().parent(), 0u);
  AllWritten(7);
  EXPECT_TRUE(director_->finished());
  EXPECT_EQ(director_->model_sha256(), "sha");
}

TEST_F(DirectorTest, MetricIsTheMeanLossSinceTheOneBefore) {
  config_.set_steps(10);
  Make(true, 3, 1);
  double loss = 0;
  for (const uint64_t version : {10u, 20u}) {
    at_.version = version;
    Tick();
    CutState answer;
    answer.set_id(store_.newest_id);
    answer.set_state(CutState::WRITTEN);
    answer.set_cut_version(version);
    loss += version == 10 ? 70 : 50;
    answer.mutable_progress()->set_loss_sum(loss);
    answer.mutable_progress()->set_weight_sum(10.0 * static_cast<double>(version));
    director_->OnState(0, answer, now_);
  }
  ASSERT_THAT(store_.heads, SizeIs(2));
  EXPECT_DOUBLE_EQ(store_.heads[0].metric(), -0.7);
  EXPECT_DOUBLE_EQ(store_.heads[1].metric(), -0.5);
}

// Each of these is due again before the step of its order comes: the order that stands must be waited for.
TEST_F(DirectorTest, AnOrderOfADueOneIsNotPutOffByTheNextThatIsDue) {
  struct Case {
    const char* why;
    uint64_t examples;
    uint32_t seconds;
    Duration step;
  };
  const Case cases[] = {
      {"fewer examples than a step has", 10, 0, kTick},
      {"seconds shorter than a step", 0, 1, std::chrono::seconds(3)},
  };
  for (const Case& c : cases) {
    config_.set_examples(c.examples);
    config_.set_seconds(c.seconds);
    config_.set_epoch_end(false);
    at_ = CheckpointDirector::Now();
    done_.clear();
    orders_.clear();
    store_.newest_id = 0;
    Make(true);
    for (int step = 0; step < 200 && done_.size() < 3; ++step) {
      for (Duration spent{}; spent < c.step; spent += kTick) Tick();
      ++at_.version;
      at_.examples += 64;
      if (!orders_.empty() && at_.version == orders_.back().step()) AllWritten(at_.version);
    }
    EXPECT_THAT(done_, SizeIs(3)) << c.why;
    EXPECT_EQ(store_.newest_id, 3u) << c.why << ": no number is wasted";
  }
}

TEST_F(DirectorTest, AsyncWaitsForTheAnswersToWhatItOrdered) {
  config_.set_steps(1);
  config_.set_epoch_end(false);
  Make(false);
  for (int i = 0; i < 10; ++i) {
    ++at_.version;
    Tick();
  }
  EXPECT_EQ(store_.newest_id, 1u);
  EXPECT_THAT(aborts_, IsEmpty());
  AllWritten(1);
  EXPECT_THAT(reasons_, ElementsAre("1 steps"));
}

TEST_F(DirectorTest, AWriterThatTakesNothingMoreIsGivenUpHoweverOftenItSaysThatItWrites) {
  config_.set_steps(10);
  config_.set_timeout_ms(30'000);
  Make(true);
  Tick();
  uint64_t bytes = 0;
  for (int i = 0; i < 120; ++i) {
    Tick(std::chrono::milliseconds(500));
    Writing(0, ++bytes);
    Writing(1, 7);
  }
  EXPECT_THAT(failures_, IsEmpty()) << "one of them gets on";
  for (int i = 0; i < 61; ++i) {
    Tick(std::chrono::milliseconds(500));
    Writing(0, bytes);
    Writing(1, 7);
  }
  EXPECT_THAT(failures_, SizeIs(1));
}

TEST_F(DirectorTest, WhoAsksDoesNotWaitOutThePauseAfterAFailure) {
  config_.set_steps(10);
  Make(true);
  Tick();
  Answer(1, CutState::FAILED, 0, "disk full");
  director_->Ask("SIGTERM");
  Tick();
  EXPECT_EQ(store_.newest_id, 2u);
  Answer(1, CutState::FAILED, 0, "disk full");
  Tick();
  EXPECT_EQ(store_.newest_id, 2u) << "once";
  EXPECT_TRUE(director_->asked());
}

TEST_F(DirectorTest, FailuresInARowArePausedLongerAndLonger) {
  config_.set_steps(10);
  Make(true);
  Tick();
  for (const int pause : {5, 10, 20, 40, 80, 160, 300, 300}) {
    const uint64_t tried = store_.newest_id;
    Answer(0, CutState::FAILED, 0, "disk full");
    Tick(std::chrono::seconds(pause) - std::chrono::milliseconds(1));
    EXPECT_EQ(store_.newest_id, tried) << pause;
    Tick(std::chrono::milliseconds(1));
    EXPECT_EQ(store_.newest_id, tried + 1) << pause;
  }
  AllWritten(10);
  Tick();
  Answer(0, CutState::FAILED, 0, "disk full");
  const uint64_t tried = store_.newest_id;
  Tick(std::chrono::seconds(6));
  EXPECT_EQ(store_.newest_id, tried + 1) << "a success forgives";
}

TEST_F(DirectorTest, EachOneThatCameTooLateIsFollowedByOneWithMoreTime) {
  config_.set_seconds(1);
  config_.set_epoch_end(false);
  Make(true);
  Tick(std::chrono::seconds(2));
  uint64_t lead = orders_.back().step() - at_.version;
  for (int i = 0; i < 5; ++i) {
    at_.version = orders_.back().step() + 1;
    Answer(1, CutState::TOO_LATE, at_.version);
    Answer(0, CutState::TOO_LATE, at_.version);  // of the same order: counts once
    Tick();
    EXPECT_GE(orders_.back().step() - at_.version, 2 * lead);
    lead = orders_.back().step() - at_.version;
    EXPECT_LT(lead, 10'000u);
  }
  EXPECT_THAT(failures_, IsEmpty());
  AllWritten(orders_.back().step());
  EXPECT_THAT(reasons_, ElementsAre("1 s"));
}

TEST_F(DirectorTest, AnswersToOtherOrdersAndOfOtherShardsChangeNothing) {
  config_.set_steps(10);
  Make(true);
  Tick();
  CutState answer;
  answer.set_state(CutState::WRITTEN);
  answer.set_id(store_.newest_id + 1);
  director_->OnState(0, answer, now_);
  answer.set_id(store_.newest_id);
  director_->OnState(2, answer, now_);
  answer.set_cut_version(10);
  director_->OnState(0, answer, now_);
  director_->OnState(0, answer, now_);
  EXPECT_THAT(store_.heads, IsEmpty());
  director_->OnState(1, answer, now_);
  EXPECT_THAT(store_.heads, SizeIs(1));
  director_->OnState(1, answer, now_);
  EXPECT_THAT(store_.heads, SizeIs(1)) << "a repeat after the commit";
}

TEST_F(DirectorTest, OnePartThatIsNotFullMakesAnIncrement) {
  config_.set_steps(10);
  config_.set_epoch_end(false);
  Make(true);
  Tick();
  AllWritten(10);
  at_.version = 10;
  Tick();
  CutState answer;
  answer.set_id(store_.newest_id);
  answer.set_state(CutState::WRITTEN);
  answer.set_cut_version(20);
  answer.set_full(true);  // it had lost its base
  director_->OnState(0, answer, now_);
  answer.set_full(false);
  director_->OnState(1, answer, now_);
  ASSERT_THAT(store_.heads, SizeIs(2));
  EXPECT_EQ(store_.heads[0].kind(), CheckpointManifest::FULL);
  EXPECT_FALSE(store_.heads[0].has_parent());
  EXPECT_EQ(store_.heads[1].kind(), CheckpointManifest::INCREMENTAL);
  EXPECT_EQ(store_.heads[1].parent(), 1u);
}

TEST_F(DirectorTest, TheParentIsTheNewestThatBecameWhole) {
  config_.set_steps(10);
  config_.set_epoch_end(false);
  Make(true);
  Tick();
  AllWritten(10);
  Tick();
  EXPECT_EQ(orders_.back().parent(), 1u);
  Answer(0, CutState::FAILED, 0, "disk full");
  Tick(std::chrono::seconds(6));
  EXPECT_EQ(orders_.back().id(), 3u);
  EXPECT_EQ(orders_.back().parent(), 1u);
}

TEST_F(DirectorTest, TheLastOneIsTriedThreeTimesThenItsFailureIsTheRuns) {
  Make(true);
  director_->BeginFinal("the end of the job", now_);
  for (uint64_t tries = 1; tries <= 3; ++tries) {
    EXPECT_EQ(store_.newest_id, tries);
    EXPECT_EQ(director_->failure(), "");
    Answer(1, CutState::FAILED, 0, "server-1: disk full");
    Tick(std::chrono::seconds(3));
  }
  EXPECT_EQ(director_->failure(), "server-1: disk full");
  EXPECT_FALSE(director_->finished());
  for (int i = 0; i < 100; ++i) Tick();
  EXPECT_EQ(store_.newest_id, 3u);
}

TEST_F(DirectorTest, TheLastOneIsNotWaitedForForEver) {
  config_.set_timeout_ms(30'000);
  Make(true);
  director_->BeginFinal("the end of the job", now_);
  for (int i = 0; i < 200; ++i) Tick(std::chrono::milliseconds(500));
  EXPECT_THAT(director_->failure(), HasSubstr("no part of shard 0, shard 1 for 30 s"));
}

TEST_F(DirectorTest, StopGivesUpAndOrdersNothingMore) {
  config_.set_steps(10);
  Make(true);
  Tick();
  director_->Stop();
  EXPECT_THAT(store_.abandoned, ElementsAre(1u));
  orders_.clear();
  for (int i = 0; i < 100; ++i) Tick();
  EXPECT_THAT(orders_, IsEmpty());
}

}  // namespace
}  // namespace capstan
