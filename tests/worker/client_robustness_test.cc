// A worker under thousands of damaged frames from its scheduler and its shards.
#include <gtest/gtest.h>

#include "client_harness.h"
#include "tests/support/frame_mutator.h"

namespace capstan {
namespace {

using testing::ClientHarness;
using testing::FrameMutator;
using testing::JobOptions;
using testing::kWorkerIncarnation;
using testing::Sent;

std::vector<Message> SchedulerFrames(const ClientHarness& client, uint64_t turn) {
  std::vector<Message> frames;
  const auto add = [&frames](MessageKind kind, const auto& proto) {
    frames.push_back(MakeControl(testing::OrderHeader(kind, kWorkerIncarnation), proto));
  };
  add(MessageKind::kStart, client.StartOrder());
  LeaseReply lease;
  lease.set_sequence(1 + turn / 20);
  lease.set_lease(1 + turn / 20);
  lease.set_count(1);
  add(MessageKind::kLeaseReply, lease);
  LeaseDone lease_done;
  lease_done.set_lease(turn / 20);
  add(MessageKind::kLeaseDoneReply, lease_done);
  add(MessageKind::kRankDoneReply, RankDone());
  JoinReply joined;
  joined.set_accepted(turn % 2 == 0);
  add(MessageKind::kJoinReply, joined);
  if (turn % 100 == 99) add(MessageKind::kEnd, End());
  return frames;
}

std::vector<Message> ShardFrames(const Sent& request, Step version) {
  RowsInfo info;
  info.version = version;
  Nack nack;
  nack.set_code(7);
  const std::string refusal = nack.SerializeAsString();
  return {ClientHarness::Rows(request, info), ClientHarness::Rows(request, info),
          ClientHarness::AnswerTo(request, MessageKind::kAck), ClientHarness::AnswerTo(request, MessageKind::kAck),
          ClientHarness::AnswerTo(request, MessageKind::kWaiting),
          ClientHarness::AnswerTo(request, MessageKind::kNack, Buffer::CopyOf(refusal.data(), refusal.size()))};
}

class ClientRobustness : public ::testing::TestWithParam<const char*> {};

TEST_P(ClientRobustness, SurvivesDamagedFrames) {
  uint64_t computed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    JobOptions options;
    options.consistency = GetParam();
    options.servers = 2;
    options.split_rows = {400};
    ClientHarness client(options, {0, 1});
    FrameMutator mutator(seed);
    std::vector<Sent> requests;
    size_t prepared = 0, done = 0;
    for (uint64_t turn = 0; turn < 200 && !client.core().ended(); ++turn) {
      for (Sent& sent : client.Requests()) requests.push_back(std::move(sent));
      const std::vector<Message> orders = SchedulerFrames(client, turn);
      const PeerId scheduler = client.outbox().Connect("test://scheduler");
      if (client.core().member().failing()) break;  // it has said so and looks at nothing any more
      if (mutator.random().Below(8) != 0) {
        if (options.consistency != "sync") client.Deliver(scheduler, orders[1]);
        for (const Sent& request : requests) {
          const bool pull = request.kind() == MessageKind::kPull;
          client.Deliver(request.to, ShardFrames(request, request.message.header.step)[pull ? 0 : 2]);
        }
      } else if (requests.empty() || mutator.random().Below(4) == 0) {
        client.Deliver(scheduler, mutator.Pick(orders));
      } else {
        const Sent& request = requests[mutator.random().Below(requests.size())];
        const PeerId from = mutator.random().Below(10) == 0 ? scheduler : request.to;
        client.Deliver(from, mutator.Pick(ShardFrames(request, request.message.header.step)));
      }
      if (requests.size() > 8) requests.erase(requests.begin(), requests.begin() + 4);
      for (; prepared < client.driver().prepares.size(); ++prepared) {
        const StepTicket& ticket = client.driver().prepares[prepared];
        client.core().Prepared(ticket.rank, ticket.step, client.Parts());
      }
      for (; done < client.driver().computes.size(); ++done) {
        const StepTicket& ticket = client.driver().computes[done];
        client.core().Computed(ticket.rank, ticket.step, client.Parts());
      }
      client.Tick(std::chrono::milliseconds(50));
      ASSERT_LT(client.outbox().bytes(), size_t{1} << 20);
      client.core().WaitingFor(client.now());
    }
    computed += done;
  }
  EXPECT_GT(computed, 1000u) << "the frames were so damaged that nothing was tried";
}

INSTANTIATE_TEST_SUITE_P(Modes, ClientRobustness, ::testing::Values("sync", "ssp:2", "async"), [](const auto& param) {
  return std::string(param.param).substr(0, 3);
});

}  // namespace
}  // namespace capstan
