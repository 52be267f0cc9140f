// What the tests of the cores share: an outbox that records, a small job, frames as a peer would make them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/status.h"
#include "proto/control.pb.h"
#include "proto/control_frame.h"
#include "proto/section.h"
#include "transport/outbox.h"

namespace capstan::testing {

inline constexpr JobId kJob = 4711;
inline constexpr Incarnation kSchedulerIncarnation = 77;
inline constexpr Incarnation kServerIncarnation = 1000;
inline constexpr Incarnation kWorkerIncarnation = 2000;
inline constexpr NodeId kWorkerNode = 9;

struct Sent {
  PeerId to = kNoPeer;
  Message message;
  MessageKind kind() const { return message.header.Kind(); }
};

class RecordingOutbox final : public Outbox {
 public:
  PeerId Connect(const std::string& endpoint) override {
    if (endpoint.find("://") == std::string::npos) return kNoPeer;
    return peers_.try_emplace(endpoint, 100 + peers_.size()).first->second;
  }
  void Send(PeerId to, Message message) override { sent_.push_back({to, std::move(message)}); }

  // What was sent since the last call.
  std::vector<Sent> Take() { return std::exchange(sent_, {}); }
  std::vector<Sent> Take(MessageKind kind);  // of one kind; the rest is dropped
  size_t bytes() const;

 private:
  std::map<std::string, PeerId> peers_;
  std::vector<Sent> sent_;
};

struct JobOptions {
  std::string consistency = "sync";
  uint32_t ranks = 2, epochs = 2, servers = 1, shards = 1, workers = 1;
  std::vector<uint32_t> split_rows = {4, 4};
  uint32_t batch = 2;
  uint32_t lease_batches = 2;
  uint64_t shard_buffer_bytes = 1 << 20;
};
// Tables: 0 "sums" of width 1 (sum, sgd, rate 1, zeros) and 1 "means" of width 2 (mean, the same).
EffectiveJob SmallJob(const JobOptions& options);
void AddShardEndpoints(const JobOptions& options, EffectiveJob* job);

// One key section with its rows, for table `table`.
struct TableRows {
  TableId table = 0;
  std::vector<Key> keys;
  std::vector<float> values;
};
Message PullFrame(Rank rank, Step step, uint64_t request, const std::vector<TableRows>& tables);
Message PushFrame(Rank rank, Step step, uint64_t request, const PushInfo& info, const std::vector<TableRows>& tables);
PushInfo Info(uint64_t examples, double weight, uint64_t optimizer_step = 1);
// A header of a worker's data frame.
FrameHeader DataHeader(MessageKind kind, Rank rank, Step step, uint64_t request);
// A header of the scheduler's.
FrameHeader OrderHeader(MessageKind kind, Incarnation to);
Message Sealed(Message message);

template <typename Proto>
Proto Body(const Sent& sent) {
  const absl::StatusOr<Proto> proto = ParseControl<Proto>(sent.message);
  return proto.ok() ? *proto : Proto();
}

}  // namespace capstan::testing
