#include "tools/bench/checkpoint_bench.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/partition_map.h"
#include "common/random.h"
#include "proto/checkpoint.pb.h"
#include "ps/snapshot_sweep.h"
#include "ps/table.h"
#include "ps/writer_process.h"
#include "storage/table_file_floor.h"
#include "tools/bench/bench_cluster.h"
#include "transport/zmq_transport.h"

namespace capstan {
namespace {

constexpr uint32_t kCutPartitions = 4096;
constexpr size_t kKeysPerPush = 4096;
constexpr size_t kKeysPerStep = 16'384;
constexpr double kZipfExponent = 1.05;

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// A line of /proc/PID/status, in bytes.
uint64_t MemoryOf(pid_t pid, const std::string& line_name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(line_name + ":", 0) == 0) return std::stoull(line.substr(line_name.size() + 1)) * 1024;
  }
  return 0;
}

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / fmt::format("capstan-bench.{}.{}", getpid(), Next())).string()) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;  // it is only a leftover in the system's temporary folder
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  static int Next() {
    static int number = 0;
    return ++number;
  }
  const std::string path_;
};

// Ranks of a Zipf distribution by inversion of its continuous form; good enough to heat some rows.
class Zipf {
 public:
  Zipf(uint64_t n, uint64_t seed) : n_(static_cast<double>(n)), random_(seed) {}
  uint64_t Next() {
    const double power = 1 - kZipfExponent;
    const double u = static_cast<double>(random_.Next() >> 11) * 0x1p-53;
    const double rank = std::pow(1 + u * (std::pow(n_, power) - 1), 1 / power);
    return std::min<uint64_t>(static_cast<uint64_t>(rank) - 1, static_cast<uint64_t>(n_) - 1);
  }

 private:
  const double n_;
  SeededRandom random_;
};

class CheckpointBench {
 public:
  CheckpointBench(const CheckpointBenchOptions& options, std::unique_ptr<WriterProcess> writer,
                  std::unique_ptr<Table> table)
      : options_(options), writer_(std::move(writer)), table_(std::move(table)), sweep_({table_.get()}) {
    gradients_.assign(kKeysPerPush * options_.width, 0.01f);
  }

  void Fill() {
    std::vector<Key> keys;
    for (uint64_t row = 0; row < options_.rows; ++row) {
      keys.push_back(KeyOfRow(row));
      if (keys.size() == kKeysPerPush || row + 1 == options_.rows) Push(&keys);
    }
  }

  static Key KeyOfRow(uint64_t row) { return Mix64(row + 17); }

  // Keys in any order, with repeats.
  void Push(std::vector<Key>* keys) {
    std::sort(keys->begin(), keys->end());
    keys->erase(std::unique(keys->begin(), keys->end()), keys->end());
    table_->Apply(*keys, gradients_.data(), {1.0f, ++step_});
    keys->clear();
  }

  absl::Status Begin(bool full) {
    SnapshotOrder order;
    order.id = ++id_;
    const std::string root = folder_ / fmt::format("C{:06}.tmp", id_);
    std::filesystem::create_directories(root);
    order.folder = root + "/shard-0000";
    if (!full) order.parent_folder = folder_ / fmt::format("C{:06}.tmp/shard-0000", id_ - 1);
    ShardRecord record;
    record.add_owned()->set_count(kCutPartitions);
    return sweep_.Begin(order, record, full, writer_.get(), uint64_t{4} << 30);
  }
  // One slice; true once the part is written.
  absl::StatusOr<bool> Step(bool* moved) {
    longest_slice_ = std::max(longest_slice_, CpuSecondsOf([&] { *moved = sweep_.Step(); }));
    const std::optional<SnapshotResult> result = sweep_.TakeResult();
    if (!result.has_value()) return false;
    if (!result->status.ok()) return result->status;
    return true;
  }
  absl::StatusOr<double> Store(bool full) {
    absl::Status status;
    const double seconds = SecondsOf([&] {
      status = Begin(full);
      bool moved = false;
      while (status.ok()) {
        const absl::StatusOr<bool> done = Step(&moved);
        status = done.status();
        if (!done.ok() || *done) break;
        if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(100));  // the ring is full
      }
    });
    if (!status.ok()) return status;
    while (sweep_.Step()) {  // frees what copies took
    }
    return seconds;
  }
  void Forget(uint64_t id) {
    std::error_code ignored;
    std::filesystem::remove_all(folder_ / fmt::format("C{:06}.tmp", id), ignored);
  }

  // The same rows, sorted and laid out, for the bare writer.
  std::vector<std::byte> SortedRows() const {
    const std::vector<KeyedRow> rows = table_->store().SortedRows(0, kCutPartitions, kCutPartitions);
    const size_t value = StoredValueBytes(static_cast<uint32_t>(table_->layout().floats()));
    std::vector<std::byte> bytes(rows.size() * (kStoredKeyBytes + value));
    std::byte* at = bytes.data();
    for (const KeyedRow& row : rows) {
      const auto key = EncodeStoredKey({0, PartitionOf(row.key, kCutPartitions), row.key});
      std::memcpy(at, key.data(), key.size());
      std::memcpy(at + key.size(), row.row.weights(), value - kStoredCounterBytes);
      std::memset(at + key.size() + value - kStoredCounterBytes, 0, kStoredCounterBytes);
      at += key.size() + value;
    }
    return bytes;
  }

  absl::Status Full(const std::function<void(const Figure&)>& report);
  absl::Status Increments(const std::function<void(const Figure&)>& report);
  absl::Status Memory(const std::function<void(const Figure&)>& report);

 private:
  const CheckpointBenchOptions options_;
  const Folder folder_;
  std::unique_ptr<WriterProcess> writer_;
  std::unique_ptr<Table> table_;
  SnapshotSweep sweep_;
  std::vector<float> gradients_;
  uint64_t id_ = 0, step_ = 0;
  double full_seconds_ = 0;
  double longest_slice_ = 0;  // of CPU, while a cut is handed over
};

absl::Status CheckpointBench::Full(const std::function<void(const Figure&)>& report) {
  const std::vector<std::byte> rows = SortedRows();
  const size_t value = StoredValueBytes(static_cast<uint32_t>(table_->layout().floats()));
  std::vector<double> ours, bare, ratios;
  for (int round = 0; round < options_.rounds; ++round) {
    absl::Status status;
    const std::string path = folder_ / "bare.sst";
    bare.push_back(SecondsOf([&] { status = WriteTableFile(path, rows, options_.rows, value, /*sync=*/true); }));
    CAPSTAN_RETURN_IF_ERROR(status);
    std::filesystem::remove(path);
    CAPSTAN_ASSIGN_OR_RETURN(const double seconds, Store(/*full=*/true));
    ours.push_back(seconds);
    ratios.push_back(bare.back() / seconds);
    Forget(id_ - 1);
  }
  full_seconds_ = MedianOf(ours);
  const double millions = static_cast<double>(options_.rows) / 1e6;
  report({fmt::format("checkpoint.full.{}", options_.width), millions / full_seconds_, "Mrows/s", "bare SstFileWriter",
          millions / MedianOf(bare), MedianOf(ratios)});
  return absl::OkStatus();
}

absl::Status CheckpointBench::Increments(const std::function<void(const Figure&)>& report) {
  for (const int percent : {1, 10, 100}) {
    std::vector<Key> keys;
    uint64_t touched = 0;
    for (uint64_t row = 0; row < options_.rows; ++row) {
      if (row % 100 >= static_cast<uint64_t>(percent)) continue;
      ++touched;
      keys.push_back(KeyOfRow(row));
      if (keys.size() == kKeysPerPush) Push(&keys);
    }
    if (!keys.empty()) Push(&keys);
    CAPSTAN_ASSIGN_OR_RETURN(const double seconds, Store(/*full=*/false));
    const double rate = static_cast<double>(touched) / 1e6 / seconds;
    const double full_rate = static_cast<double>(options_.rows) / 1e6 / full_seconds_;
    report({fmt::format("checkpoint.increment.{}.{}%", options_.width, percent), rate, "Mrows/s", "a full one",
            full_rate, rate / full_rate});
  }
  return absl::OkStatus();
}

// What a rank computes per step: about the work of 640 rows of a DeepFM, 10 ms of a core.
void ComputeStep(std::vector<float>* values) {
  for (int pass = 0; pass < 150; ++pass) {
    for (float& value : *values) value = value * 0.999f + 1e-6f;
    KeepAlive(values->data());
  }
}

absl::Status TrainWhileStoring(BenchClient& client, uint64_t rows, uint32_t width, const Folder& folder,
                               const std::function<void(const Figure&)>& report) {
  constexpr size_t kSmallPull = 64;
  constexpr int kStepsBefore = 300;
  std::vector<float> gradients(kKeysPerStep * width, 0.01f), values(gradients.size());
  Zipf zipf(rows, 5);
  std::vector<double> steps[2], pulls[2];
  const auto draw = [&](size_t n) {
    std::vector<Key> keys;
    for (size_t i = 0; i < n; ++i) keys.push_back(Mix64(zipf.Next() + 17));
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  };
  const auto train = [&](int during) -> absl::Status {
    absl::Status status;
    client.Plan(draw(kKeysPerStep));
    steps[during].push_back(SecondsOf([&] {
      status = client.Pull(values.data());
      ComputeStep(&values);
      if (status.ok()) status = client.Push(gradients.data());
    }));
    CAPSTAN_RETURN_IF_ERROR(status);
    client.Plan(draw(kSmallPull));
    pulls[during].push_back(SecondsOf([&] { status = client.Pull(values.data()); }));
    return status;
  };
  for (int i = 0; i < kStepsBefore; ++i) CAPSTAN_RETURN_IF_ERROR(train(0));
  for (uint64_t id = 1; id <= 3; ++id) {  // several, for enough steps
    const std::string root = folder / fmt::format("busy-{}.tmp", id);
    std::filesystem::create_directories(root);
    client.Cut(id, root + "/shard-0000");
    for (bool written = false; !written;) {
      CAPSTAN_RETURN_IF_ERROR(train(1));
      CAPSTAN_ASSIGN_OR_RETURN(written, client.cut_written());
    }
  }
  const double step = MedianOf(steps[1]), step_before = MedianOf(steps[0]);
  report({"checkpoint.busy.step", 1e3 * step, "ms", "without", 1e3 * step_before, step / step_before});
  const double pull = Percentile(pulls[1], 0.99), pull_before = Percentile(pulls[0], 0.99);
  report({"checkpoint.busy.pull_p99", 1e3 * pull, "ms", "without", 1e3 * pull_before, pull / pull_before});
  const double worst = Percentile(pulls[1], 1.0);
  report({"checkpoint.busy.pull_max", 1e3 * worst, "ms", "p99 without", 1e3 * pull_before, worst / pull_before});
  return absl::OkStatus();
}

// A client process that trains on a server process, as one rank of two: the other one computes all the time, so both
// cores are busy, and the writer wants one as well.
absl::Status BusyServer(const CheckpointBenchOptions& options, const Folder& folder,
                        const std::function<void(const Figure&)>& report) {
  const uint64_t rows = std::min<uint64_t>(options.rows, 2'000'000);
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server, BenchServer::Start("tcp://127.0.0.1:0"));
  BenchClient client(NewZmqTransport(TransportOptions()), server->endpoint(), options.width);
  CAPSTAN_RETURN_IF_ERROR(client.StartJob());
  const std::vector<float> gradients(kKeysPerStep * options.width, 0.01f);
  for (uint64_t begin = 0; begin < rows; begin += kKeysPerStep) {
    std::vector<Key> keys;
    for (uint64_t i = begin; i < std::min<uint64_t>(rows, begin + kKeysPerStep); ++i) keys.push_back(Mix64(i + 17));
    client.Plan(keys);
    CAPSTAN_RETURN_IF_ERROR(client.Push(gradients.data()));
  }
  std::atomic<bool> stop{false};
  std::thread other_rank([&stop, n = gradients.size()] {
    std::vector<float> own(n, 1.0f);
    while (!stop.load(std::memory_order_relaxed)) ComputeStep(&own);
  });
  const absl::Status status = TrainWhileStoring(client, rows, options.width, folder, report);
  stop = true;
  other_rank.join();
  return status;
}

absl::Status CheckpointBench::Memory(const std::function<void(const Figure&)>& report) {
  const uint64_t before = MemoryOf(getpid(), "VmRSS");
  Zipf zipf(options_.rows, 9);
  uint64_t lookups = 0, most = 0;
  std::vector<Key> keys;
  CAPSTAN_RETURN_IF_ERROR(Begin(/*full=*/true));
  for (;;) {
    bool moved = false;
    CAPSTAN_ASSIGN_OR_RETURN(const bool done, Step(&moved));
    if (done) break;
    for (int i = 0; i < 2048 && lookups < 1'000'000; ++i, ++lookups) keys.push_back(KeyOfRow(zipf.Next()));
    if (!keys.empty()) Push(&keys);
    if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(100));
    // The ring is shared: it is counted once, with us.
    most = std::max(most, MemoryOf(getpid(), "VmRSS") + MemoryOf(writer_->pid(), "RssAnon"));
  }
  report({"checkpoint.longest_slice", 1e3 * longest_slice_, "ms", "allowed", 2.0, 1e3 * longest_slice_ / 2.0});
  report({"checkpoint.memory", static_cast<double>(most) / 1e6, "MB", "before", static_cast<double>(before) / 1e6,
          static_cast<double>(most) / static_cast<double>(before)});
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCheckpointBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<WriterProcess> writer, WriterProcess::Start(options.writer));
  TableSpec spec;
  spec.set_name("bench");
  spec.set_width(options.width);
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_learning_rate(0.05);
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, Table::Create(spec, 1));
  table->Track(kCutPartitions, /*increments=*/true);
  CheckpointBench bench(options, std::move(writer), std::move(table));
  bench.Fill();
  CAPSTAN_RETURN_IF_ERROR(bench.Full(report));
  CAPSTAN_RETURN_IF_ERROR(bench.Increments(report));
  CAPSTAN_RETURN_IF_ERROR(bench.Memory(report));
  const Folder folder;
  return BusyServer(options, folder, report);
}

}  // namespace capstan
