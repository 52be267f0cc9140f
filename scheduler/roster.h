// Who is in the job: names, incarnations, addresses, when each was last heard. Pure bookkeeping; no message is made
// here.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common/types.h"

namespace capstan {

enum class MemberRole { kServer, kWorker };

struct ShardContact {
  std::string endpoint;
  PeerId peer = kNoPeer;    // the scheduler's own connection to it
  bool answered = false;    // the dial-back worked
  bool started = false;     // has built its tables
  std::string refusal;      // what it said no to last
};

struct MemberInfo {
  NodeId id = kNoNode;
  MemberRole role = MemberRole::kWorker;
  std::string name;
  std::string host;
  uint32_t pid = 0;
  Incarnation incarnation = 0;
  std::string cpu_isa;
  PeerId peer = kNoPeer;               // where its main connection comes from
  Time last_heard{};
  std::string waiting_for;             // by its last heartbeat
  bool started = false;                // workers: START was confirmed
  bool gone = false;                   // said BYE
  std::vector<ShardContact> shards;    // servers

  std::string Describe() const;        // "worker-1 (pid 123 on host)"
};

// Members stay where they are: pointers to them hold for the roster's life.
class Roster {
 public:
  Roster(uint32_t servers, uint32_t workers) : servers_(servers), workers_(workers) {}

  uint32_t Count(MemberRole role) const;
  uint32_t Wanted(MemberRole role) const { return role == MemberRole::kServer ? servers_ : workers_; }
  bool Complete() const { return Count(MemberRole::kServer) == servers_ && Count(MemberRole::kWorker) == workers_; }

  MemberInfo& Add(MemberInfo info);              // gives it the next id; ids start at 1
  MemberInfo* Find(NodeId id, Incarnation incarnation);
  MemberInfo* FindName(const std::string& name);
  std::deque<MemberInfo>& members() { return members_; }
  const std::deque<MemberInfo>& members() const { return members_; }
  std::vector<MemberInfo*> OfRole(MemberRole role);  // in order of name, so that shard numbers do not depend on luck

  // "have 1 of 2 servers (server-0 …), 0 of 1 workers; missing: 1 server, 1 worker"
  std::string Describe() const;

 private:
  const uint32_t servers_;
  const uint32_t workers_;
  std::deque<MemberInfo> members_;
};

// A node's own words, under the node's name whatever the words say; control characters are taken out.
std::string InTheWordsOf(const std::string& name, const std::string& text);

}  // namespace capstan
