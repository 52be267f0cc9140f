#include "tools/bench/checkpoint_busy.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "tools/bench/bench_cluster.h"
#include "tools/bench/checkpoint_parts.h"
#include "transport/zmq_transport.h"

namespace capstan {
namespace {

constexpr uint64_t kMostRows = 2'000'000;
constexpr size_t kKeysPerStep = 16'384;  // drawn; those that are drawn twice count once
constexpr size_t kKeysPerSmallPull = 64;
constexpr int kSmallPullsPerStep = 4;
constexpr size_t kLeastSteps = 5;

// What a rank computes per step: about the work of 640 rows of a DeepFM, 10 ms of a core.
void ComputeStep(std::vector<float>* values) {
  for (int pass = 0; pass < 150; ++pass) {
    for (float& value : *values) value = value * 0.999f + 1e-6f;
    KeepAlive(values->data());
  }
}

// Keeps the other core busy until it is destroyed.
class OtherRank {
 public:
  explicit OtherRank(size_t floats) : thread_([this, floats] {
    std::vector<float> values(floats, 1.0f);
    while (!stop_.load(std::memory_order_relaxed)) ComputeStep(&values);
  }) {}
  ~OtherRank() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: stop_ is there when it starts
};

struct Times {
  std::vector<double> steps, pulls;
  double total = 0;
};

class BusyClient {
 public:
  BusyClient(const std::string& server, uint64_t rows, uint32_t width)
      : client_(NewZmqTransport(TransportOptions()), server, width),
        rows_(rows),
        zipf_(rows, 5),
        gradients_(kKeysPerStep * width, 0.01f),
        values_(gradients_.size()) {}

  absl::Status Fill() {
    CAPSTAN_RETURN_IF_ERROR(client_.StartJob());
    for (uint64_t begin = 0; begin < rows_; begin += kKeysPerStep) {
      std::vector<Key> keys;
      for (uint64_t i = begin; i < std::min(rows_, begin + kKeysPerStep); ++i) keys.push_back(KeyOfBenchRow(i));
      client_.Plan(keys);
      CAPSTAN_RETURN_IF_ERROR(client_.Push(gradients_.data()));
    }
    return absl::OkStatus();
  }

  // One step and some small pulls, as others make them.
  absl::Status Train(Times* times) {
    client_.Plan(Draw(kKeysPerStep));
    absl::Status status;
    times->steps.push_back(SecondsOf([&] {
      status = client_.Pull(values_.data());
      ComputeStep(&values_);
      if (status.ok()) status = client_.Push(gradients_.data());
    }));
    times->total += times->steps.back();
    for (int i = 0; i < kSmallPullsPerStep && status.ok(); ++i) {
      client_.Plan(Draw(kKeysPerSmallPull));
      times->pulls.push_back(SecondsOf([&] { status = client_.Pull(values_.data()); }));
    }
    return status;
  }

  absl::Status TrainDuringCut(uint64_t id, const std::string& folder, Times* times) {
    client_.Cut(id, folder);
    for (bool written = false; !written;) {
      CAPSTAN_RETURN_IF_ERROR(Train(times));
      CAPSTAN_ASSIGN_OR_RETURN(written, client_.cut_written());
    }
    return absl::OkStatus();
  }

 private:
  std::vector<Key> Draw(size_t n) {
    std::vector<Key> keys;
    for (size_t i = 0; i < n; ++i) keys.push_back(KeyOfBenchRow(zipf_.Next()));
    MakeRequest(&keys);
    return keys;
  }

  BenchClient client_;
  const uint64_t rows_;
  ZipfRanks zipf_;
  std::vector<float> gradients_, values_;
};

// Both kinds of times in turn, for what else the machine does comes and goes.
absl::Status Measure(BusyClient& client, double seconds, Times* without, Times* during) {
  const BenchFolder folder;
  Times warming;
  for (size_t i = 0; i < kLeastSteps; ++i) CAPSTAN_RETURN_IF_ERROR(client.Train(&warming));
  for (uint64_t id = 1; during->total < seconds || during->steps.size() < kLeastSteps; ++id) {
    const std::string root = folder / fmt::format("C{:06}.tmp", id);
    std::filesystem::create_directories(root);
    CAPSTAN_RETURN_IF_ERROR(client.TrainDuringCut(id, root + "/shard-0000", during));
    std::filesystem::remove_all(root);
    while (without->total < during->total) CAPSTAN_RETURN_IF_ERROR(client.Train(without));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBusyBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server, BenchServer::Start("tcp://127.0.0.1:0"));
  BusyClient client(server->endpoint(), std::min(options.rows, kMostRows), options.width);
  CAPSTAN_RETURN_IF_ERROR(client.Fill());
  Times without, during;
  {
    const OtherRank other(kKeysPerStep * options.width);
    CAPSTAN_RETURN_IF_ERROR(Measure(client, options.seconds, &without, &during));
  }
  const auto compare = [&](const char* name, double with, double limit, const char* limit_name) {
    report({name, 1e3 * with, "ms", limit_name, 1e3 * limit, with / limit});
  };
  const double pull = PercentileOf(without.pulls, 0.99);
  compare("checkpoint.busy.step", MedianOf(during.steps), MedianOf(without.steps), "without");
  compare("checkpoint.busy.step_mean", during.total / static_cast<double>(during.steps.size()),
          without.total / static_cast<double>(without.steps.size()), "without");
  compare("checkpoint.busy.pull_p50", MedianOf(during.pulls), MedianOf(without.pulls), "without");
  compare("checkpoint.busy.pull_p99", PercentileOf(during.pulls, 0.99), pull, "without");
  compare("checkpoint.busy.pull_max", PercentileOf(during.pulls, 1), pull, "p99 without");
  return absl::OkStatus();
}

}  // namespace capstan
