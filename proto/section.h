// The body of a data frame: an array of 32-byte section descriptors, then the sections, each 8-byte aligned
// within the body. Built in place in one buffer and read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "proto/frame.h"

namespace capstan {

enum class SectionKind : uint16_t {
  kNone = 0,
  kKeys = 1,         // u64 × rows, strictly increasing
  kKeyListHash = 2,  // 128 bits: a list the shard already holds (not sent yet)
  kValues = 3,       // f32 × rows × width, row-major
  kScales = 4,
  kCounts = 5,  // u32 × rows
  kVersions = 6,
  kPushInfo = 7,  // one PushInfo
  kCursor = 8,    // ≤ 256 bytes
  kCommitPayload = 9,
  kRowsInfo = 10,  // one RowsInfo
  kRankList = 11,  // u32 × rows
};

enum class DType : uint8_t {
  kNone = 0,
  kF32 = 1,
  kBf16 = 2,
  kF16 = 3,
  kI8 = 4,
  kU32 = 5,
  kU64 = 6,
  kBytes = 7
};

struct SectionDescriptor {
  uint16_t kind = 0;
  uint16_t table = 0;
  uint8_t dtype = 0;
  uint8_t codec = 0;   // 0 = raw
  uint16_t flags = 0;  // bit 0: skip if unknown
  uint32_t rows = 0;
  uint32_t width = 0;
  uint64_t bytes = 0;      // on the wire
  uint64_t raw_bytes = 0;  // decoded; equal to bytes for codec 0
};
static_assert(sizeof(SectionDescriptor) == 32);
static_assert(offsetof(SectionDescriptor, rows) == 8);
static_assert(offsetof(SectionDescriptor, bytes) == 16);
static_assert(std::has_unique_object_representations_v<SectionDescriptor>);

inline constexpr uint16_t kSectionSkipIfUnknown = 1;
inline constexpr uint16_t kMaxSections = 4096;

// What a push says about the batch behind it; in part 0 of the push to every shard. Only the home shard
// counts the statistics; every shard needs the divisor and the batch's name.
struct PushInfo {
  uint64_t examples = 0;
  double weight_sum = 0;  // fp64 sum of example weights; the divisor of the step
  double loss_sum = 0;    // weighted, nats
  uint64_t bad_rows = 0;
  uint64_t optimizer_step = 0;  // 1-based
  uint32_t lr_factor_bits = 0;  // fp32
  uint32_t epoch = 0;
  uint32_t split = 0;
  uint32_t index = 0;
};
static_assert(sizeof(PushInfo) == 56);

// What a pull reply says about the job; in part 0 of every reply.
struct RowsInfo {
  uint64_t version = 0;        // at which the rows were read
  uint64_t epoch_first = 0;    // first version of the epoch
  uint64_t examples = 0;       // trained so far (home shard only)
  uint64_t optimizer_clock = 0;  // optimizer steps so far; steps without an example are not counted
  uint32_t epoch = 0;
  uint32_t job_done = 0;  // 1: no step follows
};
static_assert(sizeof(RowsInfo) == 40);

enum class NackCode : uint32_t {
  kMalformed = 1,  // a defect of the sender; do not retry
  kWrongJob = 2,
  kWrongGeneration = 3,  // needed: the shard's generation
  kWrongTerm = 4,        // needed: the rank's term
  kWrongMap = 5,         // needed: the map epoch
  kNotReady = 6,         // tables not built yet: retry
  kUnsupported = 7,
  kOverloaded = 8,    // no memory for it now: retry
  kStepConflict = 9,  // ranks disagree about a step, or a repeat has other bits
  kBadCheckpoint = 10,  // START names one that cannot be read; do not retry
};

// Adds sections, then allocates the body once and hands out the places to fill. Not thread-safe.
class BodyBuilder {
 public:
  // Returns the index of the section. bytes = rows × width × size of dtype for codec 0.
  size_t Add(SectionKind kind, TableId table, DType dtype, uint32_t rows, uint32_t width);
  // Allocates; all bytes are uninitialised but the descriptors and the padding.
  Buffer Allocate();
  template <typename T>
  std::span<T> Section(size_t index) const {  // after Allocate
    return {reinterpret_cast<T*>(body_.data() + offsets_[index]), descriptors_[index].bytes / sizeof(T)};
  }
  uint16_t sections() const { return static_cast<uint16_t>(descriptors_.size()); }
  size_t bytes() const { return descriptors_.size() * sizeof(SectionDescriptor) + data_bytes_; }

 private:
  std::vector<SectionDescriptor> descriptors_;
  std::vector<size_t> offsets_;
  size_t data_bytes_ = 0;  // sections with padding
  Buffer body_;
};

struct SectionView {
  SectionDescriptor descriptor;
  const std::byte* data = nullptr;

  SectionKind kind() const { return static_cast<SectionKind>(descriptor.kind); }
  TableId table() const { return descriptor.table; }
  // Bodies are 8-byte aligned after ParseBody (it copies a body that is not), so arrays are read in place.
  template <typename T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data), static_cast<size_t>(descriptor.bytes / sizeof(T))};
  }
};

// A checked view of a data frame's body; shares the buffer.
class BodyView {
 public:
  const std::vector<SectionView>& sections() const { return sections_; }
  const SectionView* Find(SectionKind kind) const;  // the first of that kind, or nullptr
  const Buffer& buffer() const { return buffer_; }

 private:
  friend absl::StatusOr<BodyView> ParseBody(uint16_t sections, Buffer body);
  Buffer buffer_;
  std::vector<SectionView> sections_;
};

// Checks every descriptor against the body before anything is believed: known kind (or skippable), dtype and
// codec, bytes = rows × width × size, no rows of width 0, all inside the body, aligned, nothing left over,
// padding zero. So rows ≤ bytes, and memory for them may be taken. kInvalidArgument otherwise.
absl::StatusOr<BodyView> ParseBody(uint16_t sections, Buffer body);

size_t SizeOf(DType dtype);  // 0 for kNone; 1 for kBytes

// The bytes of the first section of that kind. kInvalidArgument: there is none, or it has another size.
absl::StatusOr<const std::byte*> FindStruct(const BodyView& body, SectionKind kind, size_t size);

// One-struct sections: a copy of the section's PushInfo, RowsInfo, ….
template <typename T>
absl::StatusOr<T> ReadStruct(const BodyView& body, SectionKind kind) {
  static_assert(std::is_trivially_copyable_v<T>);
  CAPSTAN_ASSIGN_OR_RETURN(const std::byte* const data, FindStruct(body, kind, sizeof(T)));
  T value;
  std::memcpy(static_cast<void*>(&value), data, sizeof value);
  return value;
}

}  // namespace capstan
