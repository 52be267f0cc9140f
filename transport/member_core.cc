#include "transport/member_core.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/control_frame.h"

namespace capstan {
namespace {

constexpr Duration kFirstRetry = std::chrono::milliseconds(100);
constexpr Duration kLongestRetry = std::chrono::seconds(1);
constexpr Duration kFailRepeat = std::chrono::milliseconds(500);
constexpr Duration kStillHere = std::chrono::seconds(5);
constexpr Duration kShortestHeartbeat = std::chrono::milliseconds(10);

int64_t Seconds(Duration duration) { return std::chrono::duration_cast<std::chrono::seconds>(duration).count(); }

}  // namespace

ExitCode ExitCodeOf(int wire_code, bool failed) {
  return wire_code < (failed ? 1 : 0) || wire_code > 255 ? ExitCode::kModelError : static_cast<ExitCode>(wire_code);
}

MemberCore::MemberCore(MemberOptions options, Outbox& outbox) : options_(std::move(options)), outbox_(outbox) {
  scheduler_ = outbox_.Connect(options_.scheduler_endpoint);
}

FrameHeader MemberCore::Header(MessageKind kind) const {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.job = job_id_;
  header.src_node = node_id_;
  header.src_incarnation = options_.incarnation;
  return header;
}

void MemberCore::SendJoin() {
  Join join;
  join.set_role(options_.role == NodeRole::kServer ? SERVER : WORKER);
  join.set_name(options_.name);
  join.set_host(options_.host);
  join.set_pid(options_.pid);
  join.set_version(options_.version);
  join.set_cpu_isa(options_.cpu_isa);
  if (state_ == State::kJoined) join.set_job_id(job_id_);  // never again into another job
  for (const std::string& endpoint : options_.shard_endpoints) join.add_shard_endpoint(endpoint);
  outbox_.Send(scheduler_, MakeControl(Header(MessageKind::kJoin), join));
}

void MemberCore::SendFailed() {
  // For the job, a node that somebody interrupts is a lost one.
  const ExitCode lost = options_.role == NodeRole::kServer ? ExitCode::kServerLost : ExitCode::kWorkerLost;
  Failed failed;
  failed.set_exit_code(ToInt(exit_code_ == ExitCode::kInterrupted ? lost : exit_code_));
  failed.set_reason(reason_);
  outbox_.Send(scheduler_, MakeControl(Header(MessageKind::kFailed), failed));
}

bool MemberCore::OnMessage(PeerId from, const Message& message, Time now) {
  if (from != scheduler_) return false;
  const FrameHeader& header = message.header;
  if (header.dst_incarnation != 0 && header.dst_incarnation != options_.incarnation) return true;  // not for us
  if (header.Kind() == MessageKind::kJoinReply) {
    OnJoinReply(message, now);
    return true;
  }
  if (header.Kind() != MessageKind::kEnd) return false;
  const absl::StatusOr<End> end = ParseControl<End>(message);
  if (!end.ok() || (job_id_ != 0 && header.job != job_id_)) return true;
  FrameHeader bye = Header(MessageKind::kBye);
  bye.job = header.job;
  outbox_.Send(scheduler_, MakeControlFrame(bye, ""));
  if (state_ == State::kEnded) return true;
  state_ = State::kEnded;
  if (failing_) return true;  // its own cause counts for it, whatever the others are told
  exit_code_ = ExitCodeOf(end->exit_code(), /*failed=*/false);
  reason_ = CleanText(end->reason());
  return true;
}

void MemberCore::OnJoinReply(const Message& message, Time now) {
  if (state_ != State::kJoining) return;
  const absl::StatusOr<JoinReply> reply = ParseControl<JoinReply>(message);
  if (!reply.ok()) return;
  if (!reply->accepted()) {
    last_refusal_ = CleanText(reply->reason());
    if (!reply->retry()) {
      GiveUp(ExitCode::kUsage, fmt::format("{}: the scheduler at {} refused to let it join: {}", options_.name,
                                           options_.scheduler_endpoint, last_refusal_));
    }
    return;
  }
  node_id_ = reply->node_id();
  job_id_ = reply->job_id();
  if (reply->heartbeat_ms() > 0) {
    heartbeat_interval_ = std::max<Duration>(kShortestHeartbeat, std::chrono::milliseconds(reply->heartbeat_ms()));
    heartbeat_limit_ = std::max<Duration>(2 * heartbeat_interval_,
                                          std::chrono::milliseconds(reply->heartbeat_limit_ms()));
  }
  state_ = State::kJoined;
  next_send_ = now + kStillHere;
}

void MemberCore::Tick(Time now) {
  if (state_ == State::kEnded) return;
  if (!started_) {
    started_ = true;
    first_join_ = now;
    next_send_ = now;
  }
  if (failing_) {
    if (now >= fail_deadline_) {
      state_ = State::kEnded;
    } else if (now >= next_send_) {
      SendFailed();
      next_send_ = now + kFailRepeat;
    }
    return;
  }
  if (state_ == State::kJoined) {
    if (now < next_send_) return;
    SendJoin();
    next_send_ = now + kStillHere;
    return;
  }
  if (now - first_join_ >= options_.join_timeout) {
    return GiveUp(ExitCode::kJoinTimeout,
                  fmt::format("{}: no place in a job after {} s: the scheduler at {} {}; start it, check the address, "
                              "or raise --join_timeout_ms", options_.name, Seconds(options_.join_timeout),
                              options_.scheduler_endpoint,
                              last_refusal_.empty() ? "never answered" : "said: " + last_refusal_));
  }
  if (now < next_send_) return;
  SendJoin();
  const Duration pause = kFirstRetry * (int64_t{1} << std::min<uint32_t>(tries_++, 4));
  next_send_ = now + std::min(pause, kLongestRetry);
}

void MemberCore::Fail(ExitCode code, const std::string& reason, Time now, Duration patience) {
  if (failing_ || state_ == State::kEnded) return;
  const std::string text = fmt::format("{}: {}", options_.name, CleanText(reason));
  if (state_ == State::kJoining) return GiveUp(code, text);  // no job to tell
  failing_ = true;
  exit_code_ = code;
  reason_ = text;
  fail_deadline_ = now + patience;
  SendFailed();
  next_send_ = now + kFailRepeat;
}

void MemberCore::GiveUp(ExitCode code, std::string reason) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  if (failing_) {  // the first cause counts; the scheduler, which knows it, need not wait for our answer to END
    outbox_.Send(scheduler_, MakeControlFrame(Header(MessageKind::kBye), ""));
    return;
  }
  exit_code_ = code;
  reason_ = std::move(reason);
}

std::string MemberCore::WaitingFor(Time now) const {
  if (state_ != State::kJoining || !started_) return "";
  return fmt::format("waiting for the scheduler at {} for {} s ({} tries{})", options_.scheduler_endpoint,
                     Seconds(now - first_join_), tries_,
                     last_refusal_.empty() ? ", no answer" : "; it says: " + last_refusal_);
}

}  // namespace capstan
