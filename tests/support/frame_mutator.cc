#include "tests/support/frame_mutator.h"

#include <algorithm>
#include <limits>

#include <google/protobuf/stubs/logging.h>

namespace capstan::testing {

uint64_t FrameMutator::Value() {
  constexpr uint64_t kEdges[] = {0, 1, 2, 3, 7, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, uint64_t{1} << 40,
                                 std::numeric_limits<uint64_t>::max()};
  return random_.Below(4) == 0 ? random_.Next() : kEdges[random_.Below(std::size(kEdges))];
}

FrameMutator::FrameMutator(uint64_t seed) : random_(seed) {
  google::protobuf::SetLogHandler(nullptr);  // it has a line for every text that is not UTF-8
}

void FrameMutator::ChangeHeader(FrameHeader* header) {
  const uint64_t value = Value();
  switch (random_.Below(17)) {
    case 0: header->flags = static_cast<uint32_t>(value) & kKnownFlags; break;
    case 1: header->sections = static_cast<uint16_t>(value); break;
    case 2: header->src_node = static_cast<uint32_t>(value); break;
    case 3: header->src_incarnation = static_cast<uint32_t>(value); break;
    case 4: header->generation = static_cast<uint32_t>(value); break;
    case 5: header->rank = static_cast<uint32_t>(value); break;
    case 6: header->rank_term = static_cast<uint32_t>(value); break;
    case 7: header->request = value; break;
    case 8: header->step = value; break;
    case 9: header->done = value; break;
    case 10: header->lease = value; break;
    case 11: header->step = header->done = value; break;
    case 12: header->parts = static_cast<uint16_t>(std::max<uint64_t>(1, value & 0xffff)); break;
    case 13: header->part = static_cast<uint16_t>(value); break;
    case 14: header->map_epoch = static_cast<uint32_t>(value); break;
    case 15: header->job = value; break;
    default: {
      constexpr MessageKind kKinds[] = {
          MessageKind::kPull, MessageKind::kPush, MessageKind::kCommit, MessageKind::kRows, MessageKind::kAck,
          MessageKind::kNack, MessageKind::kWaiting, MessageKind::kHello, MessageKind::kCut, MessageKind::kCutState,
          MessageKind::kLeaseClose, MessageKind::kLeaseReply, MessageKind::kHeartbeat, MessageKind::kRankDone};
      header->kind = static_cast<uint16_t>(kKinds[random_.Below(std::size(kKinds))]);
    }
  }
}

void FrameMutator::ChangeBody(std::vector<std::byte>* body) {
  if (body->empty() || random_.Below(8) == 0) {
    body->resize(random_.Below(64), std::byte{0});
    return;
  }
  const size_t at = random_.Below(body->size());
  switch (random_.Below(3)) {
    case 0: (*body)[at] ^= static_cast<std::byte>(1u << random_.Below(8)); break;
    case 1: (*body)[at] = static_cast<std::byte>(random_.Next()); break;
    default: {
      const uint64_t value = Value();
      const size_t size = std::min<size_t>(body->size() - at, size_t{1} << random_.Below(4));
      std::copy_n(reinterpret_cast<const std::byte*>(&value), size, body->begin() + static_cast<ptrdiff_t>(at));
    }
  }
}

Message FrameMutator::Mutate(const Message& message) {
  FrameHeader header = message.header;
  std::vector<std::byte> body(message.body.data(), message.body.data() + message.body.size());
  for (uint64_t changes = random_.Below(5); changes > 0; --changes) {
    if (random_.Below(2) == 0) {
      ChangeHeader(&header);
    } else {
      ChangeBody(&body);
    }
  }
  if (header.part >= header.parts) header.part = static_cast<uint16_t>(header.parts - 1);  // the gate refuses it
  Message mutated{header, Buffer::CopyOf(body.data(), body.size())};
  SealFrame(mutated);
  return mutated;
}

}  // namespace capstan::testing
