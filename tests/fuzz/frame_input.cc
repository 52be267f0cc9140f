#include "frame_input.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <glog/logging.h>

#include "common/hash.h"
#include "proto/frame.h"
#include "proto/section.h"

namespace capstan {
namespace {

// Copies into blocks of exactly the right size, so that the sanitizer sees a read beyond the end.
Buffer ExactBody(const uint8_t* data, size_t size, bool unaligned) {
  if (size == 0) return {};
  const size_t shift = unaligned ? 1 : 0;
  auto* const block = new uint8_t[size + shift];
  std::memcpy(block + shift, data, size);
  return Buffer::Adopt(
      block + shift, size, [](void* start) { delete[] static_cast<uint8_t*>(start); }, block);
}

void Repair(uint8_t options, std::vector<uint8_t>& bytes, const Buffer& body) {
  if (bytes.size() != sizeof(FrameHeader)) return;
  FrameHeader header;
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  if ((options & kInputIdentify) != 0) {
    header.magic = kFrameMagic;
    header.version = kFrameVersion;
    header.header_len = sizeof(FrameHeader);
  }
  if ((options & kInputSeal) != 0) {
    header.body_len = static_cast<uint32_t>(body.size());
    header.body_xxh3 = HashBytes(body.data(), body.size());
    header.header_xxh3 = HashBytes(&header, offsetof(FrameHeader, header_xxh3));
  }
  std::memcpy(bytes.data(), &header, sizeof header);
}

// What proto/frame.h promises about a header that was accepted.
void ExpectSound(const FrameHeader& header) {
  CHECK_EQ(header.magic, kFrameMagic);
  CHECK_EQ(header.version, kFrameVersion);
  CHECK(IsKnown(header.Kind()));
  CHECK_EQ(header.flags & ~uint32_t{kKnownFlags}, 0u);
  CHECK_EQ(header.spare, 0u);
  CHECK_LE(header.body_len, kMaxBodyBytes);
  CHECK_LT(header.part, header.parts);
  CHECK_EQ(header.header_xxh3, HashBytes(&header, offsetof(FrameHeader, header_xxh3)));
}

// What proto/section.h promises about a body that was accepted. Reads every byte.
void ExpectSound(const BodyView& view, uint16_t sections) {
  const std::byte* const begin = view.buffer().data();
  const std::byte* const end = begin + view.buffer().size();
  CHECK_LE(view.sections().size(), sections);
  uint64_t sum = 0;
  for (const SectionView& section : view.sections()) {
    const SectionDescriptor& d = section.descriptor;
    CHECK_EQ(d.bytes, uint64_t{d.rows} * d.width * SizeOf(static_cast<DType>(d.dtype)));
    CHECK(section.data >= begin && section.data <= end);
    CHECK_LE(d.bytes, static_cast<uint64_t>(end - section.data));
    CHECK_EQ(reinterpret_cast<uintptr_t>(section.data) % 8, 0u);
    for (const uint64_t word : section.As<uint64_t>()) sum += word;
    for (const uint8_t byte : section.As<uint8_t>()) sum += byte;
    CHECK(view.Find(section.kind()) != nullptr);
  }
  asm volatile("" : : "r"(sum));  // keeps the reads
}

// A body without skipped sections is what the builder would have made of them.
void ExpectRebuilt(const BodyView& view, uint16_t sections) {
  const auto plain = [](const SectionView& s) { return s.descriptor.flags == 0; };
  if (view.sections().size() != sections ||
      !std::all_of(view.sections().begin(), view.sections().end(), plain))
    return;
  BodyBuilder builder;
  for (const SectionView& s : view.sections()) {
    const SectionDescriptor& d = s.descriptor;
    builder.Add(s.kind(), d.table, static_cast<DType>(d.dtype), d.rows, d.width);
  }
  const Buffer rebuilt = builder.Allocate();
  for (size_t i = 0; i < view.sections().size(); ++i) {
    const std::span<const std::byte> bytes = view.sections()[i].As<std::byte>();
    std::copy(bytes.begin(), bytes.end(), builder.Section<std::byte>(i).begin());
  }
  CHECK_EQ(rebuilt.size(), view.buffer().size());
  CHECK(std::equal(rebuilt.data(), rebuilt.data() + rebuilt.size(), view.buffer().data()));
}

template <typename T>
void ExpectStruct(const BodyView& view, SectionKind kind) {
  const absl::StatusOr<T> value = ReadStruct<T>(view, kind);
  const SectionView* const section = view.Find(kind);
  CHECK_EQ(value.ok(), section != nullptr && section->descriptor.bytes == sizeof(T));
  if (value.ok()) CHECK_EQ(std::memcmp(&*value, section->data, sizeof(T)), 0);
}

}  // namespace

void ParseFrameInput(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const uint8_t options = data[0];
  const size_t header_bytes = std::min(size - 1, sizeof(FrameHeader));
  std::vector<uint8_t> header_input(data + 1, data + 1 + header_bytes);
  const Buffer body =
      ExactBody(data + 1 + header_bytes, size - 1 - header_bytes, (options & kInputUnaligned) != 0);
  Repair(options, header_input, body);

  const absl::StatusOr<FrameHeader> header = ParseFrameHeader(header_input.data(), header_input.size());
  if (!header.ok()) return;
  ExpectSound(*header);
  if (!CheckFrameBody(*header, body.data(), body.size()).ok()) return;
  CHECK_EQ(header->body_len, body.size());

  const absl::StatusOr<BodyView> view = ParseBody(header->sections, body);
  if (!view.ok()) {
    CHECK_EQ(static_cast<int>(view.status().code()), static_cast<int>(absl::StatusCode::kInvalidArgument));
    return;
  }
  ExpectSound(*view, header->sections);
  ExpectRebuilt(*view, header->sections);
  ExpectStruct<PushInfo>(*view, SectionKind::kPushInfo);
  ExpectStruct<RowsInfo>(*view, SectionKind::kRowsInfo);
}

}  // namespace capstan
