// Scheduler, server and workers as threads of this process, as in local mode: whole jobs, and ends at any moment.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/clock.h"
#include "common/random.h"
#include "data/dataset.h"
#include "models/model.h"
#include "proto/control.pb.h"
#include "ps/server_node.h"
#include "scheduler/scheduler_node.h"
#include "tests/support/fake_snapshot.h"
#include "transport/inproc_transport.h"
#include "worker/worker_node.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

constexpr char kRows[] = "rows.csv";

EffectiveJob MakeClusterJob(FileSystem& fs, const std::string& consistency, uint32_t epochs) {
  std::string csv = "y,a,s\n";
  for (int i = 0; i < 64; ++i) csv += std::to_string(i % 3 == 0) + "," + std::to_string(i % 7) + ",v" + std::to_string(i % 5) + "\n";
  EXPECT_TRUE(WriteFileAtomically(fs, kRows, csv).ok());
  EffectiveJob job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      config {
        seed: 1 ranks: 3 cpu_isa: "avx2" lease_batches: 2
        batch { micro: 4 accumulation: 1 }
        data { train: "rows.csv" format: CSV label { column: "y" } feature { column: "a" name: "a" }
               feature { column: "s" name: "s" kind: CATEGORICAL } }
        model { lr {} } optimizer { name: "adam" }
        cluster { partitions: 16 servers: 1 shards: 2 workers: 2 heartbeat_ms: 50 heartbeat_limit_ms: 60000 } })", &job));
  job.mutable_config()->set_consistency(consistency);
  job.mutable_config()->set_epochs(epochs);
  job.set_map_epoch(1);
  const SplitRule rule = {.ranks = 3, .max_rows = 8};
  const absl::Status scanned = ScanData(fs, job.config().data(), {kRows}, rule, job.mutable_plan(), job.mutable_recipe());
  EXPECT_TRUE(scanned.ok()) << scanned;
  const std::unique_ptr<Model> model = *MakeModel(job.config().model(), ShapeOf(job.config().data()));
  for (const TableSpec& spec : model->tables()) {
    TableSpec* table = job.add_table();
    *table = spec;
    *table->mutable_optimizer() = job.config().optimizer();
  }
  return job;
}

// Counts what happens; calls `on_event` on the scheduler's thread.
class CountedEvents final : public SchedulerEvents {
 public:
  explicit CountedEvents(std::function<void(int event)> on_event) : on_event_(std::move(on_event)) {}
  void OnPhase(const std::string&) override { Count(); }
  void OnCheckpoint(const CheckpointEntry&, const std::string&) override {}
  void OnTraining() override { Count(); }
  void OnProgress(const ProgressReport&) override { Count(); }

 private:
  void Count() {
    if (on_event_) on_event_(count_++);
  }
  std::function<void(int)> on_event_;
  int count_ = 0;
};

class LocalCluster {
 public:
  LocalCluster(const std::string& consistency, uint32_t epochs, std::function<void(LocalCluster&, int event)> on_event)
      : disk_(NewMemoryFileSystem()),
        job_(MakeClusterJob(*disk_, consistency, epochs)),
        events_([this, call = std::move(on_event)](int event) {
          if (call) call(*this, event);
        }),
        scheduler_(Scheduler(), job_, events_),
        server_(Server()),
        worker0_(Worker(0)),
        worker1_(Worker(1)) {}

  SchedulerResult Run() {
    std::vector<std::thread> threads;
    threads.emplace_back([this] { codes[0] = server_.Run(); });
    threads.emplace_back([this] { codes[1] = worker0_.Run(); });
    threads.emplace_back([this] { codes[2] = worker1_.Run(); });
    SchedulerResult result = scheduler_.Run();
    if (result.exit_code != ExitCode::kDone) {
      for (uint64_t node = 0; node < 3; ++node) Stop(node);  // who had not joined looks for a scheduler still
    }
    for (std::thread& thread : threads) thread.join();
    return result;
  }

  void Preempt() { scheduler_.Preempt("SIGTERM"); }
  void AskCheckpoint() { scheduler_.AskCheckpoint("SIGUSR1"); }
  // 0 server, 1 and 2 workers, 3 scheduler.
  void Stop(uint64_t node) {
    switch (node) {
      case 0: return server_.Stop(ExitCode::kInterrupted, "asked to end");
      case 1: return worker0_.Stop(ExitCode::kInterrupted, "asked to end");
      case 2: return worker1_.Stop(ExitCode::kInterrupted, "asked to end");
      default: return scheduler_.Stop(ExitCode::kInterrupted, "asked to end");
    }
  }
  ExitCode codes[3] = {ExitCode::kStalled, ExitCode::kStalled, ExitCode::kStalled};

 private:
  TransportFactory Factory() {
    return [this] { return NewInprocTransport(hub_, TransportOptions()); };
  }
  SchedulerNodeOptions Scheduler() {
    SchedulerNodeOptions options;
    options.core.version = "test";
    options.core.cpu_isa = "avx2";
    options.checkpoint_root = "run/checkpoints";
    options.bind_endpoint = "inproc://scheduler";
    options.make_transport = Factory();
    options.file_system = disk_.get();
    return options;
  }
  static MemberOptions Member(NodeRole role, const std::string& name, Incarnation incarnation) {
    MemberOptions member;
    member.role = role;
    member.name = name;
    member.host = "here";
    member.version = "test";
    member.cpu_isa = "avx2";
    member.incarnation = incarnation;
    member.scheduler_endpoint = "inproc://scheduler";
    return member;
  }
  ServerOptions Server() {
    ServerOptions options;
    options.member = Member(NodeRole::kServer, "server-0", 10);
    options.shards = 2;
    options.bind_endpoint = [](uint32_t shard) { return "inproc://shard-" + std::to_string(shard); };
    options.make_transport = Factory();
    options.file_system = disk_.get();
    options.make_sink = [this](const std::string&) { return std::make_unique<testing::FakeSnapshotSink>(*disk_); };
    options.open_source = testing::FakeRowSources(*disk_);
    options.log = [](const std::string&) {};
    return options;
  }
  WorkerOptions Worker(uint32_t i) {
    WorkerOptions options;
    options.member = Member(NodeRole::kWorker, "worker-" + std::to_string(i), 20 + i);
    options.make_transport = Factory();
    options.file_system = disk_.get();
    options.log = [](const std::string&) {};
    return options;
  }

  InprocHub hub_;
  std::unique_ptr<FileSystem> disk_;
  EffectiveJob job_;
  CountedEvents events_;
  SchedulerNode scheduler_;
  ServerNode server_;
  WorkerNode worker0_, worker1_;
};

// How the job ends when somebody asks this node to end: for the others it is a lost one.
ExitCode JobCodeOf(uint64_t node) {
  return node == 0 ? ExitCode::kServerLost : node <= 2 ? ExitCode::kWorkerLost : ExitCode::kInterrupted;
}

TEST(Nodes, TrainAJobToItsEnd) {
  for (const char* mode : {"sync", "ssp:1", "async"}) {
    LocalCluster cluster(mode, 2, nullptr);
    const SchedulerResult result = cluster.Run();
    EXPECT_EQ(result.exit_code, ExitCode::kDone) << mode << ": " << result.reason;
    EXPECT_EQ(result.examples, 128u) << mode;
    EXPECT_EQ(result.model_sha256.size(), 64u);
    for (const ExitCode code : cluster.codes) EXPECT_EQ(code, ExitCode::kDone) << mode;
  }
}

TEST(Nodes, ANodeThatIsAskedToEndEndsTheJobInItsName) {
  const char* names[] = {"server-0: asked to end", "worker-0: asked to end", "worker-1: asked to end", "asked to end"};
  for (uint64_t node = 0; node < 4; ++node) {
    std::atomic<bool> stopped{false};
    LocalCluster cluster("sync", 100'000, [&](LocalCluster& nodes, int event) {
      if (event > 6 && !stopped.exchange(true)) nodes.Stop(node);  // in the middle of training
    });
    const SteadyClock clock;
    const Time began = clock.Now();
    const SchedulerResult result = cluster.Run();
    EXPECT_EQ(result.exit_code, JobCodeOf(node));
    EXPECT_EQ(result.reason, names[node]);
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(cluster.codes[i], i == node ? ExitCode::kInterrupted : JobCodeOf(node)) << names[node] << ", " << i;
    }
    EXPECT_LT(clock.Now() - began, std::chrono::seconds(30)) << "not by missed heartbeats, whose limit is a minute";
  }
}

TEST(Nodes, StoreACheckpointWhenAskedAndEndWithOneWhenPreempted) {
  for (const char* mode : {"sync", "ssp:1", "async"}) {
    LocalCluster cluster(mode, 100'000, [](LocalCluster& nodes, int event) {
      if (event == 6) nodes.AskCheckpoint();
      if (event == 12) nodes.Preempt();
    });
    const SchedulerResult result = cluster.Run();
    EXPECT_EQ(result.exit_code, ExitCode::kPreempted) << mode << ": " << result.reason;
    EXPECT_THAT(result.reason, HasSubstr("is there")) << mode;
    EXPECT_THAT(result.checkpoint, HasSubstr("run/checkpoints/C")) << mode;
    EXPECT_EQ(result.model_sha256, "") << "of a job that was done only";
    for (const ExitCode code : cluster.codes) EXPECT_EQ(code, ExitCode::kPreempted) << mode;
  }
}

TEST(Nodes, EndAtAnyMomentWhoeverIsAsked) {
  const int cycles = std::getenv("CAPSTAN_LONG_TESTS") != nullptr ? 200 : 15;
  SeededRandom random(7);
  for (int i = 0; i < cycles; ++i) {
    const auto moment = static_cast<int>(random.Below(9));
    const uint64_t node = random.Below(4), other = random.Below(4);
    LocalCluster cluster(i % 2 == 0 ? "sync" : "async", 100'000, [&](LocalCluster& nodes, int event) {
      if (event == moment) nodes.Stop(node);
      if (event == moment + 1) nodes.Stop(other);
    });
    std::thread impatient([&cluster] {
      const SteadyClock clock;
      const Time until = clock.Now() + std::chrono::milliseconds(30);
      while (clock.Now() < until) std::this_thread::yield();
      cluster.Stop(3);
    });
    const SchedulerResult result = cluster.Run();
    impatient.join();
    const bool expected = result.exit_code == JobCodeOf(node) || result.exit_code == JobCodeOf(other) ||
                          result.exit_code == ExitCode::kInterrupted;
    EXPECT_TRUE(expected) << "cycle " << i << ": " << ToInt(result.exit_code) << ", " << result.reason;
  }
}

}  // namespace
}  // namespace capstan
