#include "sim_cluster.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <glog/logging.h>

#include "proto/checkpoint.pb.h"
#include "ps/optimizer.h"
#include "ps/shard_core.h"
#include "ps/table.h"
#include "scheduler/checkpoint_folders.h"
#include "scheduler/restore_plan.h"
#include "scheduler/scheduler_core.h"
#include "storage/checkpoint_records.h"
#include "tests/support/fake_snapshot.h"

namespace capstan::sim {
namespace {

constexpr Duration kDeadline = std::chrono::minutes(10);
constexpr char kVersion[] = "sim";
constexpr char kSchedulerEndpoint[] = "sim://scheduler";

constexpr char kCheckpoints[] = "run/checkpoints";

// What a cluster begins with, and how it ends.
struct Life {
  FileSystem* disk = nullptr;
  SchedulerOptions::From from;
  std::vector<JobId> lineage;
  testing::FakeSnapshotOptions sink;
  Duration kill_at = Duration::max();  // after its start: everything stops
};

class SchedulerNode final : public SimNode, public SchedulerEvents {
 public:
  SchedulerNode(Outbox& outbox, const EffectiveJob& job, JobId id, const Life& life)
      : folders_(OpenFolders(*life.disk)),
        core_(Options(id, life, folders_.get()), job, outbox, metrics_, *this) {}
  void OnMessage(PeerId from, Message message, Time now) override { core_.OnMessage(from, message, now); }
  void Tick(Time now) override { core_.Tick(now); }
  void OnPhase(const std::string&) override {}
  void OnTraining() override {}
  void OnProgress(const ProgressReport&) override {}
  void OnCheckpoint(const CheckpointEntry&, const std::string&) override { ++checkpoints_; }
  SchedulerCore& core() { return core_; }
  uint64_t checkpoints() const { return checkpoints_; }

 private:
  static std::unique_ptr<CheckpointFolders> OpenFolders(FileSystem& disk) {
    auto folders = CheckpointFolders::Open(disk, kCheckpoints, RetentionPolicy{.keep_last = 2},
                                           [](const std::string&) {});
    CHECK(folders.ok()) << folders.status();
    return *std::move(folders);
  }
  static SchedulerOptions Options(JobId id, const Life& life, CheckpointStore* store) {
    SchedulerOptions options;
    options.version = kVersion;
    options.job_id = id;
    options.incarnation = 77;
    options.cpu_isa = "avx2";
    options.heartbeats = false;
    options.checkpoints = store;
    options.from = life.from;
    options.lineage = life.lineage;
    return options;
  }
  MetricsRegistry metrics_;
  const std::unique_ptr<CheckpointFolders> folders_;
  SchedulerCore core_;
  uint64_t checkpoints_ = 0;
};

MemberOptions Member(NodeRole role, const std::string& name, Incarnation incarnation) {
  MemberOptions options;
  options.role = role;
  options.name = name;
  options.host = "simulated";
  options.incarnation = incarnation;
  options.version = kVersion;
  options.cpu_isa = "avx2";
  options.scheduler_endpoint = kSchedulerEndpoint;
  return options;
}

class ServerNode final : public SimNode {
 public:
  ServerNode(MemberOptions options, Outbox& outbox) : member_(std::move(options), outbox) {}
  void OnMessage(PeerId from, Message message, Time now) override { member_.OnMessage(from, message, now); }
  void Tick(Time now) override { member_.Tick(now); }
  const MemberCore& member() const { return member_; }

 private:
  MemberCore member_;
};

class ShardNode final : public SimNode {
 public:
  ShardNode(ShardIdentity identity, Outbox& outbox, FileSystem& fs, const testing::FakeSnapshotOptions& options)
      : sink_(fs, options), core_(std::move(identity), outbox, metrics_, Around(fs, &sink_)) {}
  void OnMessage(PeerId from, Message message, Time now) override {
    core_.OnMessage(from, std::move(message), now);
    core_.Work(now);  // one slice: the rest comes between later frames
  }
  void Tick(Time now) override {
    core_.Tick(now);
    core_.Work(now);
  }
  const ShardCore& core() const { return core_; }

 private:
  static ShardSurroundings Around(FileSystem& fs, SnapshotSink* sink) {
    ShardSurroundings around;
    around.fs = &fs;
    around.sink = sink;
    around.open_source = testing::FakeRowSources(fs);
    return around;
  }
  testing::FakeSnapshotSink sink_;
  MetricsRegistry metrics_;
  ShardCore core_;
};

class WorkerNode final : public SimNode {
 public:
  WorkerNode(MemberOptions options, Outbox& outbox, SimNetwork& network, const JobShape& shape, Observer& observer)
      : driver_(network, shape, observer), core_(std::move(options), outbox, metrics_, driver_) {
    driver_.set_core(&core_);
  }
  void OnMessage(PeerId from, Message message, Time now) override { core_.OnMessage(from, std::move(message), now); }
  void Tick(Time now) override { core_.Tick(now); }
  const ClientCore& core() const { return core_; }

 private:
  MetricsRegistry metrics_;
  SimDriver driver_;
  ClientCore core_;
};

class Cluster final : public Observer {
 public:
  Cluster(uint64_t seed, const JobShape& shape, const Weather& weather, const Zombie& zombie, Life life)
      : shape_(shape), life_(std::move(life)), network_(seed, weather) {
    Outbox& scheduler_outbox = network_.Add(kSchedulerEndpoint);
    const size_t scheduler_at = network_.nodes() - 1;
    scheduler_ = std::make_unique<SchedulerNode>(scheduler_outbox, MakeJob(shape), seed | 1, life_);
    network_.Attach(scheduler_at, scheduler_.get());
    for (uint32_t i = 0; i < shape.servers; ++i) AddServer(i);
    for (uint32_t i = 0; i < shape.workers; ++i) AddWorker(i);
    if (zombie.old_term || zombie.old_generation) Haunt(zombie);
  }

  Outcome Run() {
    Outcome outcome;
    const Time start = network_.now();
    const auto killed = [this, start] { return network_.now() - start >= life_.kill_at; };
    const bool ended = network_.Run([this, &killed] { return AllEnded() || killed(); }, kDeadline);
    if (killed() && !AllEnded() && faults_.empty()) {
      killed_ = true;
      return outcome;
    }
    outcome.frames = network_.frames();
    outcome.simulated_seconds = std::chrono::duration<double>(network_.now().time_since_epoch()).count();
    if (!ended) {
      std::string text = fmt::format("hang: {}", scheduler_->core().WaitingFor(network_.now()));
      for (const auto& worker : workers_) text += "; " + worker->core().WaitingFor(network_.now());
      outcome.faults.push_back(text);
    }
    if (scheduler_->core().exit_code() == ExitCode::kCheckpoint && life_.sink.fail > 0) {
      killed_ = true;  // its disk failed three times at the end: that run has ended, the next one goes on
      return outcome;
    }
    if (scheduler_->core().exit_code() != ExitCode::kDone) {
      std::string text = "the job failed: " + scheduler_->core().reason();
      for (const auto& worker : workers_) {
        text += "; " + worker->core().WaitingFor(network_.now());
        for (const auto& machine : worker->core().machines()) text += ", " + machine->Describe();
      }
      outcome.faults.push_back(text);
    }
    outcome.faults.insert(outcome.faults.end(), faults_.begin(), faults_.end());
    const uint64_t questions = network_.sent(MessageKind::kLeaseRequest) + network_.sent(MessageKind::kLeaseDone);
    if (shape_.consistency == "sync" && questions > 0) {
      outcome.faults.push_back(fmt::format("sync: the scheduler was asked {} times during training", questions));
    }
    if (outcome.faults.empty()) CheckModel(&outcome);
    return outcome;
  }

  bool killed() const { return killed_; }
  uint64_t checkpoints() const { return scheduler_->checkpoints(); }

  void OnCompute(Rank rank, Step step) override {
    for (const auto& worker : workers_) {
      if (worker->core().member().state() != MemberCore::State::kJoined || !faults_.empty()) continue;
      if (worker->core().WaitingFor(network_.now()).empty()) faults_.push_back("a worker cannot say what it waits for");
    }
    if (shape_.consistency.rfind("ssp:", 0) != 0 || !faults_.empty()) return;
    const uint64_t bound = std::stoull(shape_.consistency.substr(4));
    for (const auto& worker : workers_) {
      for (const auto& machine : worker->core().machines()) {
        if (!machine->in_minimum() || machine->rank() == rank) continue;
        if (machine->step() + bound < step) {
          faults_.push_back(fmt::format("staleness: rank {} computes step {} while rank {} is at {} (bound {})", rank,
                                        step, machine->rank(), machine->step(), bound));
        }
      }
    }
  }

 private:
  void AddServer(uint32_t i) {
    MemberOptions options = Member(NodeRole::kServer, fmt::format("server-{}", i), 1000 + i);
    for (uint32_t s = 0; s < shape_.shards; ++s) {
      const std::string endpoint = fmt::format("sim://server-{}/shard-{}", i, s);
      options.shard_endpoints.push_back(endpoint);
      Outbox& outbox = network_.Add(endpoint);
      const size_t at = network_.nodes() - 1;
      shards_.push_back(std::make_unique<ShardNode>(
          ShardIdentity{options.incarnation, s, fmt::format("server-{}/shard-{}", i, s)}, outbox, *life_.disk, SinkOf(i, s)));
      network_.Attach(at, shards_.back().get());
    }
    Outbox& outbox = network_.Add("");
    const size_t at = network_.nodes() - 1;
    servers_.push_back(std::make_unique<ServerNode>(std::move(options), outbox));
    network_.Attach(at, servers_.back().get());
  }

  testing::FakeSnapshotOptions SinkOf(uint32_t server, uint32_t shard) const {
    testing::FakeSnapshotOptions options = life_.sink;
    options.seed = options.seed * 1000 + server * 50 + shard;
    return options;
  }

  void AddWorker(uint32_t i) {
    Outbox& outbox = network_.Add("");
    const size_t at = network_.nodes() - 1;
    workers_.push_back(std::make_unique<WorkerNode>(Member(NodeRole::kWorker, fmt::format("worker-{}", i), 2000 + i),
                                                    outbox, network_, shape_, *this));
    network_.Attach(at, workers_.back().get());
  }

  // Before a push goes out, one of the same step from the past reaches the shard: same names, older term or
  // generation, other gradients.
  void Haunt(const Zombie& zombie) {
    network_.tap = [this, zombie](PeerId to, Message& message) {
      if (haunting_ || message.header.Kind() != MessageKind::kPush || message.header.parts != 1) return true;
      Message ghost{message.header, Buffer::CopyOf(message.body.data(), message.body.size())};
      absl::StatusOr<BodyView> view = ParseBody(ghost.header.sections, ghost.body);
      if (!view.ok()) return true;
      for (const SectionView& section : view->sections()) {
        if (section.kind() != SectionKind::kValues) continue;
        for (const float& value : section.As<float>()) const_cast<float&>(value) *= 3.0f;
      }
      if (zombie.old_term) ghost.header.rank_term -= 1;
      if (zombie.old_generation) ghost.header.generation -= 1;
      ghost.header.request += 1'000'000;
      SealFrame(ghost);
      haunting_ = true;
      resend_(to, ghost);
      haunting_ = false;
      return true;
    };
    resend_ = [this](PeerId to, const Message& message) { network_.Inject(to, message); };
  }

  bool AllEnded() const {
    return scheduler_->core().finished() &&
           std::all_of(servers_.begin(), servers_.end(),
                       [](const auto& s) { return s->member().state() == MemberCore::State::kEnded; }) &&
           std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w->core().ended(); });
  }

  template <typename Visit>
  void ForEachRow(TableId id, const Visit& visit) const {
    for (const auto& shard : shards_) {
      if (shard->core().state() == nullptr) continue;
      shard->core().state()->tables().table(id).store().ForEach([&](Key key, RowRef row) { visit(key, row.weights()); });
    }
  }

  void CheckModel(Outcome* outcome) {
    std::vector<std::string>& faults = outcome->faults;
    uint64_t rows = 0;
    for (const uint32_t n : shape_.split_rows) rows += n;
    uint64_t counted = 0;
    ForEachRow(0, [&](Key key, const float* weights) {
      ++counted;
      if (key >= rows || weights[0] != static_cast<float>(shape_.epochs)) {
        faults.push_back(fmt::format("census: row {} was counted {} times in {} epochs", key, weights[0], shape_.epochs));
      }
    });
    if (counted != rows) faults.push_back(fmt::format("census: {} of {} rows were counted", counted, rows));
    const std::map<Key, int64_t> expected = ExpectedSums(shape_);
    uint64_t keys = 0;
    ForEachRow(1, [&](Key key, const float* weights) {
      ++keys;
      const auto found = expected.find(key);
      if (found == expected.end() || weights[0] != static_cast<float>(found->second) ||
          weights[1] != static_cast<float>(2 * found->second)) {
        faults.push_back(fmt::format("sums: key {} has {}, want {}", key, weights[0],
                                     found == expected.end() ? 0 : found->second));
      }
    });
    if (keys != expected.size()) faults.push_back(fmt::format("sums: {} keys, want {}", keys, expected.size()));
    uint64_t examples = 0;
    for (const auto& shard : shards_) {
      if (shard->core().violations() > 0) faults.push_back("a shard counted violations of the protocol");
      if (shard->core().state() != nullptr) examples += shard->core().state()->totals().examples;
    }
    if (examples != rows * shape_.epochs) {
      faults.push_back(fmt::format("the home shard counted {} examples, want {}", examples, rows * shape_.epochs));
    }
    outcome->model_sha256 = scheduler_->core().model_sha256();
    if (outcome->model_sha256.empty()) faults.push_back("the job is done, but there is no model");
  }

  const JobShape shape_;
  const Life life_;
  SimNetwork network_;
  bool killed_ = false;
  std::unique_ptr<SchedulerNode> scheduler_;
  std::vector<std::unique_ptr<ShardNode>> shards_;
  std::vector<std::unique_ptr<ServerNode>> servers_;
  std::vector<std::unique_ptr<WorkerNode>> workers_;
  std::vector<std::string> faults_;
  bool haunting_ = false;
  std::function<void(PeerId, const Message&)> resend_;
};

}  // namespace

std::string Outcome::Text() const { return fmt::format("{}", fmt::join(faults, "\n  ")); }

Outcome RunCluster(uint64_t seed, const JobShape& shape, const Weather& weather, const Zombie& zombie) {
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  Life life;
  life.disk = disk.get();
  return Cluster(seed, shape, weather, zombie, std::move(life)).Run();
}

// Where the next life begins: the newest good checkpoint, if there is one.
static void BeginFromDisk(const JobShape& shape, Life* life) {
  auto root = CheckpointRoot::Open(*life->disk, kCheckpoints);
  CHECK(root.ok()) << root.status();
  std::vector<std::string> skipped;
  const absl::StatusOr<CheckpointEntry> newest = (*root)->NewestGood(&skipped);
  CHECK(newest.ok() || absl::IsNotFound(newest.status())) << newest.status();
  CHECK(skipped.empty()) << skipped[0];
  life->from = SchedulerOptions::From();
  if (!newest.ok()) return;
  const absl::StatusOr<CheckpointRecords> records = CheckpointRecords::Load(*life->disk, newest->folder);
  CHECK(records.ok()) << records.status();
  std::vector<const ShardRecord*> shards;
  for (const ShardRecord& shard : records->shards) shards.push_back(&shard);
  const auto from = PlanResume(newest->folder, records->manifest, shards, MakeJob(shape));
  CHECK(from.ok()) << from.status();
  life->from = *from;
  life->lineage = LineageOf(records->manifest);
}

LivesOutcome RunLives(uint64_t seed, const JobShape& shape, const Weather& weather, const Lives& lives) {
  SeededRandom random(seed * 31 + 7);
  const std::unique_ptr<FileSystem> disk = NewMemoryFileSystem();
  LivesOutcome total;
  JobShape now = shape;
  for (uint32_t life_number = 0;; ++life_number) {
    Life life;
    life.disk = disk.get();
    life.sink.fail = lives.writer_fails;
    life.sink.refuse = lives.writer_refuses;
    life.sink.delay_polls = lives.writer_delay;
    life.sink.seed = seed * 10 + life_number;
    if (life_number > 0) {
      BeginFromDisk(now, &life);
      total.resumed += life.from.folder.empty() ? 0 : 1;
    }
    const bool last = life_number >= lives.kills;
    if (last) {
      life.sink.fail = 0;
    } else {
      life.kill_at = std::chrono::milliseconds(20 + random.Below(2500));
    }
    Cluster cluster(seed * 17 + life_number, now, weather, {}, std::move(life));
    static_cast<Outcome&>(total) = cluster.Run();
    total.checkpoints += cluster.checkpoints();
    if (!cluster.killed()) return total;
    now.servers = 1 + static_cast<uint32_t>(random.Below(3));
    now.shards = 1 + static_cast<uint32_t>(random.Below(2));
    now.workers = 1 + static_cast<uint32_t>(random.Below(now.ranks));
  }
}

Lives DrawLives(uint64_t seed, JobShape* shape) {
  SeededRandom random(seed * 104729 + 5);
  Lives lives;
  lives.kills = 1 + static_cast<uint32_t>(random.Below(4));
  lives.writer_fails = random.Below(3) == 0 ? 0.15 : 0;
  lives.writer_refuses = static_cast<double>(random.Below(3)) * 0.3;
  lives.writer_delay = static_cast<uint32_t>(random.Below(4)) * 3;
  shape->checkpoint_steps = static_cast<uint32_t>(random.Below(4)) * 2;
  shape->checkpoint_epochs = shape->checkpoint_steps == 0 || random.Below(2) == 0;
  shape->checkpoint_full_every = 1 + static_cast<uint32_t>(random.Below(4));
  return lives;
}

Scenario DrawScenario(uint64_t seed, const std::string& consistency) {
  SeededRandom random(seed * 7919 + 13);
  Scenario scenario;
  JobShape& shape = scenario.shape;
  shape.consistency = consistency;
  const std::vector<std::string_view> optimizers = OptimizerNames();
  shape.optimizer = optimizers[seed % optimizers.size()];
  shape.ranks = 1 + static_cast<uint32_t>(random.Below(5));
  shape.workers = 1 + static_cast<uint32_t>(random.Below(shape.ranks));
  shape.servers = 1 + static_cast<uint32_t>(random.Below(3));
  shape.shards = 1 + static_cast<uint32_t>(random.Below(2));
  shape.epochs = 1 + static_cast<uint32_t>(random.Below(3));
  shape.batch = 1 + static_cast<uint32_t>(random.Below(5));
  shape.lease_batches = 1 + static_cast<uint32_t>(random.Below(4));
  shape.split_rows.clear();
  for (uint64_t n = random.Below(8); n > 0; --n) shape.split_rows.push_back(1 + static_cast<uint32_t>(random.Below(14)));
  shape.part_bytes = 120 + static_cast<uint32_t>(random.Below(400));
  constexpr uint64_t kCredits[] = {1, 300, 1 << 20, 1 << 20};  // one byte: every request goes alone
  shape.inflight_bytes = kCredits[random.Below(4)];
  shape.accumulation = 1 + static_cast<uint32_t>(random.Below(2));
  if (random.Below(3) == 0) shape.slow_rank = static_cast<int>(random.Below(shape.ranks));
  Weather& weather = scenario.weather;
  weather.loss = random.Below(2) * 0.03;
  weather.doubling = random.Below(2) * 0.08;
  weather.straggling = random.Below(2) * 0.02;
  if (random.Below(4) == 0) weather.slow_node = static_cast<int>(random.Below(1 + shape.servers * (shape.shards + 1)));
  scenario.zombie.old_term = random.Below(4) == 0;
  scenario.zombie.old_generation = random.Below(4) == 0;
  return scenario;
}

std::string ReferenceSha256(const JobShape& shape) {
  JobShape alone = shape;
  alone.servers = alone.shards = alone.workers = 1;
  alone.slow_rank = -1;
  return RunCluster(1, alone, Weather()).model_sha256;
}

}  // namespace capstan::sim
