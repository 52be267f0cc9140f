#include "worker/step_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan {
namespace {

constexpr size_t kSectionOverhead = 2 * (sizeof(SectionDescriptor) + 8);

}  // namespace

RequestPart InfoPart(const PushInfo& info) {
  BodyBuilder builder;
  const size_t section = builder.Add(SectionKind::kPushInfo, 0, DType::kBytes, 1, sizeof(PushInfo));
  RequestPart part;
  part.body = builder.Allocate();
  std::memcpy(builder.Section<std::byte>(section).data(), &info, sizeof info);
  part.sections = builder.sections();
  return part;
}

StepPlan::StepPlan(std::vector<PlannedTable> tables, ShardMap map, size_t part_bytes)
    : tables_(std::move(tables)), map_(std::move(map)), part_bytes_(part_bytes), lists_(tables_.size()) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    CHECK_LE(tables_[t].like, t);
    if (!tables_[t].dense) continue;
    // All blocks, every step: the list never changes.
    KeyList& list = lists_[t];
    for (Key block = 0; block < tables_[t].blocks; ++block) list.keys.push_back(block);
    SortByShard(&list);
  }
}

void StepPlan::Build(std::span<const std::vector<uint64_t>> occurrences) {
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (!tables_[t].dense && tables_[t].like == t) BuildList(occurrences[t], &lists_[t]);
  }
  CutParts();
}

void StepPlan::BuildList(const std::vector<uint64_t>& occurrences, KeyList* list) {
  const size_t capacity = std::bit_ceil(std::max<size_t>(64, occurrences.size() * 2));
  if (slots_.size() < capacity || stamp_ == ~0u) {
    slots_.assign(std::max(capacity, slots_.size()), Slot{0, 0, 0});
    stamp_ = 0;
  }
  ++stamp_;  // a slot with another stamp is empty: nothing has to be cleared
  const size_t mask = slots_.size() - 1;
  list->keys.clear();
  list->index.resize(occurrences.size());
  for (size_t i = 0; i < occurrences.size(); ++i) {
    const Key key = occurrences[i];
    size_t at = KeyHash(key) & mask;
    while (slots_[at].stamp == stamp_ && slots_[at].key != key) at = (at + 1) & mask;
    if (slots_[at].stamp != stamp_) {
      slots_[at] = {key, static_cast<uint32_t>(list->keys.size()), stamp_};
      list->keys.push_back(key);
    }
    list->index[i] = slots_[at].place;
  }
  SortByShard(list);
}

// Reorders keys by (shard, key) and the index with them.
void StepPlan::SortByShard(KeyList* list) {
  const size_t n = list->keys.size();
  const uint32_t shards = map_.shards();
  shard_of_.resize(n);
  list->shard_begin.assign(shards + 1, 0);
  for (size_t i = 0; i < n; ++i) {
    shard_of_[i] = map_.OwnerOf(list->keys[i]);
    ++list->shard_begin[shard_of_[i] + 1];
  }
  for (uint32_t s = 0; s < shards; ++s) list->shard_begin[s + 1] += list->shard_begin[s];
  order_.resize(n);
  std::vector<size_t> fill(list->shard_begin.begin(), list->shard_begin.end() - 1);
  for (size_t i = 0; i < n; ++i) order_[fill[shard_of_[i]]++] = {list->keys[i], static_cast<uint32_t>(i)};
  for (uint32_t s = 0; s < shards; ++s) {
    std::sort(order_.begin() + static_cast<ptrdiff_t>(list->shard_begin[s]),
              order_.begin() + static_cast<ptrdiff_t>(list->shard_begin[s + 1]));
  }
  moved_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    list->keys[i] = order_[i].first;
    moved_[order_[i].second] = static_cast<uint32_t>(i);
  }
  for (uint32_t& place : list->index) place = moved_[place];
}

void StepPlan::CutParts() {
  parts_.assign(map_.shards(), {});
  for (ShardId shard = 0; shard < map_.shards(); ++shard) {
    std::vector<PartSlices>& parts = parts_[shard];
    parts.emplace_back();
    size_t room = part_bytes_;
    for (size_t t = 0; t < tables_.size(); ++t) {
      const KeyList& list = lists_[tables_[t].like];
      const size_t row_bytes = sizeof(Key) + tables_[t].width * sizeof(float);
      size_t begin = list.shard_begin[shard];
      const size_t end = list.shard_begin[shard + 1];
      while (begin < end) {
        if (room < kSectionOverhead + row_bytes && !parts.back().empty()) {
          parts.emplace_back();
          room = part_bytes_;
        }
        const size_t fit = room > kSectionOverhead ? (room - kSectionOverhead) / row_bytes : 0;
        const size_t count = std::min(end - begin, std::max<size_t>(1, fit));
        parts.back().push_back({static_cast<TableId>(t), begin, static_cast<uint32_t>(count)});
        room -= std::min(room, kSectionOverhead + count * row_bytes);
        begin += count;
      }
    }
  }
}

absl::StatusOr<ShardRequests> StepPlan::PullRequests() const {
  ShardRequests requests(parts_.size());
  for (size_t shard = 0; shard < parts_.size(); ++shard) {
    if (parts_[shard].size() > kMaxRequestParts) {
      return InvalidArgument(fmt::format(
          "one step needs {} parts of {} bytes from shard {}, at most {}: use more shards or smaller batches",
          parts_[shard].size(), part_bytes_, shard, kMaxRequestParts));
    }
    for (const PartSlices& slices : parts_[shard]) {
      BodyBuilder builder;
      RequestPart part;
      part.reply_bytes = sizeof(RowsInfo) + sizeof(SectionDescriptor);
      for (const Slice& slice : slices) {
        builder.Add(SectionKind::kKeys, slice.table, DType::kU64, slice.count, 1);
        part.reply_bytes += static_cast<uint32_t>(sizeof(SectionDescriptor)) +
                            slice.count * tables_[slice.table].width * static_cast<uint32_t>(sizeof(float));
      }
      part.body = builder.Allocate();
      for (size_t i = 0; i < slices.size(); ++i) {
        std::memcpy(builder.Section<Key>(i).data(), keys(slices[i].table).data() + slices[i].begin,
                    slices[i].count * sizeof(Key));
      }
      part.sections = builder.sections();
      requests[shard].push_back(std::move(part));
    }
  }
  return requests;
}

absl::Status StepPlan::ReadReplies(const ShardReplies& replies, std::span<float* const> weights) const {
  for (ShardId shard = 0; shard < parts_.size(); ++shard) {
    for (size_t part = 0; part < parts_[shard].size(); ++part) {
      CAPSTAN_RETURN_IF_ERROR(ReadReply(shard, part, replies[shard][part], weights));
    }
  }
  return absl::OkStatus();
}

absl::Status StepPlan::ReadReply(ShardId shard, size_t part, const BodyView& reply,
                                 std::span<float* const> weights) const {
  const PartSlices& slices = parts_[shard][part];
  size_t next = 0;
  for (const SectionView& section : reply.sections()) {
    if (section.kind() != SectionKind::kValues) continue;
    if (next == slices.size() || section.table() != slices[next].table ||
        section.descriptor.dtype != static_cast<uint8_t>(DType::kF32) ||
        section.descriptor.rows != slices[next].count ||
        section.descriptor.width != tables_[slices[next].table].width) {
      return Internal(fmt::format("shard {} answered with other rows than were asked for", shard));
    }
    const Slice& slice = slices[next++];
    const size_t width = tables_[slice.table].width;
    const float* values = section.As<float>().data();
    if (!tables_[slice.table].dense) {
      std::memcpy(weights[slice.table] + slice.begin * width, values, slice.count * width * sizeof(float));
      continue;
    }
    for (size_t i = 0; i < slice.count; ++i) {
      std::memcpy(weights[slice.table] + keys(slice.table)[slice.begin + i] * width, values + i * width,
                  width * sizeof(float));
    }
  }
  if (next != slices.size()) return Internal(fmt::format("shard {} left out rows that were asked for", shard));
  return absl::OkStatus();
}

ShardRequests StepPlan::EmptyPush(const PushInfo& info) const {
  ShardRequests requests(map_.shards());
  for (std::vector<RequestPart>& parts : requests) parts.push_back(InfoPart(info));
  return requests;
}

ShardRequests StepPlan::PushRequests(const PushInfo& info, std::span<const float* const> gradients) const {
  ShardRequests requests(parts_.size());
  for (size_t shard = 0; shard < parts_.size(); ++shard) {
    for (size_t p = 0; p < parts_[shard].size(); ++p) {
      const PartSlices& slices = parts_[shard][p];
      BodyBuilder builder;
      const size_t first = p == 0 ? 1 : 0;
      if (p == 0) builder.Add(SectionKind::kPushInfo, 0, DType::kBytes, 1, sizeof(PushInfo));
      for (const Slice& slice : slices) {
        builder.Add(SectionKind::kKeys, slice.table, DType::kU64, slice.count, 1);
        builder.Add(SectionKind::kValues, slice.table, DType::kF32, slice.count, tables_[slice.table].width);
      }
      RequestPart part;
      part.body = builder.Allocate();
      part.sections = builder.sections();
      if (p == 0) std::memcpy(builder.Section<std::byte>(0).data(), &info, sizeof info);
      for (size_t i = 0; i < slices.size(); ++i) {
        const Slice& slice = slices[i];
        const size_t width = tables_[slice.table].width;
        const Key* slice_keys = keys(slice.table).data() + slice.begin;
        std::memcpy(builder.Section<Key>(first + 2 * i).data(), slice_keys, slice.count * sizeof(Key));
        float* values = builder.Section<float>(first + 2 * i + 1).data();
        if (!tables_[slice.table].dense) {
          std::memcpy(values, gradients[slice.table] + slice.begin * width, slice.count * width * sizeof(float));
          continue;
        }
        for (size_t r = 0; r < slice.count; ++r) {
          std::memcpy(values + r * width, gradients[slice.table] + slice_keys[r] * width, width * sizeof(float));
        }
      }
      requests[shard].push_back(std::move(part));
    }
  }
  return requests;
}

}  // namespace capstan
