#include "ps/push_assembler.h"

#include <utility>

#include <fmt/core.h>

#include "common/planted_bugs.h"

namespace capstan {

absl::StatusOr<std::optional<PushRecord>> PushAssembler::Add(const FrameHeader& header, BodyView body) {
  const uint64_t request = Planted(Bug::kPartsJoinedAcrossRequests) ? 0 : header.request;
  const Source source{header.src_node, header.src_incarnation, request, header.generation};
  Partial& partial = partial_[source];
  if (partial.parts.empty()) {
    partial.first = header;
    partial.parts.resize(header.parts);
    partial.hashes.resize(header.parts);
    partial.missing = header.parts;
  }
  const FrameHeader& first = partial.first;
  if (!Planted(Bug::kPartsJoinedAcrossRequests) &&
      (header.parts != first.parts || header.rank != first.rank || header.rank_term != first.rank_term ||
       header.step != first.step || header.lease != first.lease || header.flags != first.flags)) {
    return InvalidArgument(fmt::format("part {} of push {} of rank {} contradicts the part that came first",
                                       header.part, header.request, header.rank));
  }
  if (header.part >= partial.parts.size() || partial.parts[header.part].has_value()) {
    return std::optional<PushRecord>();
  }
  partial.bytes += body.buffer().size();
  bytes_ += body.buffer().size();
  partial.parts[header.part] = std::move(body);
  partial.hashes[header.part] = header.body_xxh3;
  if (--partial.missing > 0) return std::optional<PushRecord>();

  Partial complete = std::move(partial);
  partial_.erase(source);
  bytes_ -= complete.bytes;
  CAPSTAN_ASSIGN_OR_RETURN(PushRecord push, Join(std::move(complete)));
  return std::optional<PushRecord>(std::move(push));
}

absl::StatusOr<PushRecord> PushAssembler::Join(Partial partial) {
  PushRecord push;
  push.rank = partial.first.rank;
  push.term = partial.first.rank_term;
  push.step = partial.first.step;
  push.lease = partial.first.lease;
  push.end = (partial.first.flags & kFlagEnd) != 0;
  push.bytes = partial.bytes;
  push.hashes = std::move(partial.hashes);
  for (std::optional<BodyView>& part : partial.parts) push.parts.push_back(std::move(*part));
  CAPSTAN_ASSIGN_OR_RETURN(push.info, ReadStruct<PushInfo>(push.parts[0], SectionKind::kPushInfo));
  return push;
}

void PushAssembler::Discard(Rank rank) {
  for (auto it = partial_.begin(); it != partial_.end();) {
    if (it->second.first.rank == rank) {
      bytes_ -= it->second.bytes;
      it = partial_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace capstan
