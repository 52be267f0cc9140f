#include "tools/train/local_run.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "common/random.h"
#include "common/version.h"
#include "kernels/cpu_isa.h"
#include "proto/control.pb.h"
#include "ps/server_node.h"
#include "tools/train/checkpoint_io.h"
#include "tools/train/node_main.h"
#include "tools/train/scheduler_side.h"
#include "tools/train/signals.h"
#include "transport/inproc_transport.h"
#include "worker/worker_node.h"
#include "tools/print.h"

namespace capstan {
namespace {

constexpr char kLocalScheduler[] = "inproc://scheduler";

MemberOptions LocalMember(NodeRole role, const std::string& name, const JobConfig& config) {
  SystemRandom random;
  MemberOptions member;
  member.role = role;
  member.name = name;
  member.host = "this process";
  member.pid = static_cast<uint32_t>(getpid());
  member.incarnation = static_cast<Incarnation>(random.Next() | 1);
  member.version = kCapstanVersion;
  member.cpu_isa = BestCpuIsa();
  member.scheduler_endpoint = kLocalScheduler;
  member.join_timeout = std::chrono::milliseconds(config.cluster().join_timeout_ms());
  return member;
}

// One log per process, also when there is only one. Thread-safe.
class ProcessLog {
 public:
  explicit ProcessLog(const std::string& path) : file_(std::fopen(path.c_str(), "ae")) {}
  ~ProcessLog() {
    if (file_ != nullptr) std::fclose(file_);
  }
  void Write(const std::string& line) {
    std::lock_guard lock(mutex_);
    if (file_ == nullptr) return LogLine(line);  // better on the terminal than nowhere
    Print(file_, "{}\n", TimedLine(line));
    std::fflush(file_);
  }

 private:
  std::mutex mutex_;
  std::FILE* const file_;
};

}  // namespace

RunResult RunLocally(const EffectiveJob& job, RunFolder& folder, const StartPoint& start, ProgressView& view) {
  InprocHub hub;
  const TransportFactory make_transport = [&hub] { return NewInprocTransport(hub, TransportOptions()); };
  ProcessLog process_log(folder.log_path("capstan"));
  const auto log = [&process_log](const std::string& line) { process_log.Write(line); };
  const ClusterConfig& cluster = job.config().cluster();

  std::vector<std::thread> threads;
  const auto start_members = [&] {
    for (uint32_t i = 0; i < cluster.servers(); ++i) {
      ServerOptions options;
      options.member = LocalMember(NodeRole::kServer, fmt::format("server-{}", i), job.config());
      options.shards = cluster.shards();
      options.bind_endpoint = [i](uint32_t shard) { return fmt::format("inproc://server-{}/shard-{}", i, shard); };
      options.make_transport = make_transport;
      options.log = log;
      AddCheckpoints(&options);
      threads.emplace_back([options = std::move(options)]() mutable { ServerNode(std::move(options)).Run(); });
    }
    for (uint32_t i = 0; i < cluster.workers(); ++i) {
      WorkerOptions options;
      options.member = LocalMember(NodeRole::kWorker, fmt::format("worker-{}", i), job.config());
      options.make_transport = make_transport;
      options.file_system = &PosixFileSystem();
      options.log = log;
      threads.emplace_back([options = std::move(options)]() mutable { WorkerNode(std::move(options)).Run(); });
    }
  };

  SchedulerSideOptions side_options;
  side_options.bind_endpoint = kLocalScheduler;
  side_options.make_transport = make_transport;
  side_options.heartbeats = false;
  side_options.view = &view;
  side_options.log = log;
  side_options.start = start;
  // Not earlier: nobody would ever tell them that a scheduler could not begin.
  side_options.on_ready = start_members;
  SchedulerSide side(std::move(side_options), job, folder);
  SignalWatcher signals([&side](int signal) { side.OnSignal(signal); });

  RunResult result = side.Run();
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace capstan
