#include "transport/heartbeat.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "proto/control.pb.h"
#include "proto/control_frame.h"

namespace capstan {
namespace {

constexpr Duration kLongestPoll = std::chrono::milliseconds(100);  // so that stopping is quick
constexpr Duration kOwnPause = std::chrono::seconds(1);            // a longer round: this process was stopped

Message MakeBeat(const HeartbeatOptions& options) {
  FrameHeader header = options.identity;
  header.kind = static_cast<uint16_t>(MessageKind::kHeartbeat);
  Heartbeat beat;
  beat.set_progress(options.progress());
  beat.set_waiting_for(options.waiting_for());
  return MakeControl(header, beat);
}

}  // namespace

HeartbeatThread::HeartbeatThread(HeartbeatOptions options, TransportFactory make_transport)
    : options_(std::move(options)), make_transport_(std::move(make_transport)), thread_([this] { Run(); }) {}

HeartbeatThread::~HeartbeatThread() {
  stop_ = true;
  thread_.join();  // Poll never waits for long
}

void HeartbeatThread::Run() {
  const std::unique_ptr<Transport> transport = make_transport_();
  const absl::StatusOr<PeerId> scheduler = transport->Connect(options_.scheduler_endpoint);
  Time heard = clock_.Now();
  Time next_beat = heard;
  bool lost = !scheduler.ok();
  if (lost) options_.on_lost(std::string(scheduler.status().message()));
  while (!stop_ && !lost) {
    const Time now = clock_.Now();
    if (now >= next_beat) {
      next_beat = now + options_.interval;
      // A full or broken connection shows as silence; nothing else is to be done about it here.
      transport->Send(*scheduler, MakeBeat(options_)).IgnoreError();
    }
    const std::optional<Incoming> reply = transport->Poll(std::min(next_beat, now + kLongestPoll));
    const Time after = clock_.Now();
    if (reply.has_value() && reply->message.header.job == options_.identity.job) heard = after;
    if (after - now >= kOwnPause) heard = std::min(after, heard + (after - now));  // nobody could be heard meanwhile
    const Duration silence = after - heard;
    if (silence < options_.limit) continue;
    lost = true;
    options_.on_lost(fmt::format("the scheduler at {} is lost: not heard for {:.1f} s (limit {:.1f} s)",
                                 options_.scheduler_endpoint, std::chrono::duration<double>(silence).count(),
                                 std::chrono::duration<double>(options_.limit).count()));
  }
  transport->Close(Duration::zero());
}

}  // namespace capstan
