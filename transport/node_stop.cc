#include "transport/node_stop.h"

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr Duration kTellPatience = std::chrono::seconds(2);  // less than a launcher waits before it kills
constexpr Duration kCheckpointPatience = std::chrono::seconds(60);  // the job ends after one more checkpoint

}  // namespace

void NodeStop::Ask(ExitCode code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (wish_ != Wish::kNone) {
    wish_ = Wish::kAtOnce;
    return;
  }
  wish_ = Wish::kTell;
  code_ = code;
  reason_ = reason;
}

void NodeStop::SchedulerLost(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (wish_ == Wish::kNone) {
    code_ = ExitCode::kSchedulerLost;
    reason_ = reason;
  }
  wish_ = Wish::kAtOnce;
}

void NodeStop::ApplyTo(MemberCore& member, Time now) {
  std::lock_guard lock(mutex_);
  if (wish_ == Wish::kTell) {
    member.Fail(code_, reason_, now, code_ == ExitCode::kPreempted ? kCheckpointPatience : kTellPatience);
  }
  if (wish_ == Wish::kAtOnce) member.GiveUp(code_, fmt::format("{}: {}", member.options().name, reason_));
}

}  // namespace capstan
