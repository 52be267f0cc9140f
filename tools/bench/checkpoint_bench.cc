#include "tools/bench/checkpoint_bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "common/partition_map.h"
#include "proto/checkpoint.pb.h"
#include "ps/snapshot_sweep.h"
#include "ps/table.h"
#include "ps/writer_process.h"
#include "storage/table_file_floor.h"
#include "tools/bench/checkpoint_busy.h"
#include "tools/bench/checkpoint_parts.h"

namespace capstan {
namespace {

constexpr uint32_t kCutPartitions = 4096;
constexpr size_t kKeysPerPush = 4096;
constexpr uint64_t kLookups = 1'000'000;
constexpr size_t kLookupsPerSlice = 2048;
constexpr double kAllowedSliceMs = 2;
constexpr int kWriterNice = 10;
constexpr auto kFullRingPause = std::chrono::microseconds(100);

// In a thread of the writer's priority: on a busy machine the bare loop would else get more of it than the writer.
struct BareRun {
  absl::Status status;
  double seconds = 0, cpu_seconds = 0;
};
BareRun RunBareWriter(const std::string& path, std::span<const std::byte> rows, size_t count, size_t value_bytes) {
  BareRun run;
  std::thread([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kWriterNice);
    run.seconds = SecondsOf([&] {
      run.cpu_seconds =
          CpuSecondsOf([&] { run.status = WriteTableFile(path, rows, count, value_bytes, /*sync=*/true); });
    });
  }).join();
  return run;
}

class CheckpointBench {
 public:
  CheckpointBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report,
                  std::unique_ptr<WriterProcess> writer, std::unique_ptr<Table> table)
      : options_(options),
        report_(report),
        writer_(std::move(writer)),
        table_(std::move(table)),
        sweep_({table_.get()}),
        gradients_(kKeysPerPush * options_.width, 0.01f),
        values_(gradients_.size()) {}

  absl::Status Run() {
    Touch(100);
    CAPSTAN_RETURN_IF_ERROR(Full());
    for (const uint32_t percent : {1u, 10u, 100u}) CAPSTAN_RETURN_IF_ERROR(Increment(percent));
    return Memory();
  }

 private:
  // Updates so many rows of a hundred; makes them the first time. Returns how many.
  uint64_t Touch(uint32_t percent) {
    std::vector<Key> keys;
    uint64_t touched = 0;
    for (uint64_t row = 0; row < options_.rows; ++row) {
      if (row % 100 >= percent) continue;
      ++touched;
      keys.push_back(KeyOfBenchRow(row));
      if (keys.size() == kKeysPerPush) Push(&keys);
    }
    Push(&keys);
    return touched;
  }

  void Push(std::vector<Key>* keys) {
    MakeRequest(keys);
    table_->Apply(*keys, gradients_.data(), {1.0f, ++step_});
    keys->clear();
  }

  std::string CutFolder(uint64_t id) const { return folder_ / fmt::format("C{:06}.tmp", id); }

  absl::Status Begin(bool full) {
    SnapshotOrder order;
    order.id = ++id_;
    std::filesystem::create_directories(CutFolder(id_));
    order.folder = CutFolder(id_) + "/shard-0000";
    if (!full) order.parent_folder = CutFolder(id_ - 1) + "/shard-0000";
    ShardRecord record;
    record.add_owned()->set_count(kCutPartitions);
    return sweep_.Begin(order, record, full, writer_.get(), uint64_t{4} << 30);
  }

  // One slice; true once the part is written.
  absl::StatusOr<bool> Step() {
    bool moved = false;
    longest_slice_ = std::max(longest_slice_, CpuSecondsOf([&] { moved = sweep_.Step(); }));
    const std::optional<SnapshotResult> result = sweep_.TakeResult();
    if (result.has_value() && !result->status.ok()) return result->status;
    if (!moved && !result.has_value()) std::this_thread::sleep_for(kFullRingPause);
    return result.has_value();
  }

  absl::Status Finish() {
    for (bool done = false; !done;) {
      CAPSTAN_ASSIGN_OR_RETURN(done, Step());
    }
    return absl::OkStatus();
  }

  // The seconds it takes.
  absl::StatusOr<double> Store(bool full) {
    absl::Status status;
    const double seconds = SecondsOf([&] {
      status = Begin(full);
      if (status.ok()) status = Finish();
    });
    if (!status.ok()) return status;
    while (sweep_.Step()) {  // frees what copies took
    }
    return seconds;
  }

  // The same rows, sorted and laid out, for the bare writer.
  std::vector<std::byte> SortedRows() const {
    const std::vector<KeyedRow> rows = table_->store().SortedRows(0, kCutPartitions, kCutPartitions);
    std::vector<std::byte> bytes(rows.size() * (kStoredKeyBytes + value_bytes()));
    std::byte* at = bytes.data();
    for (const KeyedRow& row : rows) {
      const auto key = EncodeStoredKey({0, PartitionOf(row.key, kCutPartitions), row.key});
      std::memcpy(at, key.data(), key.size());
      std::memcpy(at + key.size(), row.row.weights(), value_bytes() - kStoredCounterBytes);
      std::memset(at + key.size() + value_bytes() - kStoredCounterBytes, 0, kStoredCounterBytes);
      at += key.size() + value_bytes();
    }
    return bytes;
  }

  size_t value_bytes() const { return StoredValueBytes(static_cast<uint32_t>(table_->layout().floats())); }
  double millions() const { return static_cast<double>(options_.rows) / 1e6; }

  absl::Status Full();
  absl::Status Increment(uint32_t percent);
  absl::Status Memory();

  const CheckpointBenchOptions options_;
  const std::function<void(const Figure&)>& report_;
  const BenchFolder folder_;
  std::unique_ptr<WriterProcess> writer_;
  std::unique_ptr<Table> table_;
  SnapshotSweep sweep_;
  std::vector<float> gradients_, values_;
  uint64_t id_ = 0, step_ = 0;
  double full_seconds_ = 0;
  double longest_slice_ = 0;  // of CPU, while a cut is handed over
};

absl::Status CheckpointBench::Full() {
  const std::vector<std::byte> rows = SortedRows();
  const std::string bare_file = folder_ / "bare.sst";
  std::vector<double> ours, bare, ratios, our_cpu, bare_cpu, cpu_ratios;
  for (int round = 0; round < options_.rounds; ++round) {
    const BareRun run = RunBareWriter(bare_file, rows, options_.rows, value_bytes());
    CAPSTAN_RETURN_IF_ERROR(run.status);
    std::filesystem::remove(bare_file);
    const double cpu_before = CpuSecondsOfProcess(writer_->pid());
    CAPSTAN_ASSIGN_OR_RETURN(const double seconds, Store(/*full=*/true));
    our_cpu.push_back(CpuSecondsOfProcess(writer_->pid()) - cpu_before);
    std::filesystem::remove_all(CutFolder(id_ - 1));
    ours.push_back(seconds);
    bare.push_back(run.seconds);
    bare_cpu.push_back(run.cpu_seconds);
    ratios.push_back(bare.back() / ours.back());
    cpu_ratios.push_back(bare_cpu.back() / our_cpu.back());
  }
  full_seconds_ = MedianOf(ours);
  report_({fmt::format("checkpoint.full.{}", options_.width), millions() / full_seconds_, "Mrows/s",
           "bare SstFileWriter", millions() / MedianOf(bare), MedianOf(ratios)});
  report_({fmt::format("checkpoint.full_cpu.{}", options_.width), millions() / MedianOf(our_cpu), "Mrows/s",
           "bare SstFileWriter", millions() / MedianOf(bare_cpu), MedianOf(cpu_ratios)});
  return absl::OkStatus();
}

absl::Status CheckpointBench::Increment(uint32_t percent) {
  const uint64_t touched = Touch(percent);
  CAPSTAN_ASSIGN_OR_RETURN(const double seconds, Store(/*full=*/false));
  const std::string suffix = fmt::format("{}.{}%", options_.width, percent);
  const double rate = static_cast<double>(touched) / 1e6 / seconds;
  const double full_rate = millions() / full_seconds_;
  report_({"checkpoint.increment." + suffix, rate, "Mrows/s", "a full one", full_rate, rate / full_rate});
  const double share = full_seconds_ * static_cast<double>(touched) / static_cast<double>(options_.rows);
  report_({"checkpoint.increment_time." + suffix, 1e3 * seconds, "ms", "its share of a full one", 1e3 * share,
           share / seconds});
  return absl::OkStatus();
}

absl::Status CheckpointBench::Memory() {
  const uint64_t before = MemoryOfProcess(getpid(), "VmRSS");
  ZipfRanks zipf(options_.rows, 9);
  uint64_t lookups = 0, most = 0;
  std::vector<Key> keys;
  CAPSTAN_RETURN_IF_ERROR(Begin(/*full=*/true));
  for (bool done = false; !done;) {
    CAPSTAN_ASSIGN_OR_RETURN(done, Step());
    for (size_t i = 0; i < kLookupsPerSlice && lookups < kLookups; ++i, ++lookups) {
      keys.push_back(KeyOfBenchRow(zipf.Next()));
    }
    MakeRequest(&keys);
    table_->Gather(keys, values_.data());
    Push(&keys);
    // The ring is shared: it is counted once, with us.
    most = std::max(most, MemoryOfProcess(getpid(), "VmRSS") + MemoryOfProcess(writer_->pid(), "RssAnon"));
  }
  report_({"checkpoint.longest_slice", 1e3 * longest_slice_, "ms", "allowed", kAllowedSliceMs,
           kAllowedSliceMs / (1e3 * longest_slice_)});
  report_({"checkpoint.memory", static_cast<double>(most) / 1e6, "MB", "before", static_cast<double>(before) / 1e6,
           static_cast<double>(most) / static_cast<double>(before)});
  return absl::OkStatus();
}

absl::Status RunIdleBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report) {
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<WriterProcess> writer, WriterProcess::Start(options.writer));
  TableSpec spec;
  spec.set_name("bench");
  spec.set_width(options.width);
  spec.mutable_optimizer()->set_name("adagrad");
  spec.mutable_optimizer()->set_learning_rate(0.05);
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, Table::Create(spec, 1));
  table->Track(kCutPartitions, /*increments=*/true);
  return CheckpointBench(options, report, std::move(writer), std::move(table)).Run();
}

}  // namespace

absl::Status RunCheckpointBench(const CheckpointBenchOptions& options, const std::function<void(const Figure&)>& report) {
  if (options.rows < 1000) return InvalidArgument(fmt::format("--rows={}; it must be 1000 or more", options.rows));
  if (options.width < 1 || options.width > 4096) {
    return InvalidArgument(fmt::format("--width={} is outside 1 to 4096", options.width));
  }
  CAPSTAN_RETURN_IF_ERROR(RunIdleBench(options, report));
  return RunBusyBench(options, report);  // the table is gone: this one has a server of its own
}

}  // namespace capstan
