// Starting: in any order, at any time, with everybody or with a clear word about who is missing or not
// wanted.
#include <fmt/core.h>

#include "common/clock.h"
#include "common/version.h"
#include "proto/control.pb.h"
#include "proto/control_frame.h"
#include "tests/integration/integration_test.h"
#include "transport/zmq_transport.h"

namespace capstan::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const char kShortJoin[] = "--set=cluster.join_timeout_ms=3000";
const char kLastingJob[] = "--set=epochs=100000";

class StartTest : public IntegrationTest {
 protected:
  StartTest() : job_(WriteJob("job", WriteRows("rows.csv", 2001), "batch { global: 256 }")) {}

  HandCluster Cluster(const std::string& prefix, uint32_t servers, uint32_t workers) {
    return HandCluster(processes_, prefix, job_, NewOutput(), servers, workers);
  }
  void ExpectAllDone(const HandCluster& cluster) {
    ExpectEnd(cluster.scheduler(), 0, kTrainLimit);
    for (const std::string& node : cluster.nodes()) ExpectEnd(node, 0, Seconds(5));
  }

  // Starts the roles of a 1 × 1 cluster in every order at once, each role only when the one before has said
  // that it waits, which it does after a third of its patience.
  void StartInEveryOrder(uint32_t patience_ms) {
    const std::vector<std::string> orders = {"SPW", "SWP", "PSW", "PWS", "WSP", "WPS"};
    std::vector<HandCluster> clusters;
    clusters.reserve(orders.size());
    for (const std::string& order : orders) clusters.push_back(Cluster(order + "-", 1, 1));
    const Seconds limit(patience_ms / 1000.0);
    for (size_t turn = 0; turn < 3; ++turn) {
      for (size_t i = 0; i < orders.size(); ++i) {
        const char role = orders[i][turn];
        const std::string flag = fmt::format("--join_timeout_ms={}", patience_ms);
        if (role == 'S')
          clusters[i].StartScheduler({fmt::format("--set=cluster.join_timeout_ms={}", patience_ms)});
        if (role == 'P') clusters[i].StartServer(0, {flag});
        if (role == 'W') clusters[i].StartWorker(0, {flag});
      }
      if (turn == 2) break;
      for (size_t i = 0; i < orders.size(); ++i) {
        const char role = orders[i][turn];
        if (turn == 1 && role != 'S' && orders[i][0] == 'S')
          continue;  // it has joined; the scheduler spoke already
        if (turn == 1 && role == 'S') continue;
        const std::string process = role == 'S'   ? clusters[i].scheduler()
                                    : role == 'P' ? clusters[i].server(0)
                                                  : clusters[i].worker(0);
        AwaitText(processes_.err_path(process), "waiting for", limit);
      }
    }
    std::string sha;
    for (const HandCluster& cluster : clusters) {
      SCOPED_TRACE(cluster.scheduler());
      ExpectAllDone(cluster);
      const std::string here = ShaOf(ResultOf(cluster.output()));
      if (sha.empty()) sha = here;
      EXPECT_EQ(here, sha);
    }
  }

  const std::string job_;
};

TEST_F(StartTest, AnyOrderWithEachRoleLate) { StartInEveryOrder(12000); }

TEST_F(StartTest, AnyOrderWithEachRoleThirtySecondsLate) {
  if (!LongTests()) GTEST_SKIP() << "the long form: tools/test.sh --long";
  StartInEveryOrder(90000);
}

TEST_F(StartTest, AMissingWorkerIsNamedAndEndsAll) {
  HandCluster cluster = Cluster("", 1, 2);
  cluster.StartScheduler({kShortJoin});
  cluster.StartServer(0);
  cluster.StartWorker(0);
  ExpectEnd(cluster.scheduler(), 202, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.scheduler()),
              AllOf(HasSubstr("have 1 of 1 server [server-0 (pid"), HasSubstr("1 of 2 workers [worker-0"),
                    HasSubstr("missing: 1 worker")));
  for (const std::string& node : {cluster.server(0), cluster.worker(0)}) {
    ExpectEnd(node, 202, Seconds(5));
    EXPECT_THAT(processes_.err(node), HasSubstr("missing: 1 worker"));
  }
  EXPECT_EQ(ResultOf(cluster.output()).value("exit_code", 0), 202);
}

TEST_F(StartTest, AMissingServerIsNamedAndEndsAll) {
  HandCluster cluster = Cluster("", 3, 1);
  cluster.StartScheduler({kShortJoin});
  cluster.StartServer(0);
  cluster.StartWorker(0);
  ExpectEnd(cluster.scheduler(), 202, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.scheduler()), HasSubstr("missing: 2 servers"));
  for (const std::string& node : {cluster.server(0), cluster.worker(0)}) {
    ExpectEnd(node, 202, Seconds(5));
    EXPECT_THAT(processes_.err(node), HasSubstr("missing: 2 servers"));
  }
}

TEST_F(StartTest, ANodeWithoutASchedulerGivesUpWithAWord) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartWorker(0, {"--join_timeout_ms=1000"});
  cluster.StartServer(0, {"--join_timeout_ms=1000"});
  for (const std::string& node : cluster.nodes()) {
    ExpectEnd(node, 202, Seconds(10));
    EXPECT_THAT(processes_.err(node),
                AllOf(HasSubstr(cluster.address() + " never answered"), HasSubstr("start it")));
  }
}

TEST_F(StartTest, WhoeverIsNotWantedIsToldWhy) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler({kLastingJob});
  cluster.StartServer(7, {"--shards=3"});
  ExpectEnd(cluster.server(7), 2, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.server(7)),
              HasSubstr("it has 3 shards, the job wants 1 per server: start it with --shards=1"));

  cluster.StartServer(0);
  cluster.StartWorker(0);
  ASSERT_TRUE(AwaitTraining(cluster.output()));
  cluster.StartWorker(1);
  ExpectEnd(cluster.worker(1), 2, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.worker(1)),
              AllOf(HasSubstr("refused to let it join"), HasSubstr("has its 1 worker already"),
                    HasSubstr("worker-0")));
  cluster.StartServer(1);
  ExpectEnd(cluster.server(1), 2, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.server(1)), HasSubstr("has its 1 server already"));
  processes_.Signal(cluster.scheduler(), SIGINT);
  ExpectEnd(cluster.scheduler(), 130, Seconds(15));
}

// A peer of ours that says and sends what it likes.
class FakePeer {
 public:
  explicit FakePeer(const std::string& address) : transport_(NewZmqTransport(TransportOptions())) {
    scheduler_ = *transport_->Connect("tcp://" + address);
  }
  ~FakePeer() { transport_->Close(Duration::zero()); }

  static Message JoinFrame(const std::string& release) {
    FrameHeader header;
    header.kind = static_cast<uint16_t>(MessageKind::kJoin);
    header.src_incarnation = 77;
    Join join;
    join.set_role(WORKER);
    join.set_name("impostor");
    join.set_host("elsewhere");
    join.set_pid(1);
    join.set_version(release);
    join.set_cpu_isa("avx2");
    return MakeControl(header, join);
  }
  void Send(const Message& message) { ASSERT_TRUE(transport_->Send(scheduler_, message).ok()); }
  // The scheduler's answer to JOIN; an empty one if there is none.
  JoinReply Answer(Seconds limit) {
    JoinReply reply;
    Eventually(limit, [&] {
      const std::optional<Incoming> frame =
          transport_->Poll(SteadyClock().Now() + std::chrono::milliseconds(50));
      if (!frame.has_value() || frame->message.header.Kind() != MessageKind::kJoinReply) return false;
      reply = *ParseControl<JoinReply>(frame->message);
      return true;
    });
    return reply;
  }

 private:
  std::unique_ptr<Transport> transport_;
  PeerId scheduler_ = kNoPeer;
};

TEST_F(StartTest, AnotherReleaseIsRefusedWithBothNamed) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler();
  FakePeer peer(cluster.address());
  peer.Send(FakePeer::JoinFrame("0.0.9-other"));
  const JoinReply reply = peer.Answer(Seconds(20));
  EXPECT_FALSE(reply.accepted());
  EXPECT_FALSE(reply.retry());
  EXPECT_THAT(reply.reason(), AllOf(HasSubstr("0.0.9-other"), HasSubstr(kCapstanVersion)));
  EXPECT_THAT(processes_.err(cluster.scheduler()), HasSubstr("refused impostor (pid 1 on elsewhere)"));

  cluster.StartServer(0);  // and the job goes on as if nothing had been
  cluster.StartWorker(0);
  ExpectAllDone(cluster);
}

TEST_F(StartTest, FramesOfAnotherFormatAreDroppedAndSaidOnce) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler();
  FakePeer peer(cluster.address());
  Message frame = FakePeer::JoinFrame(kCapstanVersion);
  frame.header.version = kFrameVersion + 1;
  SealFrame(frame);
  peer.Send(frame);
  AwaitText(processes_.err_path(cluster.scheduler()), fmt::format("version {}", kFrameVersion + 1));
  EXPECT_EQ(peer.Answer(Seconds(0.2)).reason(), "");
  cluster.StartServer(0);
  cluster.StartWorker(0);
  ExpectAllDone(cluster);
  EXPECT_THAT(processes_.err(cluster.scheduler()), HasSubstr("1 frame of another version"));
}

TEST_F(StartTest, TwoJobsAtOnceNeverMix) {
  const std::string other_job = WriteJob("other", WriteRows("other.csv", 1501, 5), "batch { global: 128 }");
  const std::string alone = ShaOf(Train(job_, {"--epochs=20"}));
  const std::string other_alone = ShaOf(Train(other_job, {"--epochs=20"}));
  ASSERT_NE(alone, other_alone);
  const std::string output = NewOutput(), other_output = NewOutput();
  const auto start = [&](const std::string& name, const std::string& job, const std::string& at) {
    processes_.Start(name, {Program("capstan"), "train", job, "--epochs=20", "--servers=2", "--workers=2",
                            "--output=" + at});
  };
  start("one", job_, output);
  start("other", other_job, other_output);
  ExpectEnd("one", 0, kTrainLimit);
  ExpectEnd("other", 0, kTrainLimit);
  EXPECT_EQ(ShaOf(ResultOf(output)), alone);
  EXPECT_EQ(ShaOf(ResultOf(other_output)), other_alone);
}

TEST_F(StartTest, AWorkerOfAnotherJobIsToldAndDisturbsNobody) {
  HandCluster full = Cluster("full-", 1, 1), waiting = Cluster("waiting-", 1, 1);
  full.StartAll({kLastingJob});
  waiting.StartScheduler();
  waiting.StartServer(0);
  ASSERT_TRUE(AwaitTraining(full.output()));
  processes_.Start("lost-worker",
                   {Program("capstan-worker"), "--scheduler=" + full.address(), "--name=lost-worker"});
  ExpectEnd("lost-worker", 2, Seconds(15));
  EXPECT_THAT(processes_.err("lost-worker"),
              AllOf(HasSubstr(full.address()), HasSubstr("has its 1 worker already")));
  waiting.StartWorker(0);
  ExpectAllDone(waiting);
  EXPECT_TRUE(processes_.Running(full.scheduler()));
  processes_.Signal(full.scheduler(), SIGTERM);
  ExpectEnd(full.scheduler(), 203, Seconds(15));
  for (const std::string& node : full.nodes()) ExpectEnd(node, 203, Seconds(5));
}

TEST_F(StartTest, PortsAddressesAndNamesOfOnesOwn) {
  const std::string expected = ShaOf(Train(job_, {}));
  HandCluster cluster = Cluster("", 2, 2);
  cluster.StartScheduler({"--shards=2"});
  const HandCluster ports = Cluster("ports-", 1, 1);  // only its free port is used
  const std::string port = ports.address().substr(ports.address().find(':') + 1);
  const auto start = [&](const std::string& name, const std::string& program,
                         std::vector<std::string> flags) {
    flags.insert(flags.begin(), {Program(program), "--scheduler=tcp://" + cluster.address()});
    processes_.Start(name, flags);
  };
  start("zebra", "capstan-ps", {"--shards=2", "--bind=0.0.0.0", "--port=" + port, "--advertise=127.0.0.1"});
  start("any", "capstan-ps", {"--shards=2"});
  start("first", "capstan-worker", {});
  start("second", "capstan-worker", {"--name=zz-top"});
  ExpectEnd(cluster.scheduler(), 0, kTrainLimit);
  for (const char* node : {"zebra", "any", "first", "second"}) ExpectEnd(node, 0, Seconds(5));
  EXPECT_THAT(processes_.err("zebra"), HasSubstr("listens at tcp://127.0.0.1:" + port));
  EXPECT_EQ(ShaOf(ResultOf(cluster.output())), expected);
}

TEST_F(StartTest, AServerThatCannotBeReachedIsNamed) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler({kShortJoin});
  cluster.StartServer(0, {"--advertise=127.0.0.77"});  // it listens at 127.0.0.1 only
  cluster.StartWorker(0);
  ExpectEnd(cluster.scheduler(), 202, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.scheduler()),
              AllOf(HasSubstr("server-0 (pid"), HasSubstr("cannot be reached at tcp://127.0.0.77:"),
                    HasSubstr("--advertise")));
  for (const std::string& node : cluster.nodes()) ExpectEnd(node, 202, Seconds(5));
}

TEST_F(StartTest, AServersPortInUseIsNamed) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler();
  ASSERT_TRUE(AwaitText(processes_.err_path(cluster.scheduler()), "listens at"));
  const std::string port = cluster.address().substr(cluster.address().find(':') + 1);
  cluster.StartServer(0, {"--port=" + port});
  ExpectEnd(cluster.server(0), 2, Seconds(15));
  EXPECT_THAT(processes_.err(cluster.server(0)), AllOf(HasSubstr(":" + port), HasSubstr("in use")));
  processes_.Signal(cluster.scheduler(), SIGINT);
  ExpectEnd(cluster.scheduler(), 130, Seconds(15));
}

TEST_F(StartTest, ANameTwiceIsSaid) {
  HandCluster cluster = Cluster("", 1, 2);
  cluster.StartScheduler({"--set=cluster.join_timeout_ms=10000"});
  cluster.StartServer(0);
  cluster.StartWorker(0);
  ASSERT_TRUE(AwaitText(processes_.err_path(cluster.scheduler()), "worker-0 (pid"));
  processes_.Start("twin", {Program("capstan-worker"), "--scheduler=" + cluster.address(), "--name=worker-0",
                            "--join_timeout_ms=1500"});
  ExpectEnd("twin", 202, Seconds(10));
  EXPECT_THAT(processes_.err("twin"), HasSubstr("the name worker-0 is taken by worker-0 (pid"));
  cluster.StartWorker(1);
  ExpectAllDone(cluster);
}

TEST_F(StartTest, ANewSchedulerAtTheSameAddressIsAnotherJob) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartAll({kLastingJob, "--set=cluster.heartbeat_limit_ms=2000"});
  ASSERT_TRUE(AwaitTraining(cluster.output()));
  processes_.Signal(cluster.scheduler(), SIGKILL);
  ASSERT_TRUE(processes_.Wait(cluster.scheduler(), Seconds(5)).has_value());
  const std::string output = NewOutput();
  processes_.Start("next-scheduler", {Program("capstan-scheduler"), "--job=" + job_,
                                      "--bind=" + cluster.address(), "--output=" + output});
  processes_.Start("next-server",
                   {Program("capstan-ps"), "--scheduler=" + cluster.address(), "--name=server-0"});
  processes_.Start("next-worker",
                   {Program("capstan-worker"), "--scheduler=" + cluster.address(), "--name=worker-0"});
  for (const char* name : {"next-scheduler", "next-server", "next-worker"}) ExpectEnd(name, 0, kTrainLimit);
  for (const std::string& node : cluster.nodes()) ExpectEnd(node, 200, Seconds(15));
  EXPECT_EQ(ShaOf(ResultOf(output)), ShaOf(Train(job_, {})));
}

TEST_F(StartTest, APortInUseIsNamed) {
  HandCluster cluster = Cluster("", 1, 1);
  cluster.StartScheduler();
  ASSERT_TRUE(AwaitText(processes_.err_path(cluster.scheduler()), "listens at"));
  const Finished second =
      Run("capstan-scheduler", {"--job=" + job_, "--bind=" + cluster.address(), "--output=" + NewOutput()});
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr(cluster.address()));
  processes_.Signal(cluster.scheduler(), SIGINT);
  ExpectEnd(cluster.scheduler(), 130, Seconds(15));
}

}  // namespace
}  // namespace capstan::testing
