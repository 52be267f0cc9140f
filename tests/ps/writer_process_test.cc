// The checkpoint writer as a shard sees it: a real process behind shared memory.
#include "ps/writer_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "common/sha256.h"
#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_records.h"
#include "storage/layer_merge.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFloats = 4;
constexpr uint32_t kPartitions = 5;
const char* const kProgram = CAPSTAN_BIN_DIR "/capstan-checkpoint-writer";

using Rows = std::map<Key, std::string>;                  // values as stored
struct Cut {
  std::map<PartitionId, Rows> rows;
  std::map<PartitionId, std::vector<Key>> deleted;
};

std::string SomeValue(std::mt19937_64& random) {
  std::string value(StoredValueBytes(kFloats), '\0');
  std::vector<float> floats(kFloats);
  for (float& f : floats) f = static_cast<float>(random() % 1000);
  std::memcpy(value.data(), floats.data(), kFloats * sizeof(float));
  value[kFloats * sizeof(float)] = static_cast<char>(random() % 100);
  return value;
}

Cut SomeCut(uint64_t seed, size_t rows_per_partition) {
  std::mt19937_64 random(seed);
  Cut cut;
  for (PartitionId p = 0; p < kPartitions; ++p) {
    for (size_t i = 0; i < rows_per_partition; ++i) cut.rows[p][(random() % 5000) * kPartitions + p] = SomeValue(random);
  }
  return cut;
}

template <typename Holds>
bool WaitUntil(const Holds& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

std::optional<SnapshotResult> WaitForResult(WriterProcess& writer) {
  std::optional<SnapshotResult> result;
  WaitUntil([&] { return (result = writer.Poll()).has_value(); });
  return result;
}

// Sends chunks of random sizes, as a shard would: out of order inside a partition. False: the writer failed meanwhile.
bool SendCut(WriterProcess& writer, const Cut& cut, uint64_t seed, std::optional<SnapshotResult>* result) {
  std::mt19937_64 random(seed);
  const size_t record_bytes = sizeof(Key) + StoredValueBytes(kFloats);
  for (PartitionId p = 0; p < kPartitions; ++p) {
    std::vector<std::string> records;
    ContentDigest digest;
    const auto rows = cut.rows.find(p);
    if (rows != cut.rows.end()) {
      for (const auto& [key, value] : rows->second) {
        records.push_back(std::string(reinterpret_cast<const char*>(&key), sizeof(key)) + value);
        digest.AddRow(0, key, value.data(), value.size());
      }
    }
    std::shuffle(records.begin(), records.end(), random);
    std::vector<Key> deleted;
    if (const auto found = cut.deleted.find(p); found != cut.deleted.end()) deleted = found->second;
    for (size_t at = 0;;) {
      const size_t most = (SnapshotSink::kMaxChunkBytes - 4096) / record_bytes;
      const size_t count = std::min(records.size() - at, random() % 4 == 0 ? most : random() % 500);
      std::string bytes;
      for (size_t i = 0; i < count; ++i) bytes += records[at + i];
      at += count;
      SnapshotChunk chunk;
      chunk.partition = p;
      chunk.floats = kFloats;
      chunk.rows = std::as_bytes(std::span(bytes));
      chunk.last = at == records.size();
      if (chunk.last) chunk.deleted = deleted;
      chunk.partition_rows = records.size();
      chunk.digest = digest;
      if (!WaitUntil([&] { return writer.Offer(chunk) || (*result = writer.Poll()).has_value(); })) return false;
      if (result->has_value()) return false;
      if (chunk.last) break;
    }
  }
  return true;
}

ShardRecord RecordOf(const std::map<PartitionId, Rows>& live) {
  ShardRecord record;
  record.set_shard(0);
  record.set_version(17);
  for (const auto& [partition, rows] : live) {
    if (rows.empty()) continue;
    PartitionRows* entry = record.add_rows();
    entry->set_table(0);
    entry->set_partition(partition);
    entry->set_rows(rows.size());
  }
  return record;
}

SnapshotOrder OrderIn(const std::string& root, uint64_t id, uint64_t parent) {
  SnapshotOrder order;
  order.id = id;
  const std::string folder = root + "/" + CheckpointFolderName(id);
  std::filesystem::create_directories(folder);
  order.folder = folder + "/shard-0000";
  if (parent != 0) order.parent_folder = root + "/" + CheckpointFolderName(parent) + "/shard-0000";
  order.tables = {{0, kFloats}};
  return order;
}

void Apply(const Cut& cut, std::map<PartitionId, Rows>* live) {
  for (const auto& [p, keys] : cut.deleted)
    for (const Key key : keys) (*live)[p].erase(key);
  for (const auto& [p, rows] : cut.rows)
    for (const auto& [key, value] : rows) (*live)[p][key] = value;
}

SnapshotResult TakeSnapshot(WriterProcess& writer, const SnapshotOrder& order, const Cut& cut, const ShardRecord& record) {
  writer.Begin(order);
  std::optional<SnapshotResult> result;
  if (SendCut(writer, cut, order.id, &result)) {
    WaitUntil([&] { return writer.Finish(record) || (result = writer.Poll()).has_value(); });
  }
  if (!result) result = WaitForResult(writer);
  return result.value_or(SnapshotResult{0, Internal("no result in time"), 0, ""});
}

ShardRecord ReadBack(const std::string& folder) {
  ShardRecord record;
  const auto bytes = ReadRecord(PosixFileSystem(), folder + "/shard.pb", kMaxRecordBytes);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) return record;
  EXPECT_TRUE(record.ParseFromString(*bytes));
  return record;
}

// What the layers of the part amount to: merged into a scratch folder, by its partitions' counts and digests.
StoredLayer MergedContent(const std::string& folder, const ShardRecord& record) {
  TemporaryFolder scratch;
  std::vector<const StoredLayer*> layers;
  for (const StoredLayer& layer : record.layer()) layers.push_back(&layer);
  LayerWriterOptions options;
  options.folder = scratch.path();
  options.checkpoint = 1;
  const auto merged = MergeLayers(layers, ParentFolder(folder), options, nullptr, nullptr);
  EXPECT_TRUE(merged.ok()) << merged.status();
  return merged.ok() ? *merged : StoredLayer();
}

void ExpectContent(const std::string& folder, const std::map<PartitionId, Rows>& live) {
  const StoredLayer merged = MergedContent(folder, ReadBack(folder));
  std::map<PartitionId, Rows> rest = live;
  for (const LayerPartition& part : merged.part()) {
    ContentDigest digest;
    for (const auto& [key, value] : rest[part.partition()]) digest.AddRow(0, key, value.data(), value.size());
    EXPECT_EQ(part.puts(), rest[part.partition()].size());
    EXPECT_TRUE((digest == ContentDigest{part.digest_low(), part.digest_high()})) << "partition " << part.partition();
    rest.erase(part.partition());
  }
  for (const auto& [partition, rows] : rest) EXPECT_TRUE(rows.empty()) << "partition " << partition << " is missing";
}

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

std::unique_ptr<WriterProcess> StartWriter(const WriterProcessOptions& options = {}) {
  auto writer = WriterProcess::Start(kProgram, options);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

TEST(WriterProcessTest, WritesAChainThatHoldsWhatTheShardHad) {
  TemporaryFolder root;
  WriterProcessOptions options;
  options.ring_bytes = SnapshotRing::kMinBytes + 4096;  // wraps often
  options.compact_layers = 3;
  const auto writer = StartWriter(options);
  ASSERT_NE(writer, nullptr);
  std::map<PartitionId, Rows> live;
  for (uint64_t id = 1; id <= 8; ++id) {
    SCOPED_TRACE(id);
    Cut cut = SomeCut(id, id == 1 ? 3000 : 300);
    if (id > 1) {
      for (PartitionId p = 0; p < kPartitions; ++p) {
        for (const auto& [key, value] : live[p])
          if (key % 7 == id % 7) cut.deleted[p].push_back(key);   // some of them are put again by the same cut
        for (const Key key : cut.deleted[p]) live[p].erase(key);
      }
    }
    Apply(cut, &live);
    const SnapshotOrder order = OrderIn(root.path(), id, id - 1);
    const SnapshotResult result = TakeSnapshot(*writer, order, cut, RecordOf(live));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.id, id);
    EXPECT_EQ(result.record_bytes, std::filesystem::file_size(order.folder + "/shard.pb"));
    EXPECT_EQ(result.record_xxh3, *HashFile(PosixFileSystem(), order.folder + "/shard.pb"));
    ExpectContent(order.folder, live);
    if (id == 3) {
      // Merged in the background: the next one has the merged layer and its own.
      EXPECT_TRUE(WaitUntil([&] {
        const std::string out = root / ".compact-shard-0000/out";
        return std::filesystem::exists(out) && !std::filesystem::is_empty(out);
      }));
    }
  }
  EXPECT_LT(ReadBack(OrderIn(root.path(), 8, 7).folder).layer_size(), 8);
}

TEST(WriterProcessTest, HashesTheModelWhenAsked) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  const Cut cut = SomeCut(5, 700);
  SnapshotOrder order = OrderIn(root.path(), 1, 0);
  order.model_sha256 = true;
  const SnapshotResult result = TakeSnapshot(*writer, order, cut, RecordOf(cut.rows));
  ASSERT_TRUE(result.status.ok()) << result.status;
  const ShardRecord record = ReadBack(order.folder);
  ASSERT_EQ(record.rows_size(), static_cast<int>(kPartitions));
  for (const PartitionRows& rows : record.rows()) {
    Sha256 hash;
    for (const auto& [key, value] : cut.rows.at(rows.partition())) {
      hash.Update(&key, sizeof(key));
      hash.Update(value.data(), kFloats * sizeof(float));
    }
    const Sha256Digest digest = hash.Finish();
    EXPECT_EQ(rows.sha256(), std::string(digest.begin(), digest.end()));
  }
}

// The state of the writer's threads: priority and policy of each, as the kernel tells.
std::set<std::pair<int, int>> NiceAndPolicyOfThreads(pid_t pid) {
  std::set<std::pair<int, int>> seen;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    const auto tid = static_cast<pid_t>(std::stol(entry.path().filename()));
    seen.emplace(getpriority(PRIO_PROCESS, static_cast<id_t>(tid)), sched_getscheduler(tid));
  }
  return seen;
}

TEST(WriterProcessTest, WorksAtThePaceItIsTold) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  const Cut cut = SomeCut(3, 4000);
  uint64_t id = 0;
  for (const SinkPace pace : {SinkPace::kIdle, SinkPace::kLow, SinkPace::kNormal, SinkPace::kIdle}) {
    writer->SetPace(pace);
    const SnapshotOrder order = OrderIn(root.path(), ++id, 0);
    const SnapshotResult result = TakeSnapshot(*writer, order, cut, RecordOf(cut.rows));
    ASSERT_TRUE(result.status.ok()) << result.status;
    ExpectContent(order.folder, cut.rows);
  }
  const std::set<std::pair<int, int>> threads = NiceAndPolicyOfThreads(writer->pid());
  EXPECT_TRUE(threads.contains({0, SCHED_IDLE}));
  EXPECT_TRUE(threads.contains({10, SCHED_OTHER}));
  EXPECT_TRUE(threads.contains({0, SCHED_OTHER}));
}

TEST(WriterProcessTest, ChangesItsPaceInTheMiddleOfASnapshot) {
  TemporaryFolder root;
  WriterProcessOptions options;
  options.ring_bytes = SnapshotRing::kMinBytes + 4096;
  const auto writer = StartWriter(options);
  const Cut cut = SomeCut(4, 8000);
  std::atomic<bool> done{false};
  std::thread changes([&] {
    for (uint32_t i = 0; !done; ++i) {
      writer->SetPace(static_cast<SinkPace>(i % kSinkPaces));
      std::this_thread::yield();
    }
  });
  for (uint64_t id = 1; id <= 5; ++id) {
    const SnapshotOrder order = OrderIn(root.path(), id, 0);
    const SnapshotResult result = TakeSnapshot(*writer, order, cut, RecordOf(cut.rows));
    EXPECT_TRUE(result.status.ok()) << result.status;
    ExpectContent(order.folder, cut.rows);
  }
  done = true;
  changes.join();
}

TEST(WriterProcessTest, AbortInTheMiddleAndBeginAgain) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  const Cut cut = SomeCut(1, 2000);
  const SnapshotOrder first = OrderIn(root.path(), 1, 0);
  writer->Begin(first);
  ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(first.folder); }));
  writer->Abort();
  EXPECT_TRUE(WaitUntil([&] { return !std::filesystem::exists(first.folder); }));
  const SnapshotOrder second = OrderIn(root.path(), 2, 0);
  const SnapshotResult result = TakeSnapshot(*writer, second, cut, RecordOf(cut.rows));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.id, 2u);
  ExpectContent(second.folder, cut.rows);
}

TEST(WriterProcessTest, AKilledWriterFailsTheSnapshotAndTheNextOneWorks) {
  TemporaryFolder root;
  const size_t descriptors = OpenDescriptors();
  {
    const auto writer = StartWriter();
    const Cut cut = SomeCut(1, 500);
    const pid_t pid = writer->pid();
    writer->Begin(OrderIn(root.path(), 1, 0));
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    const std::optional<SnapshotResult> failed = WaitForResult(*writer);
    ASSERT_TRUE(failed.has_value());
    EXPECT_THAT(std::string(failed->status.message()),
                HasSubstr(fmt::format("the checkpoint writer (pid {}) was killed by signal 9", pid)));
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);  // reaped
    const SnapshotOrder order = OrderIn(root.path(), 2, 0);
    const SnapshotResult result = TakeSnapshot(*writer, order, cut, RecordOf(cut.rows));
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_NE(writer->pid(), pid);
    ExpectContent(order.folder, cut.rows);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(WriterProcessTest, SignalsForTheWholeGroupDoNotEndIt) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  const pid_t pid = writer->pid();
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGUSR2}) ASSERT_EQ(kill(pid, signal), 0);
  const Cut cut = SomeCut(1, 100);
  const SnapshotResult result = TakeSnapshot(*writer, OrderIn(root.path(), 1, 0), cut, RecordOf(cut.rows));
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(writer->pid(), pid);
}

TEST(WriterProcessTest, OutlivesTheThreadThatStartedIt) {
  TemporaryFolder root;
  std::unique_ptr<WriterProcess> writer;
  std::thread([&] { writer = StartWriter(); }).join();
  const pid_t pid = writer->pid();
  const Cut cut = SomeCut(1, 100);
  EXPECT_TRUE(TakeSnapshot(*writer, OrderIn(root.path(), 1, 0), cut, RecordOf(cut.rows)).status.ok());
  EXPECT_EQ(writer->pid(), pid);
}

TEST(WriterProcessTest, WrongDigestNamesThePartition) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  const SnapshotOrder order = OrderIn(root.path(), 1, 0);
  writer->Begin(order);
  std::string bytes = std::string(sizeof(Key), '\1') + std::string(StoredValueBytes(kFloats), '\2');
  SnapshotChunk chunk;
  chunk.partition = 3;
  chunk.floats = kFloats;
  chunk.rows = std::as_bytes(std::span(bytes));
  chunk.last = true;
  chunk.partition_rows = 1;
  chunk.digest = {1, 2};
  ASSERT_TRUE(WaitUntil([&] { return writer->Offer(chunk); }));
  ASSERT_TRUE(WaitUntil([&] { return writer->Finish(ShardRecord()); }));
  const std::optional<SnapshotResult> result = WaitForResult(*writer);
  ASSERT_TRUE(result.has_value());
  EXPECT_TRUE(absl::IsDataLoss(result->status));
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("table 0, partition 3"));
  EXPECT_FALSE(std::filesystem::exists(order.folder));
}

TEST(WriterProcessTest, TooLittleSpaceIsToldBeforeAnythingIsWritten) {
  TemporaryFolder root;
  const auto writer = StartWriter();
  SnapshotOrder order = OrderIn(root.path(), 1, 0);
  order.expected_bytes = uint64_t{1} << 60;
  writer->Begin(order);
  const std::optional<SnapshotResult> result = WaitForResult(*writer);
  ASSERT_TRUE(result.has_value());
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("wanted"));
  EXPECT_FALSE(std::filesystem::exists(order.folder));
}

TEST(WriterProcessTest, AFullDiskFailsTheSnapshotAndNothingElse) {
  TemporaryFolder root;
  if (mount("tmpfs", root.path().c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "needs to mount a small tmpfs: " << std::strerror(errno);
  }
  {
    WriterProcessOptions options;
    options.reserve_bytes = 0;  // the guard would tell before the disk does
    const auto writer = StartWriter(options);
    Cut large = SomeCut(1, 0);
    std::mt19937_64 random(1);
    for (PartitionId p = 0; p < kPartitions; ++p) {
      for (Key key = p; key < 150'000; key += kPartitions) {
        std::string value = SomeValue(random);
        for (size_t i = 0; i < kFloats * sizeof(float); ++i) value[i] = static_cast<char>(random());
        large.rows[p][key] = value;
      }
    }
    const Cut small = SomeCut(2, 100);
    for (uint64_t round = 0; round < 20; ++round) {
      SCOPED_TRACE(round);
      const SnapshotOrder order = OrderIn(root.path(), 2 * round + 1, 0);
      const SnapshotResult failed = TakeSnapshot(*writer, order, large, RecordOf(large.rows));
      EXPECT_FALSE(failed.status.ok());
      std::filesystem::remove_all(ParentFolder(order.folder));
      const SnapshotOrder next = OrderIn(root.path(), 2 * round + 2, 0);
      const SnapshotResult good = TakeSnapshot(*writer, next, small, RecordOf(small.rows));
      EXPECT_TRUE(good.status.ok()) << good.status;
      std::filesystem::remove_all(ParentFolder(next.folder));
    }
  }
  EXPECT_EQ(umount(root.path().c_str()), 0);
}

TEST(WriterProcessTest, EndsWithItsServer) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t server = fork();  // a stand-in for a server: starts a writer, tells its pid, waits to be killed
  if (server == 0) {
    const auto writer = WriterProcess::Start(kProgram);
    const pid_t pid = writer.ok() ? (*writer)->pid() : -1;
    if (write(ends[1], &pid, sizeof(pid)) != sizeof(pid)) _exit(1);
    for (;;) pause();
  }
  pid_t writer = -1;
  ASSERT_EQ(read(ends[0], &writer, sizeof(writer)), static_cast<ssize_t>(sizeof(writer)));
  close(ends[0]);
  close(ends[1]);
  ASSERT_GT(writer, 0);
  const int process = static_cast<int>(syscall(SYS_pidfd_open, writer, 0));
  ASSERT_GE(process, 0);
  ASSERT_EQ(kill(server, SIGKILL), 0);
  ASSERT_EQ(waitpid(server, nullptr, 0), server);
  struct pollfd wait = {process, POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, 10'000), 1) << "the writer outlived its server";
  close(process);
}

TEST(WriterProcessTest, AProgramThatIsNotThereIsSaid) {
  const auto writer = WriterProcess::Start("/nowhere/capstan-checkpoint-writer");
  EXPECT_TRUE(absl::IsNotFound(writer.status()));
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("/nowhere/capstan-checkpoint-writer"));
}

}  // namespace
}  // namespace capstan::testing
