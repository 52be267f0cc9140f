// One complete push of one rank: what a shard keeps until the step is applied.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/section.h"

namespace capstan {

struct PushRecord {
  Rank rank = kNoRank;
  Term term = 0;
  Step step = 0;
  LeaseId lease = 0;
  bool end = false;               // the rank has no more data in this epoch
  PushInfo info;
  std::vector<BodyView> parts;    // share the received buffers
  std::vector<uint64_t> hashes;   // of the parts' bodies: a repeat must have the same bits
  size_t bytes = 0;
};

}  // namespace capstan
