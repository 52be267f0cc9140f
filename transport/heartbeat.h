// Tells the scheduler that a node lives, from a thread that does no other work, so that a busy node is not taken for a
// dead one; and notices when the scheduler itself falls silent.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/clock.h"
#include "transport/transport.h"

namespace capstan {

using TransportFactory = std::function<std::unique_ptr<Transport>()>;

struct HeartbeatOptions {
  std::string scheduler_endpoint;
  FrameHeader identity;                             // job, node and incarnation of the node
  Duration interval = std::chrono::milliseconds(500);
  Duration limit = std::chrono::seconds(5);         // silence of the scheduler after which it is lost
  std::function<uint64_t()> progress;               // thread-safe
  std::function<std::string()> waiting_for;         // thread-safe; empty text: for nothing
  std::function<void(std::string reason)> on_lost;  // once, on the heartbeat's thread
};

class HeartbeatThread {
 public:
  HeartbeatThread(HeartbeatOptions options, TransportFactory make_transport);
  ~HeartbeatThread();  // stops within a tenth of a second

 private:
  void Run();

  const HeartbeatOptions options_;
  const TransportFactory make_transport_;
  const SteadyClock clock_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace capstan
