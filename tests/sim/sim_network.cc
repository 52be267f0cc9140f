#include "sim_network.h"

#include <cmath>
#include <utility>

namespace capstan::sim {

class SimNetwork::NodeOutbox final : public Outbox {
 public:
  NodeOutbox(SimNetwork& network, size_t self) : network_(network), self_(self) {}

  PeerId Connect(const std::string& endpoint) override {
    std::map<std::string, PeerId>& connected = network_.nodes_[self_]->connected;
    const auto found = connected.find(endpoint);
    if (found != connected.end()) return found->second;
    const auto to = network_.by_endpoint_.find(endpoint);
    if (to == network_.by_endpoint_.end()) return kNoPeer;
    const PeerId forth = network_.next_peer_++;
    const PeerId back = network_.next_peer_++;
    network_.wires_[forth] = {self_, to->second, back};
    network_.wires_[back] = {to->second, self_, forth};
    return connected[endpoint] = forth;
  }

  void Send(PeerId to, Message message) override { network_.Transmit(self_, to, std::move(message)); }

 private:
  SimNetwork& network_;
  const size_t self_;
};

SimNetwork::SimNetwork(uint64_t seed, Weather weather) : random_(seed), weather_(weather) {}

Outbox& SimNetwork::Add(const std::string& endpoint) {
  auto node = std::make_unique<Node>();
  node->outbox = std::make_unique<NodeOutbox>(*this, nodes_.size());
  if (!endpoint.empty()) by_endpoint_[endpoint] = nodes_.size();
  nodes_.push_back(std::move(node));
  return *nodes_.back()->outbox;
}

Duration SimNetwork::Delay(size_t from, size_t to) {
  double delay = -std::log(1.0 - random_.Unit()) * static_cast<double>(weather_.mean_delay.count());
  const int slow = weather_.slow_node;
  if (slow >= 0 && (from == static_cast<size_t>(slow) || to == static_cast<size_t>(slow))) delay *= 20;
  if (random_.Unit() < weather_.straggling) delay += random_.Unit() * static_cast<double>(weather_.straggle.count());
  return Duration(static_cast<int64_t>(delay) + 1);
}

void SimNetwork::Transmit(size_t from, PeerId peer, Message message) {
  const auto found = wires_.find(peer);
  if (found == wires_.end() || found->second.from != from) return;
  const Wire wire = found->second;
  if (tap && !tap(peer, message)) return;
  ++frames_;
  ++sent_[message.header.Kind()];
  if (random_.Unit() >= weather_.loss) Deliver(Delay(wire.from, wire.to), wire, message);
  if (random_.Unit() < weather_.doubling) Deliver(Delay(wire.from, wire.to) * 5, wire, message);
}

void SimNetwork::Deliver(Duration delay, const Wire& wire, const Message& message) {
  After(delay, [this, wire, message] {
    SimNode* logic = nodes_[wire.to]->logic;
    if (logic != nullptr) logic->OnMessage(wire.back, message, now_);
  });
}

void SimNetwork::Inject(PeerId to, const Message& message) {
  const auto found = wires_.find(to);
  if (found != wires_.end()) Deliver(Duration(1), found->second, message);
}

void SimNetwork::After(Duration delay, std::function<void()> action) {
  events_.push({now_ + delay, order_++, std::move(action)});
}

bool SimNetwork::Run(const std::function<bool()>& done, Duration limit) {
  const Time deadline = now_ + limit;
  constexpr Duration kTick = std::chrono::milliseconds(20);
  std::function<void(size_t)> tick = [&](size_t node) {
    if (nodes_[node]->logic != nullptr) nodes_[node]->logic->Tick(now_);
    After(kTick, [&tick, node] { tick(node); });
  };
  for (size_t node = 0; node < nodes_.size(); ++node) {
    After(Duration(static_cast<int64_t>(random_.Below(static_cast<uint64_t>(kTick.count())))),
          [&tick, node] { tick(node); });
  }
  bool finished = false;
  while (!finished && !events_.empty() && events_.top().due <= deadline) {
    Event next = events_.top();
    events_.pop();
    now_ = next.due;  // the only line that moves time
    next.action();
    finished = done();
  }
  events_ = {};       // the ticks refer to this call
  return finished;
}

}  // namespace capstan::sim
