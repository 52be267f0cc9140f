// A server process with one shard, and a client with one rank that talks to it like a worker does.
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>

#include "common/clock.h"
#include "common/metrics.h"
#include "common/status.h"
#include "transport/node_outbox.h"
#include "worker/request_table.h"
#include "worker/step_plan.h"

namespace capstan {

// Starts this program again as `pushpull-server`; ends it at the latest when it is destroyed.
class BenchServer {
 public:
  static absl::StatusOr<std::unique_ptr<BenchServer>> Start(const std::string& bind_endpoint);
  ~BenchServer();
  const std::string& endpoint() const { return endpoint_; }

 private:
  BenchServer() = default;
  pid_t pid_ = -1;
  int to_child_ = -1;
  std::string endpoint_;
};

class BenchClient {
 public:
  BenchClient(std::unique_ptr<Transport> transport, const std::string& server, uint32_t width);
  ~BenchClient();

  // Introduces itself as the job's scheduler would and has the table built.
  absl::Status StartJob();
  // Makes the plan of one request; keys unique. Pull and Push are about these keys.
  void Plan(const std::vector<Key>& keys);
  // rows [keys, width] in the plan's order.
  absl::Status Pull(float* rows);
  absl::Status Push(const float* gradients);
  std::span<const Key> keys() const { return plan_.keys(0); }
  // Orders a checkpoint now; `folder` is of the shard's part, its parent exists. cut_written() after later requests.
  void Cut(uint64_t id, const std::string& folder);
  absl::StatusOr<bool> cut_written() const;  // the newest order's; an error where it failed

 private:
  FrameHeader Header(MessageKind kind) const;
  absl::Status Await(MessageKind kind);
  // rows: where a pull's answers go; nullptr: a push.
  absl::Status RunRequest(FrameHeader header, std::vector<RequestPart> parts, float* rows);

  const std::unique_ptr<Transport> transport_;
  NodeOutbox outbox_;
  MetricsRegistry metrics_;
  const SteadyClock clock_;
  const uint32_t width_;
  RequestTable requests_;
  StepPlan plan_;
  PeerId server_ = kNoPeer;
  LeaseId lease_ = 0;
  bool cut_written_ = false;
  absl::Status cut_failure_;
};

}  // namespace capstan
