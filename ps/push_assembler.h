// Joins the parts of pushes. A push is applied only when it is complete.
#pragma once

#include <map>
#include <optional>

#include "common/status.h"
#include "ps/push_record.h"

namespace capstan {

// A rank has one push under way at a time and begins the next, with a higher request number, only after every
// shard acknowledged it. So one incomplete push is kept per rank, the newest: nothing can pile up, whatever
// is sent twice.
class PushAssembler {
 public:
  // Adds one part; the push, once all of its parts are here. Parts are joined per (sender, incarnation,
  // request, generation); a part that comes again is ignored, and so is one of an older push than the newest
  // seen. A complete push is handed out and forgotten: it may come once more. kInvalidArgument: the parts
  // contradict each other; the push they belong to is forgotten.
  absl::StatusOr<std::optional<PushRecord>> Add(const FrameHeader& header, BodyView body);

  // Forgets the incomplete push of a rank: it was fenced.
  void Discard(Rank rank);

  size_t bytes() const { return bytes_; }  // of memory, about
  size_t incomplete() const;

 private:
  struct Part {
    BodyView body;
    uint64_t hash = 0;
  };
  struct Lane {         // of one rank
    FrameHeader first;  // of the newest push: the part that came first
    std::map<uint16_t, Part> parts;
    size_t bytes = 0;
  };

  static absl::StatusOr<PushRecord> Join(Lane* lane);
  void Clear(Lane* lane);

  std::map<Rank, Lane> lanes_;
  size_t bytes_ = 0;
};

}  // namespace capstan
