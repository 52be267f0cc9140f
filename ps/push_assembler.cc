#include "ps/push_assembler.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "common/planted_bugs.h"

namespace capstan {
namespace {

constexpr size_t kPartOverhead = 256;  // of the map and the buffer's block

bool SameProcess(const FrameHeader& a, const FrameHeader& b) {
  return a.src_node == b.src_node && a.src_incarnation == b.src_incarnation && a.generation == b.generation;
}

bool SamePush(const FrameHeader& a, const FrameHeader& b) {
  return a.parts == b.parts && a.rank_term == b.rank_term && a.step == b.step && a.lease == b.lease &&
         a.flags == b.flags;
}

size_t MemoryOf(const BodyView& body) {
  return body.buffer().size() + body.sections().size() * sizeof(SectionView) + kPartOverhead;
}

}  // namespace

absl::StatusOr<std::optional<PushRecord>> PushAssembler::Add(const FrameHeader& header, BodyView body) {
  const auto [found, fresh] = lanes_.try_emplace(header.rank);
  Lane& lane = found->second;
  const bool mixed = Planted(Bug::kPartsJoinedAcrossRequests) && !lane.parts.empty();
  const bool same_process = !fresh && SameProcess(header, lane.first);
  if (same_process && header.request < lane.first.request && !mixed) {
    return std::optional<PushRecord>();  // every shard has acknowledged it: its rank went on
  }
  if (!same_process || lane.parts.empty() || (header.request > lane.first.request && !mixed)) {
    Clear(&lane);
    lane.first = header;
  } else if (!SamePush(header, lane.first) && !mixed) {
    Clear(&lane);
    lanes_.erase(found);
    return InvalidArgument(fmt::format("part {} of push {} of rank {} contradicts the part that came first",
                                       header.part, header.request, header.rank));
  }
  const size_t bytes = MemoryOf(body);
  if (header.part >= lane.first.parts) return std::optional<PushRecord>();
  if (!lane.parts.try_emplace(header.part, Part{std::move(body), header.body_xxh3}).second) {
    return std::optional<PushRecord>();
  }
  lane.bytes += bytes;
  bytes_ += bytes;
  if (lane.parts.size() < lane.first.parts) return std::optional<PushRecord>();
  absl::StatusOr<PushRecord> push = Join(&lane);
  Clear(&lane);
  if (!push.ok()) return push.status();
  return std::optional<PushRecord>(*std::move(push));
}

absl::StatusOr<PushRecord> PushAssembler::Join(Lane* lane) {
  PushRecord push;
  push.rank = lane->first.rank;
  push.term = lane->first.rank_term;
  push.step = lane->first.step;
  push.lease = lane->first.lease;
  push.end = (lane->first.flags & kFlagEnd) != 0;
  push.bytes = lane->bytes;
  for (auto& [number, part] : lane->parts) {
    push.hashes.push_back(part.hash);
    push.parts.push_back(std::move(part.body));
  }
  CAPSTAN_ASSIGN_OR_RETURN(push.info, ReadStruct<PushInfo>(push.parts[0], SectionKind::kPushInfo));
  return push;
}

void PushAssembler::Clear(Lane* lane) {
  bytes_ -= lane->bytes;
  lane->bytes = 0;
  lane->parts.clear();
}

void PushAssembler::Discard(Rank rank) {
  const auto found = lanes_.find(rank);
  if (found == lanes_.end()) return;
  Clear(&found->second);
  lanes_.erase(found);
}

size_t PushAssembler::incomplete() const {
  return static_cast<size_t>(std::count_if(lanes_.begin(), lanes_.end(),
                                           [](const auto& entry) { return !entry.second.parts.empty(); }));
}

}  // namespace capstan
