// One ClientCore with its scheduler, shards and trainer played by the test.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "tests/support/core_testing.h"
#include "worker/client_core.h"
#include "worker/step_plan.h"

namespace capstan::testing {

// Writes down what it is asked.
class RecordingDriver final : public RankDriver {
 public:
  absl::Status OnStart(const EffectiveJob&, uint32_t) override { return start; }
  void Prepare(const StepTicket& ticket) override { prepares.push_back(ticket); }
  void Compute(const StepTicket& ticket, const PushInfo& info, ShardReplies) override {
    computes.push_back(ticket);
    infos.push_back(info);
  }
  void Finished(Rank rank) override { finished.push_back(rank); }

  absl::Status start = absl::OkStatus();
  std::vector<StepTicket> prepares, computes;
  std::vector<PushInfo> infos;
  std::vector<Rank> finished;
};

class ClientHarness {
 public:
  explicit ClientHarness(const JobOptions& options, std::vector<Rank> ranks = {0}, bool start = true)
      : options_(options), ranks_(std::move(ranks)), core_(Member(), outbox_, metrics_, driver_) {
    scheduler_ = outbox_.Connect("test://scheduler");
    core_.Tick(clock_.Now());
    JoinReply reply;
    reply.set_accepted(true);
    reply.set_node_id(kWorkerNode);
    reply.set_job_id(kJob);
    FromScheduler(MessageKind::kJoinReply, reply);
    outbox_.Take();
    if (start) FromScheduler(MessageKind::kStart, StartOrder());
  }

  capstan::Start StartOrder() const {
    capstan::Start start;
    *start.mutable_job() = SmallJob(options_);
    start.mutable_job()->mutable_config()->mutable_cluster()->set_request_timeout_ms(2000);
    AddShardEndpoints(options_, start.mutable_job());
    for (const Rank rank : ranks_) {
      RankGrant* grant = start.add_grant();
      grant->set_rank(rank);
      grant->set_term(1);
    }
    return start;
  }

  template <typename Proto>
  void FromScheduler(MessageKind kind, const Proto& proto) {
    Deliver(scheduler_, MakeControl(OrderHeader(kind, kWorkerIncarnation), proto));
  }
  void Deliver(PeerId from, Message message) { core_.OnMessage(from, std::move(message), clock_.Now()); }
  PeerId Shard(uint32_t server) { return outbox_.Connect("test://server-" + std::to_string(server) + "/shard-0"); }

  // The frames to shards since the last call.
  std::vector<Sent> Requests() {
    std::vector<Sent> all = outbox_.Take(), chosen;
    for (Sent& sent : all) {
      if (sent.to == scheduler_) {
        asked_.push_back(std::move(sent));
      } else {
        chosen.push_back(std::move(sent));
      }
    }
    return chosen;
  }
  std::vector<Sent> Asked() { return Requests(), std::exchange(asked_, {}); }  // the frames to the scheduler

  static Message AnswerTo(const Sent& request, MessageKind kind, Buffer body = Buffer(), uint16_t sections = 0) {
    FrameHeader header = request.message.header;
    header.kind = static_cast<uint16_t>(kind);
    header.dst_incarnation = kWorkerIncarnation;
    header.src_incarnation = kServerIncarnation;
    header.flags = 0;
    header.sections = sections;
    return Sealed(Message{header, std::move(body)});
  }
  static Message Rows(const Sent& request, const RowsInfo& info) {
    BodyBuilder builder;
    builder.Add(SectionKind::kRowsInfo, 0, DType::kBytes, 1, sizeof(RowsInfo));
    Buffer body = builder.Allocate();
    std::memcpy(builder.Section<std::byte>(0).data(), &info, sizeof info);
    return AnswerTo(request, MessageKind::kRows, std::move(body), builder.sections());
  }
  void Acknowledge(const Sent& request) { Deliver(request.to, AnswerTo(request, MessageKind::kAck)); }
  void AcknowledgeAll() {
    for (const Sent& request : Requests()) Acknowledge(request);
  }
  void AnswerPulls(const RowsInfo& info) {
    for (const Sent& request : Requests()) Deliver(request.to, Rows(request, info));
  }
  // An empty pull or push of the step that the driver was asked for last.
  ShardRequests Parts() const {
    ShardRequests requests(options_.servers);
    for (std::vector<RequestPart>& parts : requests) parts.push_back(InfoPart(Info(1, 1)));
    return requests;
  }
  void Prepared() { core_.Prepared(driver_.prepares.back().rank, driver_.prepares.back().step, Parts()); }
  void Computed() { core_.Computed(driver_.computes.back().rank, driver_.computes.back().step, Parts()); }
  void Tick(Duration after) {
    clock_.Advance(after);
    core_.Tick(clock_.Now());
  }

  ClientCore& core() { return core_; }
  RecordingDriver& driver() { return driver_; }
  RecordingOutbox& outbox() { return outbox_; }
  Time now() const { return clock_.Now(); }
  const RankMachine& machine(size_t i = 0) const { return *core_.machines()[i]; }

 private:
  static MemberOptions Member() {
    MemberOptions options;
    options.name = "worker-0";
    options.incarnation = kWorkerIncarnation;
    options.scheduler_endpoint = "test://scheduler";
    return options;
  }
  const JobOptions options_;
  const std::vector<Rank> ranks_;
  ManualClock clock_;
  RecordingOutbox outbox_;
  MetricsRegistry metrics_;
  RecordingDriver driver_;
  ClientCore core_;
  PeerId scheduler_ = kNoPeer;
  std::vector<Sent> asked_;
};

}  // namespace capstan::testing
