#include "tools/job/check.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/core.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "common/consistency.h"
#include "common/partition_map.h"
#include "proto/job.pb.h"
#include "tools/nearest_name.h"

namespace capstan {
namespace {

namespace pb = google::protobuf;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Ranges of whole numbers, with the reason of the bounds.
struct Range {
  const char* message;  // "" is the job itself
  const char* key;
  uint64_t least;
  uint64_t most;
  const char* why;
};
constexpr Range kRanges[] = {
    {"", "epochs", 1, 100'000, "passes over the data"},
    {"", "ranks", 1, 1024, "every rank sends every shard a message each step"},
    {"", "threads_per_rank", 1, 256, "parallelism comes from ranks; the bits of a run depend on this number"},
    {"", "lease_batches", 1, 1'000'000, "batches that a rank takes at a time"},
    {"", "metrics_seconds", 1, 3600, "seconds between two lines of metrics.jsonl"},
    {"batch", "global", 1, 1u << 26, "rows of one optimizer step"},
    {"batch", "micro", 1, 1u << 20, "rows that are in memory at once"},
    {"batch", "accumulation", 1, 65'536, "micro-batches of one step"},
    {"data", "split_rows", 1, 1u << 24, "rows that are read as one piece"},
    {"cluster", "servers", 1, 1024, "server processes"},
    {"cluster", "workers", 1, 1024, "worker processes"},
    {"cluster", "shards", 1, 256, "shards per server, one thread each"},
    {"cluster", "join_timeout_ms", 100, 86'400'000, "ms to wait for all nodes"},
    {"cluster", "heartbeat_ms", 10, 60'000,
     "ms; shorter wakes the machine for nothing, longer finds the dead late"},
    {"cluster", "heartbeat_limit_ms", 30, 600'000, "ms; shorter evicts nodes that are only slow"},
    {"cluster", "request_timeout_ms", 10, 600'000, "ms; a request without an answer is sent again"},
    {"cluster", "stall_timeout_ms", 100, 604'800'000, "ms without progress"},
    {"cluster", "inflight_bytes", kMiB, 1'048'576 * kMiB, "bytes; the largest request must fit"},
    {"checkpoint", "full_every", 1, 1'000'000, "checkpoints, of which one is full"},
    {"checkpoint", "keep_last", 1, 1'000'000, "checkpoints"},
    {"checkpoint", "timeout_ms", 1000, 86'400'000, "ms without progress of a checkpoint"},
    {"cluster", "shard_buffer_bytes", kMiB, 16'777'216 * kMiB, "bytes; the pushes of one step must fit"},
};

class Checker {
 public:
  explicit Checker(const JobConfig& job) : job_(job) {}

  CheckResult Run(const std::vector<std::string>& optimizers) {
    CheckRanges();
    CheckNames();
    CheckOptimizer("optimizer", job_.optimizer(), optimizers);
    CheckTableRules(optimizers);
    CheckModel();
    CheckData();
    CheckCluster();
    return std::move(result_);
  }

 private:
  void Error(std::string key, std::string text) {
    result_.errors.push_back({std::move(key), std::move(text)});
  }
  void Warn(std::string key, std::string text) {
    result_.warnings.push_back({std::move(key), std::move(text)});
  }

  void CheckRanges() {
    for (const Range& range : kRanges) {
      const pb::Message* message = &job_;
      std::string key = range.key;
      if (range.message[0] != '\0') {
        const pb::FieldDescriptor* in = job_.GetDescriptor()->FindFieldByName(range.message);
        message = &job_.GetReflection()->GetMessage(job_, in);
        key = fmt::format("{}.{}", range.message, range.key);
      }
      const pb::FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(range.key);
      const uint64_t value = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_UINT32
                                 ? message->GetReflection()->GetUInt32(*message, field)
                                 : message->GetReflection()->GetUInt64(*message, field);
      if (value < range.least || value > range.most) {
        Error(key, fmt::format("{} is outside {}…{} ({})", value, range.least, range.most, range.why));
      }
    }
  }

  void CheckNames() {
    const std::string& name = job_.name();
    const bool plain =
        name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
        std::string::npos;
    if (!plain || name.empty() || name.size() > 100 || name[0] == '.') {
      Error("name",
            fmt::format("'{}' must be 1 to 100 letters, digits, '-', '_' or '.', and not begin with '.' (it "
                        "names the output folder)",
                        name));
    }
    if (const auto parsed = ParseConsistency(job_.consistency()); !parsed.ok()) {
      Error("consistency", std::string(parsed.status().message()));
    } else if (parsed->sync() && job_.lease_batches() != JobConfig::default_instance().lease_batches()) {
      Warn("lease_batches", "is not used with consistency 'sync'");
    }
    const std::vector<std::string> isas = {"auto", "avx2", "avx512"};
    if (std::find(isas.begin(), isas.end(), job_.cpu_isa()) == isas.end()) {
      Error("cpu_isa", fmt::format("'{}' is none of auto, avx2, avx512{}", job_.cpu_isa(),
                                   NameHint(job_.cpu_isa(), isas)));
    }
  }

  void CheckNumber(const std::string& key, double value, bool fits, const char* wanted) {
    if (!std::isfinite(value) || !fits) Error(key, fmt::format("{} is not {}", value, wanted));
  }

  void CheckOptimizer(const std::string& key, const OptimizerConfig& o,
                      const std::vector<std::string>& known) {
    if (std::find(known.begin(), known.end(), o.name()) == known.end()) {
      Error(key + ".name", fmt::format("no optimizer '{}'{}", o.name(), NameHint(o.name(), known)));
    }
    struct Number {
      const char* name;
      double value;
      bool fits;
      const char* wanted;
    };
    const auto decays = [](double value) { return value >= 0 && value < 1; };
    const auto within = [](double value, double most) { return value >= 0 && value <= most; };
    const Number numbers[] = {
        {"learning_rate", o.learning_rate(), o.learning_rate() > 0 && o.learning_rate() <= 1e6, "above 0 and at most 1e6"},
        {"beta1", o.beta1(), decays(o.beta1()), "from 0 to below 1 (decay of the mean)"},
        {"beta2", o.beta2(), decays(o.beta2()), "from 0 to below 1 (decay of the squares)"},
        {"epsilon", o.epsilon(), within(o.epsilon(), 1), "from 0 to 1"},
        {"initial_accumulator", o.initial_accumulator(), within(o.initial_accumulator(), 1e6), "from 0 to 1e6"},
        {"momentum", o.momentum(), decays(o.momentum()), "from 0 to below 1"},
        {"decay", o.decay(), decays(o.decay()), "from 0 to below 1 (decay of the squares)"},
        {"weight_decay", o.weight_decay(), within(o.weight_decay(), 1e6), "from 0 to 1e6"},
        {"l1", o.l1(), within(o.l1(), 1e6), "from 0 to 1e6"},
        {"l2", o.l2(), within(o.l2(), 1e6), "from 0 to 1e6"},
        {"beta", o.beta(), o.beta() > 0 && o.beta() <= 1e6, "above 0 and at most 1e6"},
        {"clip_value", o.clip_value(), within(o.clip_value(), 1e30), "from 0 (off) to 1e30"},
        {"clip_norm", o.clip_norm(), within(o.clip_norm(), 1e30), "from 0 (off) to 1e30"},
    };
    for (const Number& n : numbers) CheckNumber(fmt::format("{}.{}", key, n.name), n.value, n.fits, n.wanted);
    CheckSchedule(key + ".schedule", o.schedule());
  }

  // What can be said before the length of the run is known; ps/rate_schedule.cc has the last word.
  void CheckSchedule(const std::string& key, const ScheduleConfig& s) {
    const std::vector<std::string> kinds = {"constant",     "linear", "cosine",   "polynomial",
                                            "inverse_sqrt", "step",   "one_cycle"};
    if (std::find(kinds.begin(), kinds.end(), s.kind()) == kinds.end()) {
      Error(key + ".kind", fmt::format("no schedule '{}'{}", s.kind(), NameHint(s.kind(), kinds)));
    }
    const std::pair<const char*, double> shares[] = {{"warmup_start", s.warmup_start()},
                                                     {"end_factor", s.end_factor()},
                                                     {"step_factor", s.step_factor()},
                                                     {"start_factor", s.start_factor()},
                                                     {"peak_at", s.peak_at()}};
    for (const auto& [name, value] : shares) {
      CheckNumber(fmt::format("{}.{}", key, name), value, value >= 0 && value <= 1, "from 0 to 1");
    }
    CheckNumber(key + ".power", s.power(), s.power() >= 0.5 && s.power() <= 16 && 2 * s.power() == std::floor(2 * s.power()),
                "a multiple of 0.5 from 0.5 to 16");
    if (s.kind() == "step" && s.steps() == 0 && s.boundary_size() == 0) {
      Error(key + ".steps", "is 0 and there is no 'boundary'; a schedule of steps needs one of them");
    }
    if (s.kind() == "inverse_sqrt" && s.steps() == 0 && s.warmup_steps() == 0) {
      Error(key + ".steps", "is 0 and so is warmup_steps; inverse_sqrt needs one of them");
    }
    for (int i = 0; i < s.boundary_size(); ++i) {
      if (s.boundary(i) > (i == 0 ? 0 : s.boundary(i - 1))) continue;
      Error(fmt::format("{}.boundary[{}]", key, i), fmt::format("{}: boundaries increase, from 1", s.boundary(i)));
    }
  }

  void CheckTableRules(const std::vector<std::string>& optimizers) {
    std::set<std::string> seen;
    for (int i = 0; i < job_.table_rule_size(); ++i) {
      const TableRule& rule = job_.table_rule(i);
      const std::string key = fmt::format("table_rule[{}]", i);
      if (rule.table().empty()) {
        Error(key, "has no 'table'; wanted a table's name, or a prefix and '*'");
      } else if (const size_t star = rule.table().find('*');
                 star != std::string::npos && star + 1 != rule.table().size()) {
        Error(key + ".table", fmt::format("'{}': '*' may stand at the end only", rule.table()));
      } else if (!seen.insert(rule.table()).second) {
        Error(key + ".table",
              fmt::format("'{}' has a rule already; the first one wins, remove this one", rule.table()));
      }
      CheckOptimizer(key + ".optimizer", rule.optimizer(), optimizers);
    }
  }

  void CheckModel() {
    if (job_.model().kind_case() == ModelConfig::KIND_NOT_SET) {
      Error("model",
            "no model is chosen; wanted one of model { lr {} }, model { wide_deep {} }, model { census {} }");
    }
    if (!job_.model().has_wide_deep()) return;
    const WideDeep& model = job_.model().wide_deep();
    if (model.embedding_dim() < 1 || model.embedding_dim() > 4096) {
      Error("model.wide_deep.embedding_dim", fmt::format("{} is outside 1…4096", model.embedding_dim()));
    }
    if (model.hidden_size() > 32) {
      Error("model.wide_deep.hidden", fmt::format("{} layers, at most 32 are accepted", model.hidden_size()));
    }
    for (int i = 0; i < model.hidden_size(); ++i) {
      if (model.hidden(i) < 1 || model.hidden(i) > 65'536) {
        Error(fmt::format("model.wide_deep.hidden[{}]", i),
              fmt::format("{} is outside 1…65536", model.hidden(i)));
      }
    }
  }

  // Only what data/ does not check by itself (ValidateDataConfig).
  void CheckData() {
    const DataConfig& data = job_.data();
    if (data.train_size() == 0) {
      Error("data.train", "no file to train on; wanted data { train: \"FILE\" } or --data=FILE");
    }
    const std::vector<std::string> columns(data.column().begin(), data.column().end());
    const auto check_column = [&](const std::string& key, const std::string& column) {
      if (columns.empty() || column.empty()) return;
      if (std::find(columns.begin(), columns.end(), column) != columns.end()) return;
      Error(key, fmt::format("no column '{}'{}", column, NameHint(column, columns)));
    };
    check_column("data.label.column", data.label().column());
    check_column("data.weight_column", data.weight_column());
    for (int i = 0; i < data.feature_size(); ++i) {
      check_column(fmt::format("data.feature[{}].column", i), data.feature(i).column());
    }
  }

  void CheckCluster() {
    const ClusterConfig& c = job_.cluster();
    if (c.workers() > job_.ranks()) {
      Error("cluster.workers",
            fmt::format("{} workers for {} ranks: each worker needs a rank; raise ranks or lower the "
                        "number of workers",
                        c.workers(), job_.ranks()));
    }
    const uint64_t shards = uint64_t{c.servers()} * c.shards();
    const uint32_t partitions = c.partitions();
    if (partitions < 1 || partitions > kMaxPartitions || (partitions & (partitions - 1)) != 0) {
      Error("cluster.partitions",
            fmt::format("{} is no power of two from 1 to {}", partitions, kMaxPartitions));
    } else if (shards > partitions) {
      Error("cluster.partitions",
            fmt::format("{} partitions for {} shards ({} servers × {}): some would own nothing", partitions,
                        shards, c.servers(), c.shards()));
    } else if (partitions < 16 * shards) {
      Warn("cluster.partitions",
           fmt::format("{} partitions for {} shards: below 16 per shard the load is uneven", partitions,
                       shards));
    }
    if (c.heartbeat_limit_ms() < 3 * uint64_t{c.heartbeat_ms()}) {
      Error("cluster.heartbeat_limit_ms",
            fmt::format("{} is below 3 × heartbeat_ms {}: one late heartbeat would end the "
                        "job",
                        c.heartbeat_limit_ms(), c.heartbeat_ms()));
    }
    if (c.stall_timeout_ms() < c.request_timeout_ms()) {
      Error("cluster.stall_timeout_ms",
            fmt::format("{} is below request_timeout_ms {}: the job would end before a "
                        "request is sent again",
                        c.stall_timeout_ms(), c.request_timeout_ms()));
    }
  }

  const JobConfig& job_;
  CheckResult result_;
};

}  // namespace

CheckResult CheckJob(const JobConfig& job, const std::vector<std::string>& optimizers) {
  return Checker(job).Run(optimizers);
}

}  // namespace capstan
