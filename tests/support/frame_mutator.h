// Damages valid frames as a defective peer might send them: any field or byte changed, then sealed again, so that the
// transport's checks let it pass.
#pragma once

#include <vector>

#include "common/random.h"
#include "proto/frame.h"

namespace capstan::testing {

class FrameMutator {
 public:
  explicit FrameMutator(uint64_t seed);

  // One to four changes of header, descriptors or body; sometimes none. The result passes ParseFrameHeader.
  Message Mutate(const Message& message);
  // One of `frames`, damaged.
  Message Pick(const std::vector<Message>& frames) { return Mutate(frames[random_.Below(frames.size())]); }
  SeededRandom& random() { return random_; }

 private:
  void ChangeHeader(FrameHeader* header);
  void ChangeBody(std::vector<std::byte>* body);
  uint64_t Value();  // zeros, small ones, ends of ranges, anything

  SeededRandom random_;
};

}  // namespace capstan::testing
