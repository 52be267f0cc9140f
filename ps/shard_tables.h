// The tables of one shard behind the frames: answers the keys of a pull, applies the gradients of pushes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/partition_map.h"
#include "common/status.h"
#include "proto/section.h"
#include "ps/optimizer.h"
#include "ps/push_record.h"

namespace capstan {

class EffectiveJob;
class Table;
class Restore;
class RowSource;

class ShardTables {
 public:
  // Makes the tables of the job and the rows of the dense ones this shard owns.
  static absl::StatusOr<ShardTables> Make(const EffectiveJob& job, const ShardMap& map, ShardId shard);
  ShardTables(ShardTables&&) noexcept;
  ShardTables& operator=(ShardTables&&) noexcept;
  ~ShardTables();

  // Known tables, strictly increasing keys that this shard owns, a reply that fits a frame. A peer's message: any
  // failure is kInvalidArgument, or kAborted where the sender has another shard map.
  absl::Status CheckPull(const BodyView& body) const;
  absl::Status CheckPushPart(const BodyView& body) const;
  // Keys of a table must go on increasing from part to part; a push without an example has none.
  absl::Status CheckPush(const PushRecord& push) const;

  // The body of the reply: `info` (part 0 only, else nullptr), then the values of every keys section.
  Buffer Answer(const BodyView& pull, const RowsInfo* info, uint16_t* sections) const;

  // One optimizer update per key: the gradients of the pushes summed in the given order, divided by `divisor` where
  // the table wants means. `filter`, where there is one, says which keys are updated. Returns the number of row
  // contributions left out as non-finite.
  using KeyFilter = std::function<bool(Key key)>;
  uint64_t ApplyStep(std::span<const PushRecord* const> pushes, double divisor, const UpdateContext& context,
                     const KeyFilter& filter = nullptr);

  // Takes what the order names and this shard owns from a checkpoint. alive (may be empty) is called now and then.
  absl::Status Import(const Restore& order, const RowSource& source, const std::function<void()>& alive);

  // The tables know from now on which rows change, and can be swept (snapshot_sweep.h). Before the first update.
  void Track(bool increments);
  std::vector<Table*> tables();  // by wire id

  const Table& table(TableId id) const { return *tables_[id]; }
  uint64_t rows() const;
  uint64_t bytes() const;

 private:
  ShardTables();
  absl::Status CheckKeys(const SectionView& section) const;

  ShardMap map_;
  ShardId shard_ = 0;
  std::vector<std::unique_ptr<Table>> tables_;  // by wire id
};

}  // namespace capstan
