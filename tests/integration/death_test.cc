// Death: whoever is killed, everybody else ends soon, says who it was, and nobody stays behind.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/core.h>

#include "tests/integration/integration_test.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Seconds kDeathLimit{15};  // from the death of one to the end of all

struct Victim {
  const char* role;
  const char* name;  // under the launcher
  int code;          // how everybody else ends
};
const Victim kVictims[] = {
    {"scheduler", "scheduler", 200}, {"server", "server-1", 201}, {"worker", "worker-0", 205}};

class DeathTest : public IntegrationTest {
 protected:
  DeathTest() : job_(WriteJob("job", WriteRows("rows.csv", 2001), "epochs: 100000 batch { global: 256 }")) {
    // WriteJob has an epochs of its own; a key may be given once.
    std::string text = ReadText(job_);
    text.erase(text.find("epochs: 2\n"), 10);
    WriteText(job_, text);
  }
  std::vector<std::string> LaunchArguments(const std::string& output) {
    return {Program("capstan"), "train", job_, "--servers=2", "--workers=2", "--output=" + output};
  }
  // The launcher's child that runs under that name.
  pid_t ChildNamed(const std::string& launcher, const std::string& name) {
    const std::string mark = name == "scheduler" ? "capstan-scheduler" : "--name=" + name + " ";
    for (const pid_t child : ChildrenOf(processes_.pid(launcher))) {
      if (CommandLineOf(child).find(mark) != std::string::npos) return child;
    }
    ADD_FAILURE() << "no child " << name;
    return -1;
  }
  // A copy of our programs in which one is replaced by a shell script. Returns the launcher's path.
  std::string ProgramsWith(const std::string& replaced, const std::string& script) {
    const std::string folder = Path("bin");
    std::filesystem::create_directory(folder);
    for (const char* name : {"capstan", "capstan-ps", "capstan-worker", "capstan-scheduler", "capstan-checkpoint-writer"}) {
      if (name == replaced) continue;
      std::error_code error;
      std::filesystem::create_hard_link(Program(name), folder + "/" + name, error);
      if (error) std::filesystem::copy_file(Program(name), folder + "/" + name);
    }
    WriteText(folder + "/" + replaced, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(folder + "/" + replaced, std::filesystem::perms::owner_all);
    return folder + "/capstan";
  }

  std::string job_;
};

TEST_F(DeathTest, AChildOfTheLauncherIsKilled) {
  for (const Victim& victim : kVictims) {
    SCOPED_TRACE(victim.role);
    const std::string output = NewOutput(), launcher = fmt::format("launcher-{}", victim.role);
    processes_.Start(launcher, LaunchArguments(output));
    ASSERT_TRUE(AwaitTraining(output));
    const pid_t child = ChildNamed(launcher, victim.name);
    ASSERT_GT(child, 0);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ExpectEnd(launcher, victim.code, kDeathLimit);
    EXPECT_THAT(processes_.err(launcher), AllOf(HasSubstr(victim.name), HasSubstr("killed by signal 9")));
    EXPECT_EQ(ResultOf(output).value("exit_code", 0), victim.code);
    EXPECT_EQ(ResultOf(output).value("status", ""), "failed");
    EXPECT_THAT(processes_.Leftovers(Seconds(2)), IsEmpty());
  }
}

TEST_F(DeathTest, ANodeStartedByHandIsKilled) {
  for (const Victim& victim : kVictims) {
    SCOPED_TRACE(victim.role);
    HandCluster cluster(processes_, fmt::format("{}-", victim.role), job_, NewOutput(), 2, 2);
    cluster.StartAll({"--set=cluster.heartbeat_limit_ms=3000"});
    ASSERT_TRUE(AwaitTraining(cluster.output()));
    std::vector<std::string> all = cluster.nodes();
    all.push_back(cluster.scheduler());
    const std::string dead = fmt::format("{}-{}", victim.role, victim.name);
    processes_.Signal(dead, SIGKILL);
    for (const std::string& process : all) {
      if (process == dead) continue;
      ExpectEnd(process, victim.code, kDeathLimit);
      EXPECT_THAT(processes_.err(process), AllOf(HasSubstr(victim.name), HasSubstr("is lost"))) << process;
    }
  }
}

TEST_F(DeathTest, TheLauncherIsKilled) {
  const std::string output = NewOutput();
  processes_.Start("launcher", LaunchArguments(output));
  ASSERT_TRUE(AwaitTraining(output));
  ASSERT_THAT(ChildrenOf(processes_.pid("launcher")), SizeIs(5));
  processes_.Signal("launcher", SIGKILL);
  EXPECT_THAT(processes_.Leftovers(kDeathLimit), IsEmpty());
}

TEST_F(DeathTest, SignalsAtTheLauncher) {
  struct Case {
    int signal, code;
    const char* status;
  };
  for (const Case& c : {Case{SIGINT, 130, "interrupted"}, Case{SIGTERM, 203, "preempted"}}) {
    const std::string output = NewOutput(), launcher = fmt::format("launcher-{}", c.signal);
    processes_.Start(launcher, LaunchArguments(output));
    ASSERT_TRUE(AwaitTraining(output));
    processes_.Signal(launcher, c.signal);
    ExpectEnd(launcher, c.code, kDeathLimit);
    EXPECT_THAT(processes_.err(launcher), HasSubstr(fmt::format("{} (exit code {})", c.status, c.code)));
    EXPECT_EQ(ResultOf(output).value("status", ""), c.status);
    EXPECT_THAT(processes_.Leftovers(Seconds(2)), IsEmpty());
  }
}

TEST_F(DeathTest, CtrlCInOneProcess) {
  const std::string output = NewOutput();
  processes_.Start("train", {Program("capstan"), "train", job_, "--output=" + output});
  ASSERT_TRUE(AwaitTraining(output));
  processes_.Signal("train", SIGINT);
  ExpectEnd("train", 130, kDeathLimit);
  EXPECT_EQ(ResultOf(output).value("status", ""), "interrupted");
}

TEST_F(DeathTest, CtrlCWhileEvaluating) {
  const std::string job = WriteJob("short", WriteRows("few.csv", 101));
  const std::string test = WriteRows("many.csv", 400000);
  for (const char* layout : {"--workers=1", "--servers=1"}) {
    const std::string output = NewOutput(), name = fmt::format("train{}", layout);
    processes_.Start(name,
                     {Program("capstan"), "train", job, "--eval_data=" + test, layout, "--output=" + output});
    const std::string log = output + (std::string(layout) == "--workers=1" ? "/logs/capstan.log" : "/logs/scheduler.log");
    ASSERT_TRUE(AwaitText(log, "requests of workers"));  // training is over
    processes_.Signal(name, SIGINT);
    ExpectEnd(name, 130, kDeathLimit);
    EXPECT_EQ(ResultOf(output).value("status", ""), "interrupted") << layout;
  }
}

TEST_F(DeathTest, ANodeThatHangsIsLost) {
  const std::string output = NewOutput();
  std::vector<std::string> arguments = LaunchArguments(output);
  arguments.push_back("--set=cluster.heartbeat_limit_ms=2000");
  processes_.Start("launcher", arguments);
  ASSERT_TRUE(AwaitTraining(output));
  kill(ChildNamed("launcher", "server-0"), SIGSTOP);
  ExpectEnd("launcher", 201, kDeathLimit);
  EXPECT_THAT(processes_.err("launcher"), AllOf(HasSubstr("server-0"), HasSubstr("is lost: not heard for")));
}

TEST_F(DeathTest, AWorkerByHandIsAskedToEnd) {
  HandCluster cluster(processes_, "", job_, NewOutput(), 1, 2);
  cluster.StartAll();
  ASSERT_TRUE(AwaitTraining(cluster.output()));
  processes_.Signal(cluster.worker(1), SIGTERM);
  ExpectEnd(cluster.worker(1), 203, kDeathLimit);
  for (const std::string& process : {cluster.scheduler(), cluster.server(0), cluster.worker(0)}) {
    ExpectEnd(process, 203, kDeathLimit);
    EXPECT_THAT(processes_.err(process), AllOf(HasSubstr("worker-1"), HasSubstr("SIGTERM"))) << process;
  }
}

TEST_F(DeathTest, AWorkerThatDiesAtItsStartIsTheCause) {
  const std::string launcher = ProgramsWith("capstan-worker", "kill -9 $$");
  const std::string output = NewOutput();
  processes_.Start("launcher", {launcher, "train", job_, "--servers=2", "--workers=2", "--output=" + output});
  ExpectEnd("launcher", 205, kDeathLimit);
  EXPECT_THAT(processes_.err("launcher"), AllOf(HasSubstr("worker-"), HasSubstr("was killed by signal 9")));
  EXPECT_EQ(ResultOf(output).value("exit_code", 0), 205);
}

TEST_F(DeathTest, AWorkerThatHangsAtItsStartIsNamed) {
  const std::string launcher = ProgramsWith("capstan-worker", "exec sleep 300");
  const std::string output = NewOutput();
  processes_.Start("launcher", {launcher, "train", job_, "--servers=1", "--workers=2", "--output=" + output,
                                "--set=cluster.join_timeout_ms=3000"});
  ExpectEnd("launcher", 202, kDeathLimit);
  EXPECT_THAT(processes_.err("launcher"), HasSubstr("missing: 2 workers"));
}

TEST_F(DeathTest, AProgramThatIsMissingIsNamed) {
  const std::string launcher = ProgramsWith("capstan-ps", "exit 0");
  std::filesystem::remove(Path("bin/capstan-ps"));
  const Finished run =
      Run(launcher, {"train", job_, "--servers=1", "--workers=1", "--output=" + NewOutput()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("bin/capstan-ps"));
}

}  // namespace
}  // namespace capstan::testing
