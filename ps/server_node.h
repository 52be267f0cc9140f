// A server process (or, in local mode, a thread of one): shard threads around their cores, and the member that joined
// the job. Blocks in Run; everything else happens on its own threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/exit_code.h"
#include "common/file_system.h"
#include "ps/snapshot_sink.h"
#include "transport/heartbeat.h"
#include "transport/member_core.h"
#include "transport/node_stop.h"

namespace capstan {

struct ServerOptions {
  MemberOptions member;                    // role, name, scheduler, version …; endpoints are filled in here
  uint32_t shards = 1;
  // Where shard i listens: "tcp://10.0.0.5:0" (a free port for each), or for i > 0 in local mode another name.
  std::function<std::string(uint32_t shard)> bind_endpoint;
  std::string advertise_host;              // replaces the address of a tcp endpoint in what others are told; empty: as bound
  TransportFactory make_transport;         // called on the thread that will own it
  FileSystem* file_system = nullptr;
  // Makes the checkpoint sink of a shard, on its thread and before its tables grow; empty: no checkpoints.
  std::function<std::unique_ptr<SnapshotSink>(const std::string& shard_name)> make_sink;
  OpenRowSource open_source;               // reads checkpoints at the start; may be empty
  std::function<void(const std::string& line)> log;
};

class ServerNode {
 public:
  explicit ServerNode(ServerOptions options);
  ~ServerNode();

  // Until the scheduler ends the job, the node gives up, or Stop. Returns how it ended; reason() says why.
  ExitCode Run();
  // From any thread, for example on a signal: ends the job for everybody. A second call does not wait for that.
  void Stop(ExitCode code, const std::string& reason) { stop_.Ask(code, reason); }
  const std::string& reason() const { return reason_; }

 private:
  class ShardThread;

  absl::Status StartShards();
  void StopShards();
  std::string WaitingFor();

  ServerOptions options_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<ShardThread>> shards_;
  NodeStop stop_;
  std::string reason_;
};

}  // namespace capstan
