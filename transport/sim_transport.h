// Frames between the nodes of a simulated cluster, in one thread and from one seed. Time moves only when a
// Poll has nothing due: then to the next delivery, or to the deadline.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "common/random.h"
#include "transport/transport.h"

namespace capstan {

struct SimOptions {
  uint64_t seed = 1;
  Duration min_delay = std::chrono::microseconds(10);
  Duration max_delay = std::chrono::milliseconds(1);
  double drop_rate = 0;       // per frame, 0 to 1
  double duplicate_rate = 0;  // per frame that is not dropped
  bool keep_order = true;     // per sender and receiver; a transport with connections does
};

class SimTransport;

// Must outlive its transports. Not thread-safe, but for Wake.
class SimNetwork {
 public:
  explicit SimNetwork(const SimOptions& options);
  ~SimNetwork();

  Time Now() const { return now_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t duplicated() const { return duplicated_; }

  // As with the other transports: what was sent to an endpoint before anybody binds it waits; what is under
  // way to a transport that closes is lost. In-flight bytes are those that the receiver has not polled.
  std::unique_ptr<Transport> NewTransport(const TransportOptions& options);

 private:
  friend class SimTransport;

  // One client's connection to one endpoint; outlives every server bound there.
  struct Link {
    std::string endpoint;
    SimTransport* client = nullptr;  // null once it closed
    SimTransport* server = nullptr;  // null while nobody is bound
    PeerId client_peer = kNoPeer;    // what the client calls the server
    uint64_t binding = 0;            // counts the servers so far
    size_t to_server_bytes = 0, to_client_bytes = 0;
    Time last_to_server, last_to_client;  // latest delivery so far
    std::deque<Message> waiting;          // for a server

    size_t& Bytes(bool to_server) { return to_server ? to_server_bytes : to_client_bytes; }
  };
  struct Flight {
    Time due;
    uint64_t number = 0;  // flights due at the same time land in the order they left
    std::shared_ptr<Link> link;
    bool to_server = false;
    uint64_t binding = 0;
    Message message;
  };
  struct Later {
    bool operator()(const Flight& a, const Flight& b) const {
      return a.due != b.due ? a.due > b.due : a.number > b.number;
    }
  };

  bool Bind(const std::string& endpoint, SimTransport* server);
  void Attach(const std::shared_ptr<Link>& link, SimTransport* server);
  std::shared_ptr<Link> Dial(const std::string& endpoint, SimTransport* client, PeerId peer);
  void Leave(SimTransport* transport);
  void Launch(const std::shared_ptr<Link>& link, bool to_server, const Message& message);
  void Schedule(const std::shared_ptr<Link>& link, bool to_server, const Message& message);
  // Delivers what is due next if that is not after `limit`, and moves the time there. False: nothing is.
  bool Step(Time limit);
  void AdvanceTo(Time time) { now_ = std::max(now_, time); }

  const SimOptions options_;
  SeededRandom random_;
  Time now_{std::chrono::seconds(1)};
  uint64_t launched_ = 0, dropped_ = 0, duplicated_ = 0;
  std::priority_queue<Flight, std::vector<Flight>, Later> flights_;
  std::map<std::string, SimTransport*> bound_;
  std::vector<std::shared_ptr<Link>> links_;
};

}  // namespace capstan
