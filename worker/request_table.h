// Requests to shards until they are answered: parts, credit, resending. A frame may be lost, doubled or late; a
// request is sent again until its answer comes. No I/O, no clock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "common/metrics.h"
#include "transport/outbox.h"
#include "worker/rank_driver.h"

namespace capstan {

class RequestTable {
 public:
  struct Settings {
    size_t inflight_bytes = size_t{64} << 20;  // per shard
    Duration resend_after = std::chrono::seconds(2);
  };
  RequestTable(Settings settings, Outbox& outbox, MetricsRegistry& metrics);

  void SetShards(std::vector<PeerId> peers) { shards_.resize(peers.size()); peers_ = std::move(peers); }

  // Sends the parts with `header` (kind, rank, step, … filled in; request, part, parts and sections are set here).
  // each_part_answered: a pull, whose parts are answered one by one; otherwise one answer settles the request.
  uint64_t Begin(ShardId shard, FrameHeader header, std::vector<RequestPart> parts, bool each_part_answered, Time now);

  enum class Outcome { kUnknown, kPartAnswered, kComplete };
  // An answer came, of one part or of the whole request. kUnknown: not (or no longer) waited for, for example a
  // repeat, or an answer of the wrong kind.
  Outcome Answered(ShardId shard, uint64_t request, uint16_t part, bool of_one_part);
  // The shard says the request is parked: it holds no credit and is not lost.
  void Parked(ShardId shard, uint64_t request, uint16_t part, Time now);
  // The shard asks to try again later (not ready, overloaded).
  void RetryLater(ShardId shard, uint64_t request, Time now);
  void Tick(Time now);

  // The shard of an answer; false if the peer is none.
  bool ShardOf(PeerId peer, ShardId* shard) const;
  size_t waiting() const { return requests_.size(); }
  // Oldest request without an answer: "pull of step 7 to shard 1, 3.2 s"; empty if there is none.
  std::string Oldest(Time now) const;

 private:
  struct Part {
    Message message;
    uint32_t reply_bytes = 0;
    bool answered = false;
    bool holds_credit = false;
  };
  struct Request {
    ShardId shard = 0;
    std::vector<Part> parts;
    size_t open = 0;
    bool each_part_answered = false;
    Time begun{};
    Time resend_at{};
    Duration pause{};
    bool sent = false;
    bool parked = false;
  };
  struct ShardLine {
    size_t inflight = 0;
    std::deque<uint64_t> queue;  // requests without credit yet
  };

  void SendPart(const Request& request, uint16_t part);
  void GiveCreditBack(Request& request, Part& part);
  void Drain(ShardId shard);

  const Settings settings_;
  Outbox& outbox_;
  Counter& resent_;
  std::vector<PeerId> peers_;
  std::vector<ShardLine> shards_;
  std::map<uint64_t, Request> requests_;
  uint64_t next_request_ = 1;
};

}  // namespace capstan
