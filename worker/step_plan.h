// The keys of one step of one rank: made unique, cut by shard and into parts. From it come the pull, the place of every
// pulled row, and the push. One instance is used again and again; it keeps its memory. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/partition_map.h"
#include "worker/rank_driver.h"

namespace capstan {

struct PlannedTable {
  uint32_t width = 0;
  bool dense = false;
  uint64_t blocks = 0;   // dense: rows of the table
  size_t like = 0;       // the first table whose occurrences are always the same; itself if none
};

// One part with nothing but `info`.
RequestPart InfoPart(const PushInfo& info);

class StepPlan {
 public:
  // part_bytes: about the size of a part, keys and values counted; one row always fits.
  StepPlan(std::vector<PlannedTable> tables, ShardMap map, size_t part_bytes);

  // occurrences[t]: the keys of all lookups of sparse table t, in (micro-batch, record, feature, position) order.
  void Build(std::span<const std::vector<uint64_t>> occurrences);

  // Unique keys of table t, sorted by (shard, key); the rows of weights and gradients are in this order.
  std::span<const Key> keys(size_t table) const { return lists_[tables_[table].like].keys; }
  // For each occurrence its place in keys(t). Sparse tables.
  std::span<const uint32_t> index(size_t table) const { return lists_[tables_[table].like].index; }

  // kInvalidArgument: the step has more keys for one shard than a request may carry.
  absl::StatusOr<ShardRequests> PullRequests() const;
  // Copies the rows of the replies to weights[t]: sparse [keys, width], dense [blocks × width] in block order.
  // kInternal: a reply does not have the shape that was asked for.
  absl::Status ReadReplies(const ShardReplies& replies, std::span<float* const> weights) const;
  // The same for one part, as it comes in. shard and part are of this plan.
  absl::Status ReadReply(ShardId shard, size_t part, const BodyView& reply, std::span<float* const> weights) const;
  // A push that adds nothing, to every shard.
  ShardRequests EmptyPush(const PushInfo& info) const;
  // gradients[t] in the same shapes.
  ShardRequests PushRequests(const PushInfo& info, std::span<const float* const> gradients) const;

 private:
  struct KeyList {                       // of a table, or of several that look up the same keys
    std::vector<Key> keys;
    std::vector<uint32_t> index;
    std::vector<size_t> shard_begin;     // [shards + 1]
  };
  struct Slice {
    TableId table;
    size_t begin;                        // in keys(table)
    uint32_t count;
  };
  using PartSlices = std::vector<Slice>;
  struct Slot {                          // of the hash table that finds repeats
    Key key;
    uint32_t place;
    uint32_t stamp;
  };

  void BuildList(const std::vector<uint64_t>& occurrences, KeyList* list);
  void SortByShard(KeyList* list);
  void CutParts();

  const std::vector<PlannedTable> tables_;
  const ShardMap map_;
  const size_t part_bytes_;
  std::vector<KeyList> lists_;                       // by table; unused where `like` is another
  std::vector<std::vector<PartSlices>> parts_;       // [shard][part]
  std::vector<Slot> slots_;
  uint32_t stamp_ = 0;
  std::vector<std::pair<uint64_t, uint32_t>> order_; // scratch: (key, place) of one shard
  std::vector<ShardId> shard_of_;                    // scratch
  std::vector<uint32_t> moved_;                      // scratch
};

}  // namespace capstan
