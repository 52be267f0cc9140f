// What the protocol needs from whoever computes: the keys of a batch, then its gradients. The trainer's threads stand
// behind it in a real worker, a few lines of arithmetic in the simulator. Calls never block; answers come back through
// ClientCore::Prepared and ClientCore::Computed, later, from the same thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/batch_plan.h"
#include "proto/section.h"

namespace capstan {

class EffectiveJob;

// One part of a request to one shard, ready to be sent.
struct RequestPart {
  Buffer body;
  uint16_t sections = 0;
  uint32_t reply_bytes = 0;  // about what the answer will carry; for the credit
};
inline constexpr size_t kMaxRequestParts = 65535;
// requests[shard] = its parts, at least one (empty where the batch has no key there), at most kMaxRequestParts.
using ShardRequests = std::vector<std::vector<RequestPart>>;

struct StepTicket {
  Rank rank = kNoRank;
  Step step = 0;
  BatchId batch;
  std::optional<BatchId> upcoming;  // most likely the next one: read it ahead
};

// replies[shard][part]: the checked body of a ROWS frame, in the order of the request's parts.
using ShardReplies = std::vector<std::vector<BodyView>>;

class RankDriver {
 public:
  virtual ~RankDriver() = default;
  // The job is known. An error ends it for everybody.
  virtual absl::Status OnStart(const EffectiveJob& job, uint32_t shards) = 0;
  // Make the pull of this batch; answer with ClientCore::Prepared.
  virtual void Prepare(const StepTicket& ticket) = 0;
  // The rows are here; answer with ClientCore::Computed. `proto` holds what the push must carry besides: epoch, split,
  // index, optimizer_step and lr_factor are filled in, the rest is the driver's to fill.
  virtual void Compute(const StepTicket& ticket, const PushInfo& proto, ShardReplies replies) = 0;
  // The rank has done all its work.
  virtual void Finished(Rank rank) = 0;
};

}  // namespace capstan
