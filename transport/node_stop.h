// How a node is told to end from outside its loop: a signal, or the heartbeat's thread that found the
// scheduler gone.
#pragma once

#include <mutex>
#include <string>

#include "transport/member_core.h"

namespace capstan {

class NodeStop {
 public:
  // ---- from any thread ----
  // The node shall end. The scheduler is told, so that the job ends at once and names this node; a second
  // call does not wait for its answer.
  void Ask(ExitCode code, const std::string& reason);
  // There is nobody to tell.
  void SchedulerLost(const std::string& reason);

  // Hands the wish to the member. On the loop's thread, every tick.
  void ApplyTo(MemberCore& member, Time now);

 private:
  enum class Wish { kNone, kTell, kAtOnce };
  std::mutex mutex_;  // guards the rest
  Wish wish_ = Wish::kNone;
  ExitCode code_ = ExitCode::kDone;
  std::string reason_;
};

}  // namespace capstan
