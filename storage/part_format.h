// The structs of a part file; model_store.h has the layout in words.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace capstan {

static_assert(std::endian::native == std::endian::little, "part files are copied from memory byte for byte");

inline constexpr std::array<char, 8> kPartMagic = {'C', 'A', 'P', 'S', 'R', 'O', 'W', 'S'};
inline constexpr uint32_t kBlockMagic = 0x4B4C4243;
inline constexpr uint32_t kEndMagic = 0x444E4543;

struct PartHeader {
  std::array<char, 8> magic = kPartMagic;
  uint32_t version = 1;
  uint32_t zero = 0;
};
static_assert(sizeof(PartHeader) == 16 && std::has_unique_object_representations_v<PartHeader>);

// Also the shape of the end: `table` is then 0, and (partition, floats) hold the low and high half of the
// number of blocks.
struct PartBlock {
  uint32_t magic = kBlockMagic;
  uint32_t table = 0;
  uint32_t partition = 0;
  uint32_t floats = 0;
  uint64_t rows = 0;
};
static_assert(sizeof(PartBlock) == 24 && std::has_unique_object_representations_v<PartBlock>);

inline PartBlock PartEnd(uint64_t blocks, uint64_t rows) {
  return {kEndMagic, 0, static_cast<uint32_t>(blocks), static_cast<uint32_t>(blocks >> 32), rows};
}

constexpr size_t RecordBytes(uint32_t floats) { return sizeof(uint64_t) + size_t{floats} * sizeof(float); }

}  // namespace capstan
