// Writes the hand-made seeds of the frame fuzzer into a folder: frame_seeds FOLDER.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>

#include "frame_input.h"
#include "proto/section.h"

namespace capstan {
namespace {

struct SectionSpec {
  SectionKind kind;
  DType dtype;
  uint32_t rows, width;
};

Message SeedFrame(MessageKind kind, const std::vector<SectionSpec>& sections) {
  BodyBuilder builder;
  for (const SectionSpec& s : sections) builder.Add(s.kind, 3, s.dtype, s.rows, s.width);
  Message message;
  message.header.kind = static_cast<uint16_t>(kind);
  message.header.sections = builder.sections();
  message.header.job = 7;
  message.header.request = 11;
  message.body = builder.Allocate();
  uint8_t next = 1;
  for (size_t i = 0; i < sections.size(); ++i) {
    for (std::byte& byte : builder.Section<std::byte>(i)) byte = std::byte{next++};
  }
  SealFrame(message);
  return message;
}

std::string SeedBytes(uint8_t options, const Message& message) {
  std::string bytes(1, static_cast<char>(options));
  bytes.append(reinterpret_cast<const char*>(&message.header), sizeof(FrameHeader));
  bytes.append(reinterpret_cast<const char*>(message.body.data()), message.body.size());
  return bytes;
}

// Frames that are right, one per use of the wire.
std::vector<std::pair<std::string, Message>> SoundFrames() {
  const SectionSpec keys{SectionKind::kKeys, DType::kU64, 5, 1},
      values{SectionKind::kValues, DType::kF32, 5, 3};
  const SectionSpec push_info{SectionKind::kPushInfo, DType::kBytes, 1, sizeof(PushInfo)};
  const SectionSpec rows_info{SectionKind::kRowsInfo, DType::kBytes, 1, sizeof(RowsInfo)};
  const SectionSpec empty{SectionKind::kKeys, DType::kU64, 0, 1},
      cursor{SectionKind::kCursor, DType::kBytes, 1, 13};
  return {
      {"pull", SeedFrame(MessageKind::kPull, {keys})},
      {"pull-two-tables", SeedFrame(MessageKind::kPull, {keys, keys})},
      {"pull-readonly", SeedFrame(MessageKind::kPullReadOnly, {keys})},
      {"rows", SeedFrame(MessageKind::kRows, {rows_info, values})},
      {"rows-bf16", SeedFrame(MessageKind::kRows, {{SectionKind::kValues, DType::kBf16, 3, 5}})},
      {"push", SeedFrame(MessageKind::kPush, {push_info, keys, values})},
      {"push-empty", SeedFrame(MessageKind::kPush, {push_info, empty})},
      {"push-counts",
       SeedFrame(MessageKind::kPush, {keys, {SectionKind::kCounts, DType::kU32, 5, 1}, values})},
      {"push-int8", SeedFrame(MessageKind::kPush, {keys,
                                                   {SectionKind::kScales, DType::kF32, 5, 1},
                                                   {SectionKind::kValues, DType::kI8, 5, 3}})},
      {"commit",
       SeedFrame(MessageKind::kCommit, {{SectionKind::kCommitPayload, DType::kBytes, 1, 20}, cursor})},
      {"commit-bare", SeedFrame(MessageKind::kCommit, {})},
      {"ack", SeedFrame(MessageKind::kAck, {})},
      {"nack", SeedFrame(MessageKind::kNack, {{SectionKind::kRankList, DType::kU32, 1, 1}})},
      {"waiting", SeedFrame(MessageKind::kWaiting, {{SectionKind::kRankList, DType::kU32, 3, 1}})},
      {"versions", SeedFrame(MessageKind::kRows, {{SectionKind::kVersions, DType::kU64, 2, 2}})},
      {"hash", SeedFrame(MessageKind::kPull, {{SectionKind::kKeyListHash, DType::kU64, 2, 1}})},
      {"many-sections", SeedFrame(MessageKind::kRecords, std::vector<SectionSpec>(9, cursor))},
  };
}

// One field wrong at a time, sealed all the same.
std::vector<std::pair<std::string, std::function<void(Message&)>>> Damages() {
  const auto descriptor = [](Message& m, size_t i) {
    return reinterpret_cast<SectionDescriptor*>(m.body.data()) + i;
  };
  return {
      {"sections-more", [](Message& m) { ++m.header.sections; }},
      {"sections-fewer", [](Message& m) { --m.header.sections; }},
      {"sections-max", [](Message& m) { m.header.sections = 0xFFFF; }},
      {"kind", [=](Message& m) { descriptor(m, 0)->kind = 200; }},
      {"kind-skipped",
       [=](Message& m) {
         descriptor(m, 0)->kind = 200;
         descriptor(m, 0)->flags = 1;
       }},
      {"dtype-none", [=](Message& m) { descriptor(m, 1)->dtype = 0; }},
      {"dtype-unknown", [=](Message& m) { descriptor(m, 1)->dtype = 8; }},
      {"codec", [=](Message& m) { descriptor(m, 1)->codec = 1; }},
      {"flags", [=](Message& m) { descriptor(m, 1)->flags = 2; }},
      {"rows-huge", [=](Message& m) { descriptor(m, 1)->rows = 0xFFFFFFFF; }},
      {"product-overflows",
       [=](Message& m) {
         // 2^31 × 2^31 × 8 = 2^65: zero in 64 bits.
         *descriptor(m, 1) = {.kind = 1,
                              .table = 0,
                              .dtype = 6,
                              .codec = 0,
                              .flags = 0,
                              .rows = 1u << 31,
                              .width = 1u << 31,
                              .bytes = 0,
                              .raw_bytes = 0};
       }},
      {"bytes-beyond",
       [=](Message& m) {
         descriptor(m, 2)->rows = 7;
         descriptor(m, 2)->bytes = 84;
         descriptor(m, 2)->raw_bytes = 84;
       }},
      {"raw-bytes", [=](Message& m) { ++descriptor(m, 2)->raw_bytes; }},
      {"padding", [](Message& m) { m.body.data()[m.body.size() - 1] = std::byte{1}; }},
  };
}

void WriteSeed(const std::filesystem::path& folder, const std::string& name, const std::string& bytes) {
  std::ofstream file(folder / ("seed-" + name), std::ios::binary);
  file << bytes;
  CHECK(file.good()) << "cannot write " << name;
}

void WriteSeeds(const std::filesystem::path& folder) {
  for (const auto& [name, message] : SoundFrames()) {
    WriteSeed(folder, name, SeedBytes(kInputSeal, message));
  }
  const std::vector<SectionSpec> push = {{SectionKind::kPushInfo, DType::kBytes, 1, sizeof(PushInfo)},
                                         {SectionKind::kKeys, DType::kU64, 5, 1},
                                         {SectionKind::kValues, DType::kF32, 5, 3}};
  for (const auto& [name, damage] : Damages()) {
    Message message = SeedFrame(MessageKind::kPush, push);
    damage(message);
    WriteSeed(folder, "bad-" + name, SeedBytes(kInputSeal, message));
  }
  const std::string sound = SeedBytes(0, SeedFrame(MessageKind::kPush, push));
  WriteSeed(folder, "unsealed", sound);
  WriteSeed(folder, "unaligned",
            SeedBytes(kInputSeal | kInputUnaligned, SeedFrame(MessageKind::kPush, push)));
  WriteSeed(folder, "identified", static_cast<char>(kInputSeal | kInputIdentify) + std::string(128, '\0'));
  WriteSeed(folder, "short-header", sound.substr(0, 128));
  WriteSeed(folder, "no-body", sound.substr(0, 129));
  WriteSeed(folder, "cut-body", sound.substr(0, sound.size() - 1));
}

}  // namespace
}  // namespace capstan

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: frame_seeds FOLDER (an existing one)\n");
    return 2;
  }
  capstan::WriteSeeds(argv[1]);
  return 0;
}
