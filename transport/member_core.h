// How a server or worker joins a job and leaves it: JOIN until answered, END, BYE. Once joined it repeats JOIN now and
// then, so that the scheduler finds it again after a connection broke. A core without I/O; the node's loop feeds it.
// Single-threaded.
#pragma once

#include <string>
#include <vector>

#include "common/exit_code.h"
#include "transport/outbox.h"

namespace capstan {

enum class NodeRole { kServer, kWorker };

struct MemberOptions {
  NodeRole role = NodeRole::kWorker;
  std::string name;                          // "worker-0"; for messages
  std::string host;
  uint32_t pid = 0;
  Incarnation incarnation = 1;               // random, never 0
  std::string version;                       // of the release
  std::string cpu_isa;
  std::vector<std::string> shard_endpoints;  // advertised
  std::string scheduler_endpoint;
  Duration join_timeout = std::chrono::seconds(60);
};

// The exit code that a peer names; kModelError for what no process can return, or for a failure that calls itself 0.
ExitCode ExitCodeOf(int wire_code, bool failed);

class MemberCore {
 public:
  enum class State {
    kJoining,
    kJoined,   // node id and job id are known
    kEnded,    // the scheduler said END, or the member gave up: exit_code and reason say which
  };

  MemberCore(MemberOptions options, Outbox& outbox);

  // Handles JOIN_REPLY and END; false: not for it.
  bool OnMessage(PeerId from, const Message& message, Time now);
  void Tick(Time now);

  // The node cannot go on. Tells the scheduler, which ends the job for everybody; gives up waiting for its END
  // after `patience`, and at once where it has not joined. The first call counts.
  void Fail(ExitCode code, const std::string& reason, Time now, Duration patience = std::chrono::seconds(5));
  // Ends at once without telling anybody, for example because the scheduler is lost.
  void GiveUp(ExitCode code, std::string reason);

  State state() const { return state_; }
  // Fail was called: nothing but END matters any more. (One that was asked to end works on until the job has its
  // checkpoint.)
  bool failing() const { return failing_ && exit_code_ != ExitCode::kPreempted; }
  NodeId node_id() const { return node_id_; }
  JobId job_id() const { return job_id_; }
  Duration heartbeat_interval() const { return heartbeat_interval_; }  // 0: no heartbeats (local mode)
  Duration heartbeat_limit() const { return heartbeat_limit_; }
  PeerId scheduler() const { return scheduler_; }
  ExitCode exit_code() const { return exit_code_; }
  const std::string& reason() const { return reason_; }
  const MemberOptions& options() const { return options_; }
  // What it waits for and since when; empty once joined.
  std::string WaitingFor(Time now) const;

  // A header to the scheduler with everything this member knows filled in.
  FrameHeader Header(MessageKind kind) const;

 private:
  void OnJoinReply(const Message& message, Time now);
  void SendJoin();
  void SendFailed();

  const MemberOptions options_;
  Outbox& outbox_;
  PeerId scheduler_ = kNoPeer;
  State state_ = State::kJoining;
  bool started_ = false;
  Time first_join_{};
  Time next_send_{};
  uint32_t tries_ = 0;
  std::string last_refusal_;
  NodeId node_id_ = kNoNode;
  JobId job_id_ = 0;
  Duration heartbeat_interval_{};
  Duration heartbeat_limit_{};
  bool failing_ = false;
  Time fail_deadline_{};
  ExitCode exit_code_ = ExitCode::kDone;
  std::string reason_;
};

}  // namespace capstan
