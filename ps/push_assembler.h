// Joins the parts of pushes. A push is applied only when it is complete.
#pragma once

#include <compare>
#include <map>
#include <optional>

#include "common/status.h"
#include "ps/push_record.h"

namespace capstan {

class PushAssembler {
 public:
  // Adds one part; the push, once all of its parts are here. Parts are joined per (sender, incarnation, request,
  // generation); a part that comes again is ignored. kInvalidArgument: the parts contradict each other.
  absl::StatusOr<std::optional<PushRecord>> Add(const FrameHeader& header, BodyView body);

  // Forgets the incomplete pushes of a rank: it has moved on or was fenced.
  void Discard(Rank rank);

  size_t bytes() const { return bytes_; }
  size_t incomplete() const { return partial_.size(); }

 private:
  struct Source {
    NodeId node;
    Incarnation incarnation;
    uint64_t request;
    Generation generation;
    auto operator<=>(const Source&) const = default;
  };
  struct Partial {
    FrameHeader first;                        // header of the part that came first
    std::vector<std::optional<BodyView>> parts;
    std::vector<uint64_t> hashes;
    size_t missing = 0;
    size_t bytes = 0;
  };

  static absl::StatusOr<PushRecord> Join(Partial partial);

  std::map<Source, Partial> partial_;
  size_t bytes_ = 0;
};

}  // namespace capstan
