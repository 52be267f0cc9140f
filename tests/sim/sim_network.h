// The wires of a simulated cluster: every frame is delayed, some are lost, doubled or held back for long, in an order
// that depends on one seed. Time moves only from event to event.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "common/random.h"
#include "transport/outbox.h"

namespace capstan::sim {

// A node, or one shard of it: whatever has an address of its own.
class SimNode {
 public:
  virtual ~SimNode() = default;
  virtual void OnMessage(PeerId from, Message message, Time now) = 0;
  virtual void Tick(Time now) = 0;
};

struct Weather {
  Duration mean_delay = std::chrono::microseconds(500);
  double loss = 0;
  double doubling = 0;
  double straggling = 0;                       // share of frames (and of doubles) that come very late
  Duration straggle = std::chrono::seconds(3);
  int slow_node = -1;                          // this node's frames take 20 times as long
};

class SimNetwork {
 public:
  SimNetwork(uint64_t seed, Weather weather);

  // Adds a node that can be reached at `endpoint` (empty: it only connects). Its outbox lives as long as the network.
  Outbox& Add(const std::string& endpoint);
  void Attach(size_t node, SimNode* logic) { nodes_[node]->logic = logic; }
  size_t nodes() const { return nodes_.size(); }

  // Runs until done() or the deadline; ticks every node each 20 ms. False: the deadline came first.
  bool Run(const std::function<bool()>& done, Duration limit);
  // Puts a frame on the wire of `to` as if its owner had sent it.
  void Inject(PeerId to, const Message& message);
  void After(Duration delay, std::function<void()> action);
  Time now() const { return now_; }
  SeededRandom& random() { return random_; }
  uint64_t frames() const { return frames_; }
  uint64_t sent(MessageKind kind) const { return sent_.count(kind) == 0 ? 0 : sent_.at(kind); }

  // May change, drop (false) or add to what is sent; for directed faults.
  std::function<bool(PeerId to, Message& message)> tap;

 private:
  struct Node {
    std::unique_ptr<Outbox> outbox;
    SimNode* logic = nullptr;
    std::map<std::string, PeerId> connected;
  };
  class NodeOutbox;
  struct Event {
    Time due;
    uint64_t order;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return due != other.due ? due > other.due : order > other.order;
    }
  };
  struct Wire { size_t from, to; PeerId back; };   // `back`: the receiver's name of this connection

  Duration Delay(size_t from, size_t to);
  void Transmit(size_t from, PeerId peer, Message message);
  void Deliver(Duration delay, const Wire& wire, const Message& message);

  SeededRandom random_;
  const Weather weather_;
  Time now_{std::chrono::seconds(1)};
  uint64_t order_ = 0;
  uint64_t frames_ = 0;
  std::map<MessageKind, uint64_t> sent_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, size_t> by_endpoint_;
  std::map<PeerId, Wire> wires_;
  PeerId next_peer_ = 1;
};

}  // namespace capstan::sim
