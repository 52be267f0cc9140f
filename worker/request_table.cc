#include "worker/request_table.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/planted_bugs.h"

namespace capstan {
namespace {

constexpr Duration kRetryPause = std::chrono::milliseconds(100);
constexpr int kLongestPause = 4;  // times resend_after

}  // namespace

RequestTable::RequestTable(Settings settings, Outbox& outbox, MetricsRegistry& metrics)
    : settings_(settings), outbox_(outbox), resent_(metrics.Get("client_frames_resent")) {}

bool RequestTable::ShardOf(PeerId peer, ShardId* shard) const {
  const auto found = std::find(peers_.begin(), peers_.end(), peer);
  if (found == peers_.end()) return false;
  *shard = static_cast<ShardId>(found - peers_.begin());
  return true;
}

uint64_t RequestTable::Begin(ShardId shard, FrameHeader header, std::vector<RequestPart> parts,
                             bool each_part_answered, Time now) {
  const uint64_t id = next_request_++;
  Request& request = requests_[id];
  request.shard = shard;
  request.each_part_answered = each_part_answered;
  request.open = parts.size();
  request.begun = now;
  request.pause = settings_.resend_after;
  request.resend_at = now + request.pause;
  header.request = id;
  CHECK(!parts.empty() && parts.size() <= kMaxRequestParts) << parts.size() << " parts";
  header.parts = static_cast<uint16_t>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    header.part = static_cast<uint16_t>(i);
    header.sections = parts[i].sections;
    Part part;
    part.message = Message{header, std::move(parts[i].body)};
    part.reply_bytes = parts[i].reply_bytes;
    SealFrame(part.message);
    request.parts.push_back(std::move(part));
  }
  shards_[shard].queue.push_back(id);
  Drain(shard);
  return id;
}

// Credit is given to whole requests: a push is answered only when all of its parts are there, so two
// half-sent pushes could wait for each other's credit for ever.
void RequestTable::Drain(ShardId shard) {
  ShardLine& line = shards_[shard];
  while (!line.queue.empty()) {
    Request& request = requests_.at(line.queue.front());
    size_t bytes = 0;
    for (const Part& part : request.parts) bytes += part.message.body.size() + part.reply_bytes;
    // A request larger than the limit still goes when nothing else is under way.
    if (line.inflight > 0 && line.inflight + bytes > settings_.inflight_bytes) return;
    line.queue.pop_front();
    line.inflight += bytes;
    request.sent = true;
    for (uint16_t i = 0; i < request.parts.size(); ++i) {
      request.parts[i].holds_credit = true;
      SendPart(request, i);
    }
  }
}

void RequestTable::SendPart(const Request& request, uint16_t part) {
  outbox_.Send(peers_[request.shard], request.parts[part].message);
}

void RequestTable::GiveCreditBack(Request& request, Part& part) {
  if (!part.holds_credit || Planted(Bug::kCreditNeverReturned)) return;
  part.holds_credit = false;
  shards_[request.shard].inflight -= part.message.body.size() + part.reply_bytes;
}

RequestTable::Outcome RequestTable::Answered(ShardId shard, uint64_t id, uint16_t number, bool of_one_part) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.shard != shard || !found->second.sent)
    return Outcome::kUnknown;
  Request& request = found->second;
  if (request.each_part_answered != of_one_part) return Outcome::kUnknown;
  if (request.each_part_answered) {
    if (number >= request.parts.size() || request.parts[number].answered) return Outcome::kUnknown;
    Part& part = request.parts[number];
    part.answered = true;
    GiveCreditBack(request, part);
    part.message.body = Buffer();
    if (--request.open > 0) {
      Drain(shard);
      return Outcome::kPartAnswered;
    }
  } else {
    for (Part& part : request.parts) GiveCreditBack(request, part);
  }
  requests_.erase(found);
  Drain(shard);
  return Outcome::kComplete;
}

void RequestTable::Parked(ShardId shard, uint64_t id, uint16_t number, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.shard != shard || number >= found->second.parts.size())
    return;
  if (!Planted(Bug::kParkedHoldsCredit)) GiveCreditBack(found->second, found->second.parts[number]);
  found->second.parked = true;
  found->second.resend_at = now + found->second.pause;
  Drain(shard);
}

void RequestTable::RetryLater(ShardId shard, uint64_t id, Time now) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.shard != shard) return;
  found->second.resend_at = std::min(found->second.resend_at, now + kRetryPause);
}

void RequestTable::Tick(Time now) {
  if (Planted(Bug::kNoResend)) return;
  for (auto& [id, request] : requests_) {
    if (!request.sent || now < request.resend_at) continue;
    for (uint16_t i = 0; i < request.parts.size(); ++i) {
      if (request.parts[i].answered) continue;
      resent_.Add();
      SendPart(request, i);
    }
    request.pause = std::min(request.pause * 2, settings_.resend_after * kLongestPause);
    request.resend_at = now + request.pause;
  }
}

std::string RequestTable::Oldest(Time now) const {
  if (requests_.empty()) return "";
  const Request& request = requests_.begin()->second;  // ids grow with time
  const FrameHeader& header = request.parts[0].message.header;
  return fmt::format("{} of step {} (rank {}) to shard {}, {:.1f} s{}", ToString(header.Kind()), header.step,
                     header.rank, request.shard, std::chrono::duration<double>(now - request.begun).count(),
                     request.parked ? ", parked there" : "");
}

}  // namespace capstan
