#include "proto/section.h"

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/random.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMaxWord = std::numeric_limits<uint32_t>::max();

struct Body {
  uint16_t sections = 0;
  Buffer bytes;
};

// 5 keys of table 3, 5 × 3 floats, 5 counts (which need padding), and one PushInfo.
Body SomeBody() {
  BodyBuilder builder;
  const size_t keys = builder.Add(SectionKind::kKeys, 3, DType::kU64, 5, 1);
  const size_t values = builder.Add(SectionKind::kValues, 3, DType::kF32, 5, 3);
  const size_t counts = builder.Add(SectionKind::kCounts, 3, DType::kU32, 5, 1);
  const size_t info = builder.Add(SectionKind::kPushInfo, 0, DType::kBytes, sizeof(PushInfo), 1);
  Body body;
  body.bytes = builder.Allocate();
  body.sections = builder.sections();
  EXPECT_EQ(body.bytes.size(), builder.bytes());
  for (uint64_t i = 0; i < 5; ++i) {
    builder.Section<uint64_t>(keys)[i] = i * i;
    builder.Section<uint32_t>(counts)[i] = static_cast<uint32_t>(i + 1);
  }
  for (size_t i = 0; i < 15; ++i) builder.Section<float>(values)[i] = 0.5f * static_cast<float>(i);
  builder.Section<PushInfo>(info)[0] = PushInfo{.examples = 7, .loss_sum = 1.25, .split = 4};
  return body;
}

std::vector<uint8_t> BytesOf(const Buffer& buffer) {
  std::vector<uint8_t> bytes(buffer.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), buffer.data(), bytes.size());
  return bytes;
}
Buffer BufferOf(const std::vector<uint8_t>& bytes) { return Buffer::CopyOf(bytes.data(), bytes.size()); }

void CheckSomeBody(const BodyView& view) {
  ASSERT_EQ(view.sections().size(), 4u);
  const SectionView* keys = view.Find(SectionKind::kKeys);
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(keys->table(), 3);
  EXPECT_THAT(std::vector<uint64_t>(keys->As<uint64_t>().begin(), keys->As<uint64_t>().end()),
              ::testing::ElementsAre(0, 1, 4, 9, 16));
  const SectionView* values = view.Find(SectionKind::kValues);
  ASSERT_NE(values, nullptr);
  EXPECT_EQ(values->descriptor.width, 3u);
  ASSERT_EQ(values->As<float>().size(), 15u);
  EXPECT_EQ(values->As<float>()[14], 7.0f);
  EXPECT_EQ(view.Find(SectionKind::kCounts)->As<uint32_t>()[4], 5u);
  EXPECT_EQ(view.Find(SectionKind::kCursor), nullptr);
  const absl::StatusOr<PushInfo> info = ReadStruct<PushInfo>(view, SectionKind::kPushInfo);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->examples, 7u);
  EXPECT_EQ(info->loss_sum, 1.25);
  EXPECT_EQ(info->split, 4u);
}

TEST(Section, GoldenBytes) {  // FORMAT.md's example
  BodyBuilder builder;
  const size_t counts = builder.Add(SectionKind::kCounts, 0x0102, DType::kU32, 3, 1);
  const Buffer body = builder.Allocate();
  for (uint32_t i = 0; i < 3; ++i) builder.Section<uint32_t>(counts)[i] = 0x10 + i;
  const std::vector<uint8_t> kGolden = {
      5,    0, 2, 1, 5,    0, 0, 0,
      3,    0, 0, 0, 1,    0, 0, 0,  // kind, table, dtype, codec, flags, rows, width
      12,   0, 0, 0, 0,    0, 0, 0,
      12,   0, 0, 0, 0,    0, 0, 0,  // bytes, raw_bytes
      0x10, 0, 0, 0, 0x11, 0, 0, 0,
      0x12, 0, 0, 0, 0,    0, 0, 0,  // three counts, padding
  };
  EXPECT_EQ(BytesOf(body), kGolden);
}

TEST(Section, RoundTrip) {
  const Body body = SomeBody();
  const absl::StatusOr<BodyView> view = ParseBody(body.sections, body.bytes);
  ASSERT_TRUE(view.ok()) << view.status();
  CheckSomeBody(*view);
  EXPECT_EQ(view->buffer().data(), body.bytes.data()) << "read in place, not copied";
  for (const SectionView& section : view->sections()) {
    EXPECT_EQ((section.data - body.bytes.data()) % 8, 0) << "section kind " << section.descriptor.kind;
  }
}

TEST(Section, BodiesAtOddAddressesAreCopiedAndAligned) {
  const Body body = SomeBody();
  for (size_t shift = 0; shift < 8; ++shift) {
    const Buffer holder = Buffer::Allocate(body.bytes.size() + shift);
    std::memcpy(holder.data() + shift, body.bytes.data(), body.bytes.size());
    int released = 0;
    {
      Buffer odd = Buffer::Adopt(
          holder.data() + shift, body.bytes.size(), [](void* arg) { ++*static_cast<int*>(arg); }, &released);
      const absl::StatusOr<BodyView> view = ParseBody(body.sections, std::move(odd));
      ASSERT_TRUE(view.ok()) << view.status();
      CheckSomeBody(*view);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view->buffer().data()) % 8, 0u);
    }
    EXPECT_EQ(released, 1);
  }
}

TEST(Section, EmptyBodiesAndEmptySections) {
  EXPECT_TRUE(ParseBody(0, Buffer()).ok());
  EXPECT_TRUE(BodyBuilder().Allocate().empty());
  BodyBuilder builder;
  builder.Add(SectionKind::kKeys, 1, DType::kU64, 0, 1);
  builder.Add(SectionKind::kValues, 1, DType::kF32, 0, 16);
  const Buffer body = builder.Allocate();
  const absl::StatusOr<BodyView> view = ParseBody(builder.sections(), body);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(view->Find(SectionKind::kKeys)->As<uint64_t>().empty());
}

TEST(Section, AnUnknownKindMayBeSkipped) {
  Body body = SomeBody();
  std::vector<uint8_t> bytes = BytesOf(body.bytes);
  bytes[2 * sizeof(SectionDescriptor)] = 200;  // the counts
  EXPECT_EQ(ParseBody(4, BufferOf(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
  bytes[2 * sizeof(SectionDescriptor) + offsetof(SectionDescriptor, flags)] = kSectionSkipIfUnknown;
  const absl::StatusOr<BodyView> view = ParseBody(4, BufferOf(bytes));
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->sections().size(), 3u);
  EXPECT_TRUE(ReadStruct<PushInfo>(*view, SectionKind::kPushInfo).ok()) << "what follows is still found";
}

struct BadDescriptor {
  const char* name;
  std::function<void(SectionDescriptor*)> damage;
  const char* message;
};

TEST(Section, EveryFieldOfADescriptorIsChecked) {
  const BadDescriptor kCases[] = {
      {"kind 0", [](SectionDescriptor* d) { d->kind = 0; }, "section 1: unknown kind 0"},
      {"kind", [](SectionDescriptor* d) { d->kind = 12; }, "section 1: unknown kind 12"},
      {"no dtype", [](SectionDescriptor* d) { d->dtype = 0; }, "dtype 0"},
      {"dtype", [](SectionDescriptor* d) { d->dtype = 8; }, "dtype 8"},
      {"codec", [](SectionDescriptor* d) { d->codec = 1; }, "codec 1"},
      {"flags", [](SectionDescriptor* d) { d->flags = 2; }, "flags 2"},
      {"rows", [](SectionDescriptor* d) { d->rows += 1; }, "do not make 60 bytes"},
      {"width", [](SectionDescriptor* d) { d->width = 4; }, "do not make 60 bytes"},
      {"smaller dtype", [](SectionDescriptor* d) { d->dtype = static_cast<uint8_t>(DType::kBf16); },
       "do not make"},
      {"bytes", [](SectionDescriptor* d) { d->bytes += 8; }, "do not make 68 bytes"},
      {"raw_bytes", [](SectionDescriptor* d) { d->raw_bytes = 0; }, "do not make"},
      {"product of 2^64 and more",
       [](SectionDescriptor* d) {
         d->rows = d->width = 1u << 31;  // × 4 bytes = 2^64, which wraps to 0 in 64 bits
         d->bytes = d->raw_bytes = 0;
       },
       "do not make 0 bytes"},
      {"the largest product",
       [](SectionDescriptor* d) {
         d->rows = d->width = kMaxWord;
         d->bytes = d->raw_bytes = uint64_t{kMaxWord} * kMaxWord * 4;
       },
       "do not make"},
      {"longer than the body",
       [](SectionDescriptor* d) {
         d->rows = 1u << 20;
         d->bytes = d->raw_bytes = uint64_t{d->rows} * d->width * 4;
       },
       "12582912 bytes, but only"},
      {"rows without bytes",
       [](SectionDescriptor* d) {
         d->rows = kMaxWord;
         d->width = 0;
         d->bytes = d->raw_bytes = 0;
       },
       "4294967295 rows of no width"},
  };
  const std::vector<uint8_t> good = BytesOf(SomeBody().bytes);
  for (const BadDescriptor& c : kCases) {
    std::vector<uint8_t> bytes = good;
    SectionDescriptor descriptor;
    uint8_t* place = bytes.data() + sizeof(SectionDescriptor);  // the values
    std::memcpy(static_cast<void*>(&descriptor), place, sizeof descriptor);
    c.damage(&descriptor);
    std::memcpy(place, &descriptor, sizeof descriptor);
    const absl::Status status = ParseBody(4, BufferOf(bytes)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.name;
  }
}

TEST(Section, ABodyHasTheLengthItsSectionsNeed) {
  const Body body = SomeBody();
  const std::vector<uint8_t> good = BytesOf(body.bytes);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseBody(body.sections, BufferOf({good.begin(), good.begin() + size})).ok()) << size;
  }
  std::vector<uint8_t> longer = good;
  longer.resize(good.size() + 8, 0);
  EXPECT_THAT(std::string(ParseBody(body.sections, BufferOf(longer)).status().message()),
              HasSubstr("8 bytes follow the last section"));
  EXPECT_FALSE(ParseBody(3, body.bytes).ok()) << "a section too few";
  EXPECT_FALSE(ParseBody(5, body.bytes).ok()) << "a section too many";
  EXPECT_FALSE(ParseBody(kMaxSections + 1, body.bytes).ok());
  EXPECT_FALSE(ParseBody(0xffff, Buffer()).ok());
}

TEST(Section, PaddingIsZero) {
  BodyBuilder builder;
  builder.Add(SectionKind::kCursor, 0, DType::kBytes, 5, 1);
  const Buffer body = builder.Allocate();
  std::memset(builder.Section<std::byte>(0).data(), 1, 5);
  ASSERT_TRUE(ParseBody(1, body).ok());
  for (size_t at = sizeof(SectionDescriptor) + 5; at < body.size(); ++at) {
    std::vector<uint8_t> bytes = BytesOf(body);
    bytes[at] = 1;
    EXPECT_THAT(std::string(ParseBody(1, BufferOf(bytes)).status().message()),
                HasSubstr("padding is not zero"));
  }
}

TEST(Section, StructsNeedTheirSectionAndItsSize) {
  const Body body = SomeBody();
  const absl::StatusOr<BodyView> view = ParseBody(body.sections, body.bytes);
  ASSERT_TRUE(view.ok());
  EXPECT_THAT(std::string(ReadStruct<RowsInfo>(*view, SectionKind::kRowsInfo).status().message()),
              HasSubstr("no section of kind 10"));
  EXPECT_THAT(std::string(ReadStruct<RowsInfo>(*view, SectionKind::kPushInfo).status().message()),
              HasSubstr("has 56 bytes, want 40"));
}

// What ParseBody accepts lies inside the body, whatever the descriptors say (AddressSanitizer watches).
TEST(Section, RandomDamageNeverReachesOutside) {
  const Body body = SomeBody();
  const std::vector<uint8_t> good = BytesOf(body.bytes);
  SeededRandom random(1);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = good;
    for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
      bytes[random.Below(4 * sizeof(SectionDescriptor))] = static_cast<uint8_t>(random.Next());
    }
    const absl::StatusOr<BodyView> view = ParseBody(body.sections, BufferOf(bytes));
    if (!view.ok()) continue;
    ++accepted;
    uint64_t sum = 0;
    for (const SectionView& section : view->sections()) {
      EXPECT_LE(section.descriptor.rows, section.descriptor.bytes);
      for (const uint8_t byte : section.As<uint8_t>()) sum += byte;
    }
    EXPECT_GT(sum, 0u);
  }
  EXPECT_GT(accepted, 0) << "a table id is not checked here, so some must pass";
}

struct SizeCase {
  DType dtype;
  size_t bytes;
};

TEST(Section, SizesOfDtypes) {
  const SizeCase kCases[] = {{DType::kNone, 0}, {DType::kF32, 4}, {DType::kBf16, 2}, {DType::kF16, 2},
                             {DType::kI8, 1},   {DType::kU32, 4}, {DType::kU64, 8},  {DType::kBytes, 1}};
  for (const SizeCase& c : kCases) EXPECT_EQ(SizeOf(c.dtype), c.bytes) << static_cast<int>(c.dtype);
  EXPECT_EQ(SizeOf(static_cast<DType>(99)), 0u);
}

}  // namespace
}  // namespace capstan
