#include "proto/section.h"

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan {
namespace {

constexpr size_t Align8(size_t n) { return (n + 7) & ~size_t{7}; }

bool KnownSection(uint16_t kind) {
  return kind >= static_cast<uint16_t>(SectionKind::kKeys) &&
         kind <= static_cast<uint16_t>(SectionKind::kRankList);
}

absl::Status CheckDescriptor(const SectionDescriptor& d, size_t room, size_t index) {
  if (!KnownSection(d.kind) && (d.flags & kSectionSkipIfUnknown) == 0) {
    return InvalidArgument(fmt::format("section {}: unknown kind {}", index, d.kind));
  }
  if (d.dtype == 0 || d.dtype > static_cast<uint8_t>(DType::kBytes) || d.codec != 0 ||
      (d.flags & ~kSectionSkipIfUnknown) != 0) {
    return InvalidArgument(fmt::format("section {}: dtype {}, codec {}, flags {:x} are not known", index,
                                       d.dtype, d.codec, d.flags));
  }
  // rows and width are 32 bits each and a dtype at most 8 bytes: the product needs more than 64 bits.
  const auto want = static_cast<unsigned __int128>(d.rows) * d.width * SizeOf(static_cast<DType>(d.dtype));
  if (want != d.bytes || d.raw_bytes != d.bytes) {
    return InvalidArgument(fmt::format("section {}: {} rows × {} of dtype {} do not make {} bytes", index,
                                       d.rows, d.width, d.dtype, d.bytes));
  }
  if (d.rows > 0 && d.width == 0) {
    return InvalidArgument(fmt::format("section {}: {} rows of no width", index, d.rows));
  }
  if (d.bytes > room) {
    return InvalidArgument(fmt::format("section {}: {} bytes, but only {} follow", index, d.bytes, room));
  }
  return absl::OkStatus();
}

}  // namespace

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kNone:
      return 0;
    case DType::kF32:
    case DType::kU32:
      return 4;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kU64:
      return 8;
    case DType::kI8:
    case DType::kBytes:
      return 1;
  }
  return 0;
}

size_t BodyBuilder::Add(SectionKind kind, TableId table, DType dtype, uint32_t rows, uint32_t width) {
  CHECK(body_.empty());
  SectionDescriptor d;
  d.kind = static_cast<uint16_t>(kind);
  d.table = table;
  d.dtype = static_cast<uint8_t>(dtype);
  d.rows = rows;
  d.width = width;
  d.bytes = uint64_t{rows} * width * SizeOf(dtype);
  d.raw_bytes = d.bytes;
  descriptors_.push_back(d);
  offsets_.push_back(data_bytes_);  // made absolute by Allocate
  data_bytes_ += Align8(d.bytes);
  return descriptors_.size() - 1;
}

Buffer BodyBuilder::Allocate() {
  CHECK_LE(descriptors_.size(), kMaxSections);
  const size_t table_bytes = descriptors_.size() * sizeof(SectionDescriptor);
  body_ = Buffer::Allocate(table_bytes + data_bytes_);
  if (table_bytes > 0) std::memcpy(body_.data(), descriptors_.data(), table_bytes);
  for (size_t i = 0; i < descriptors_.size(); ++i) {
    offsets_[i] += table_bytes;
    const size_t end = offsets_[i] + descriptors_[i].bytes;
    std::memset(body_.data() + end, 0, Align8(end) - end);
  }
  return body_;
}

const SectionView* BodyView::Find(SectionKind kind) const {
  for (const SectionView& section : sections_) {
    if (section.kind() == kind) return &section;
  }
  return nullptr;
}

absl::StatusOr<const std::byte*> FindStruct(const BodyView& body, SectionKind kind, size_t size) {
  const SectionView* section = body.Find(kind);
  if (section == nullptr) {
    return InvalidArgument(
        fmt::format("no section of kind {}, which this message needs", static_cast<int>(kind)));
  }
  if (section->descriptor.bytes != size) {
    return InvalidArgument(fmt::format("the section of kind {} has {} bytes, want {}", static_cast<int>(kind),
                                       section->descriptor.bytes, size));
  }
  return section->data;
}

absl::StatusOr<BodyView> ParseBody(uint16_t sections, Buffer body) {
  const size_t table_bytes = size_t{sections} * sizeof(SectionDescriptor);
  if (sections > kMaxSections || table_bytes > body.size()) {
    return InvalidArgument(fmt::format("{} sections do not fit a body of {} bytes", sections, body.size()));
  }
  if (reinterpret_cast<uintptr_t>(body.data()) % 8 != 0) body = Buffer::CopyOf(body.data(), body.size());
  BodyView view;
  view.sections_.reserve(sections);
  size_t offset = table_bytes;
  for (size_t i = 0; i < sections; ++i) {
    SectionView section;
    std::memcpy(static_cast<void*>(&section.descriptor), body.data() + i * sizeof(SectionDescriptor),
                sizeof(SectionDescriptor));
    CAPSTAN_RETURN_IF_ERROR(CheckDescriptor(section.descriptor, body.size() - offset, i));
    section.data = body.data() + offset;
    const size_t end = offset + section.descriptor.bytes;
    const size_t padded = Align8(end);
    if (padded > body.size()) return InvalidArgument(fmt::format("section {}: its padding is missing", i));
    for (size_t at = end; at < padded; ++at) {
      if (body.data()[at] != std::byte{0})
        return InvalidArgument(fmt::format("section {}: padding is not zero", i));
    }
    offset = padded;
    if (KnownSection(section.descriptor.kind)) view.sections_.push_back(section);
  }
  if (offset != body.size()) {
    return InvalidArgument(fmt::format("{} bytes follow the last section", body.size() - offset));
  }
  view.buffer_ = std::move(body);
  return view;
}

}  // namespace capstan
