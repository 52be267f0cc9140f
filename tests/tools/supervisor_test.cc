#include "tools/launcher/supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Time Soon(Duration after = seconds(20)) {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now()) + after;
}

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    supervisor_ = *Supervisor::Make();
    std::remove(log_.c_str());
  }
  void TearDown() override {
    supervisor_.reset();
    std::remove(log_.c_str());
    // Nothing is left: no child to wait for.
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }
  absl::Status Shell(const std::string& name, const std::string& script) {
    ChildSpec spec;
    spec.name = name;
    spec.argv = {"/bin/sh", "-c", script};
    spec.log_path = log_;
    spec.environment = {{"GREETING", "good day"}};
    spec.exit_code_if_killed = 201;
    return supervisor_->Spawn(spec);
  }
  std::string Log() { return *ReadWholeFile(PosixFileSystem(), log_, 1 << 16); }

  const std::string log_ = ::testing::TempDir() + "/supervisor_test." + std::to_string(getpid()) + ".log";
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, AllEndWell) {
  ASSERT_TRUE(Shell("one", "echo \"$GREETING\"; echo and >&2").ok());
  ASSERT_TRUE(Shell("two", "exit 0").ok());
  const SupervisedEnd end = SuperviseUntilEnd(supervisor_.get(), seconds(20), [] {});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(end.message, "");
  EXPECT_EQ(Log(), "good day\nand\n");
}

TEST_F(SupervisorTest, TheFirstFailureIsTheCauseAndEndsTheRest) {
  ASSERT_TRUE(Shell("scheduler", "sleep 100").ok());
  ASSERT_TRUE(Shell("worker-1", "exit 7").ok());
  const SupervisedEnd end = SuperviseUntilEnd(supervisor_.get(), seconds(20), [] {});
  EXPECT_EQ(end.exit_code, 7);
  EXPECT_EQ(end.message, "worker-1 exited with code 7; see " + log_);
  EXPECT_TRUE(supervisor_->alive().empty());
}

TEST_F(SupervisorTest, AKilledChildIsNamedWithItsSignal) {
  ASSERT_TRUE(Shell("server-0", "kill -9 $$").ok());
  ASSERT_TRUE(Shell("worker-0", "sleep 100").ok());
  const SupervisedEnd end = SuperviseUntilEnd(supervisor_.get(), seconds(20), [] {});
  EXPECT_EQ(end.exit_code, 201);
  EXPECT_THAT(end.message, HasSubstr("server-0 was killed by signal 9 (Killed)"));
}

TEST_F(SupervisorTest, OfSeveralEndsTheLikeliestCauseIsToldFirst) {
  struct Case {
    const char* name;
    const char* script;
  };
  const Case cases[] = {
      {"clean", "exit 0"}, {"lost", "exit 201"}, {"failed", "exit 3"}, {"killed", "kill -9 $$"}};
  for (const Case& c : cases) ASSERT_TRUE(Shell(c.name, c.script).ok());
  // All have ended, none is reaped.
  for (const Case& c : cases) {
    siginfo_t info;
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(*supervisor_->pid(c.name)), &info, WEXITED | WNOWAIT), 0);
  }
  std::vector<std::string> order;
  for (int i = 0; i < 4; ++i) order.push_back(supervisor_->Wait(Soon()).exit.name);
  EXPECT_THAT(order, ElementsAre("killed", "failed", "lost", "clean"));
}

TEST_F(SupervisorTest, AnInterruptEndsEverythingWith130) {
  for (const int signal : {SIGINT, SIGTERM}) {
    ASSERT_TRUE(Shell("worker-0", "sleep 100").ok());
    ASSERT_EQ(kill(getpid(), signal), 0);
    const SupervisedEnd end = SuperviseUntilEnd(supervisor_.get(), seconds(20), [] {});
    EXPECT_EQ(end.exit_code, 130);
    EXPECT_TRUE(supervisor_->alive().empty());
  }
}

TEST_F(SupervisorTest, TerminationIsPoliteThenFirm) {
  // Writes its last words on SIGTERM; the other one does not listen. Both are known to be ready by their
  // logs.
  ASSERT_TRUE(Shell("polite", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done").ok());
  ASSERT_TRUE(Shell("deaf", "trap '' TERM; echo ready; while :; do sleep 0.05; done").ok());
  const Time limit = Soon();
  while (Log() != "ready\nready\n" && Soon(seconds(0)) < limit) {
    EXPECT_EQ(supervisor_->Wait(Soon(milliseconds(20))).kind, SupervisorEvent::Kind::kDeadline);
  }
  const Time begin = Soon(seconds(0));
  supervisor_->Terminate(milliseconds(300));
  const Duration took = Soon(seconds(0)) - begin;
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, seconds(10));
  EXPECT_THAT(Log(), HasSubstr("bye\n"));
  EXPECT_TRUE(supervisor_->alive().empty());
}

TEST_F(SupervisorTest, WhatAChildLeavesBehindEndsWithIt) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  ASSERT_TRUE(Shell("server-0", "sleep 100 & echo $!").ok());
  EXPECT_EQ(supervisor_->Wait(Soon()).kind, SupervisorEvent::Kind::kExit);
  int status = 0;
  const pid_t grandchild = std::stoi(Log());
  EXPECT_EQ(waitpid(grandchild, &status, 0), grandchild);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

TEST_F(SupervisorTest, ADeadlineIsKept) {
  ASSERT_TRUE(Shell("worker-0", "sleep 100").ok());
  const Time begin = Soon(seconds(0));
  EXPECT_EQ(supervisor_->Wait(begin + milliseconds(50)).kind, SupervisorEvent::Kind::kDeadline);
  EXPECT_GE(Soon(seconds(0)) - begin, milliseconds(50));
  int ticks = 0;
  ASSERT_TRUE(Shell("worker-1", "sleep 0.3; exit 1").ok());
  EXPECT_EQ(SuperviseUntilEnd(supervisor_.get(), milliseconds(20), [&] { ++ticks; }).exit_code, 1);
  EXPECT_GE(ticks, 1);
}

TEST_F(SupervisorTest, WhatCannotBeStartedIsNamed) {
  ChildSpec spec;
  spec.name = "server-0";
  spec.argv = {"/nowhere/capstan-ps"};
  spec.log_path = log_;
  const absl::Status program = supervisor_->Spawn(spec);
  EXPECT_EQ(program.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(program.message()), HasSubstr("starting server-0: running '/nowhere/capstan-ps'"));
  spec.log_path = "/nowhere/log";
  EXPECT_THAT(std::string(supervisor_->Spawn(spec).message()), HasSubstr("opening the log '/nowhere/log'"));
  EXPECT_TRUE(supervisor_->alive().empty());
}

TEST(SupervisorDeath, ChildrenEndWithALauncherThatIsKilled) {
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    auto supervisor = *Supervisor::Make();
    ChildSpec spec;
    spec.name = "worker-0";
    spec.argv = {"/bin/sleep", "100"};
    spec.log_path = "/dev/null";
    pid_t child = supervisor->Spawn(spec).ok() ? *supervisor->pid("worker-0") : -1;
    if (write(ends[1], &child, sizeof(child)) != sizeof(child)) _exit(1);
    kill(getpid(), SIGKILL);
    _exit(1);
  }
  pid_t child = -1;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_GT(child, 0);
  int status = 0;
  EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

}  // namespace
}  // namespace capstan
