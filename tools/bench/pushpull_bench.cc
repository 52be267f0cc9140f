#include "tools/bench/pushpull_bench.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include <fmt/core.h>

#include "common/file_system.h"
#include "common/scheduling.h"
#include "ps/shard_core.h"
#include "ps/slice_pacer.h"
#include "ps/writer_process.h"
#include "tools/bench/bench_cluster.h"
#include "tools/bench/limit_loop.h"
#include "tools/train/programs.h"
#include "transport/node_loop.h"
#include "transport/zmq_transport.h"

namespace capstan {
namespace {

constexpr float kRate = 0.05f;
constexpr float kEpsilon = 1e-8f;
constexpr size_t kRequests = 40;  // different ones, used in turn

// Ours and the limit in turn, by the clock on the wall.
absl::Status Compare(const std::string& name, const PushPullBenchOptions& options,
                     const std::function<absl::Status(size_t i)>& ours, const std::function<void(size_t i)>& limit,
                     const std::function<void(size_t i)>& prepare, const std::function<void(const Figure&)>& report) {
  std::vector<double> our_times, limit_times, ratios;
  double spent = 0;
  for (size_t i = 0; spent < options.seconds || ratios.size() < 5; ++i) {
    prepare(i);
    const double limit_seconds = SecondsOf([&] { limit(i); });
    absl::Status status;
    const double our_seconds = SecondsOf([&] { status = ours(i); });
    CAPSTAN_RETURN_IF_ERROR(status);
    if (i == 0) continue;  // the first pair warms up
    spent += our_seconds + limit_seconds;
    our_times.push_back(our_seconds);
    limit_times.push_back(limit_seconds);
    ratios.push_back(limit_seconds / our_seconds);
  }
  const auto keys = static_cast<double>(options.keys_per_request);
  Figure figure;
  figure.name = name;
  figure.unit = "Mrows/s";
  figure.limit_name = "in-process loop";
  figure.value = keys / MedianOf(our_times) / 1e6;
  figure.limit = keys / MedianOf(limit_times) / 1e6;
  figure.ratio = MedianOf(ratios);
  report(figure);
  return absl::OkStatus();
}

absl::Status RunWidth(const PushPullBenchOptions& options, uint32_t width,
                      const std::function<void(const Figure&)>& report) {
  const std::string bind =
      options.transport == "tcp" ? "tcp://127.0.0.1:0" : fmt::format("ipc:///tmp/capstan-bench-{}.sock", getpid());
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server, BenchServer::Start(bind));
  BenchClient client(NewZmqTransport(TransportOptions()), server->endpoint(), width);
  CAPSTAN_RETURN_IF_ERROR(client.StartJob());

  LimitLoop limit(options.rows, width);
  std::vector<float> gradients(options.keys_per_request * width, 0.01f), rows(gradients.size());
  // Every row exists before anything is measured.
  for (uint64_t begin = 0; begin < options.rows; begin += options.keys_per_request) {
    std::vector<Key> keys;
    for (uint64_t i = begin; i < std::min<uint64_t>(options.rows, begin + options.keys_per_request); ++i) {
      keys.push_back(BenchKey(i));
    }
    client.Plan(keys);
    CAPSTAN_RETURN_IF_ERROR(client.Push(gradients.data()));
  }

  std::vector<std::vector<Key>> requests;
  for (size_t i = 0; i < kRequests; ++i) requests.push_back(BenchRequest(i + 1, options.rows, options.keys_per_request));
  const auto prepare = [&](size_t i) { client.Plan(requests[i % kRequests]); };
  const std::string suffix = fmt::format("{}.{}", options.transport, width);
  CAPSTAN_RETURN_IF_ERROR(Compare(
      "pushpull.pull." + suffix, options, [&](size_t) { return client.Pull(rows.data()); },
      [&](size_t i) {
        limit.Gather(requests[i % kRequests], rows.data());
        KeepAlive(rows.data());
      },
      prepare, report));
  return Compare(
      "pushpull.push." + suffix, options, [&](size_t) { return client.Push(gradients.data()); },
      [&](size_t i) { limit.ApplyAdagrad(requests[i % kRequests], gradients.data(), kRate, kEpsilon); }, prepare,
      report);
}

}  // namespace

absl::Status RunPushPullBench(const PushPullBenchOptions& options, const std::function<void(const Figure&)>& report) {
  if (options.keys_per_request == 0 || options.keys_per_request > options.rows) {
    return InvalidArgument(fmt::format("--keys={} is outside 1 to --rows={}", options.keys_per_request, options.rows));
  }
  if (options.transport != "tcp" && options.transport != "ipc") {
    return InvalidArgument(fmt::format("--transport={}; it must be tcp or ipc", options.transport));
  }
  for (const uint32_t width : options.widths) {
    if (width == 0 || width > 4096) return InvalidArgument(fmt::format("--width={} is outside 1 to 4096", width));
    CAPSTAN_RETURN_IF_ERROR(RunWidth(options, width, report));
  }
  return absl::OkStatus();
}

absl::Status ServeBenchShard(const std::string& endpoint) {
  const std::unique_ptr<Transport> transport = NewZmqTransport(TransportOptions());
  CAPSTAN_ASSIGN_OR_RETURN(const std::string bound, transport->Bind(endpoint));
  std::printf("%s\n", bound.c_str());
  std::fflush(stdout);
  AskForShortTurns(kShardTurn);
  NodeOutbox outbox(*transport);
  MetricsRegistry metrics;
  ShardSurroundings around;
  around.fs = &PosixFileSystem();
  // As in a real server: changes are tracked, and a writer waits for checkpoints.
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WriterProcess> writer,
                           WriterProcess::Start(FolderOfThisProgram() + "/capstan-checkpoint-writer"));
  around.sink = writer.get();
  ShardCore core(ShardIdentity{1, 0, "bench"}, outbox, metrics, std::move(around));
  const SteadyClock clock;
  bool orphan = false;
  NodeHandlers handlers;
  handlers.on_message = [&](PeerId from, Message message, Time now) { core.OnMessage(from, std::move(message), now); };
  handlers.on_tick = [&](Time now) {
    core.Tick(now);
    pollfd parent{STDIN_FILENO, POLLIN, 0};
    orphan = orphan || (poll(&parent, 1, 0) > 0 && (parent.revents & (POLLHUP | POLLIN)) != 0);
  };
  SlicePacer pacer;
  handlers.on_idle = [&] { return RunSlice(clock, [&](Time now) { return core.Work(now); }, &pacer); };
  handlers.done = [&] { return orphan; };
  RunNodeLoop(*transport, outbox, clock, handlers);
  transport->Close(Duration::zero());
  return absl::OkStatus();
}

}  // namespace capstan
