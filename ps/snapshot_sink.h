// Where the rows of a shard's cut go, and where a restored shard's rows come from. The shard's thread calls; nothing
// blocks. The real sink is a writer process behind shared memory (ps/writer_process.h), the simulator has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/types.h"
#include "storage/checkpoint_format.h"

namespace capstan {

class ShardRecord;
struct StoredRow;

struct SnapshotOrder {
  uint64_t id = 0;
  ShardId shard = 0;
  std::string folder;         // ROOT/C000007.tmp/shard-0003; the sink makes it
  std::string parent_folder;  // ROOT/C000006/shard-0003 of an incremental one: its layers lie below ours. Else empty
  bool model_sha256 = false;  // full ones: hash the model's partitions
  struct Table {
    TableId id = 0;
    uint32_t floats = 0;      // of a row
  };
  std::vector<Table> tables;
  uint64_t expected_bytes = 0;  // about, for the free-space guard
};

// Rows of one table and partition, in any order; a partition may come in several chunks, the last one says so.
// Partitions of a table come in rising order, tables by rising id.
struct SnapshotChunk {
  TableId table = 0;
  PartitionId partition = 0;
  uint32_t floats = 0;
  std::span<const std::byte> rows;  // records: key u64, then the value as stored (checkpoint_format.h)
  std::span<const Key> deleted;     // a key that is among the rows of its partition too is not deleted
  bool last = false;                // of the partition
  uint64_t partition_rows = 0;      // with `last`: rows of this partition in this cut …
  ContentDigest digest;             // … and their digest, as the shard saw them
};

struct SnapshotResult {
  uint64_t id = 0;
  absl::Status status;          // not OK: the part is of no use, the folder may be half there
  uint64_t record_bytes = 0;    // of shard.pb
  std::string record_xxh3;      // 16 bytes
};

// How much of the machine the sink may take beside training. Levels of one scale: a higher one is faster.
enum class SinkPace : uint32_t {
  kIdle = 0,     // what is left over
  kLow = 1,      // a small share, also where others want all of it
  kNormal = 2,   // its full share: training waits for it, or soon will
};
inline constexpr size_t kSinkPaces = 3;

class SnapshotSink {
 public:
  virtual ~SnapshotSink() = default;
  virtual void SetPace(SinkPace /*pace*/) {}  // at any time; a wish
  // One at a time: Begin, Offer …, Finish, then Poll until it has a result; or Abort at any time.
  virtual void Begin(const SnapshotOrder& order) = 0;
  // Takes the whole chunk (copying it) or nothing: false, there is no room now.
  virtual bool Offer(const SnapshotChunk& chunk) = 0;
  static constexpr size_t kMaxChunkBytes = size_t{512} << 10;  // rows and deleted keys of one chunk
  // record: everything but the layers and their hashes, which the sink fills in.
  virtual bool Finish(const ShardRecord& record) = 0;  // false: no room now
  virtual void Abort() = 0;
  // A result, also of a failure before Finish (a full disk, a writer that died): the shard then sends no more.
  virtual std::optional<SnapshotResult> Poll() = 0;
};

// A checkpoint as a shard reads it at the start of a job.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual std::vector<const ShardRecord*> records() const = 0;
  virtual absl::Status ForEach(TableId table, PartitionId first, PartitionId last,
                               const std::function<absl::Status(const StoredRow& row)>& visit) const = 0;
};
using OpenRowSource = std::function<absl::StatusOr<std::unique_ptr<RowSource>>(const std::string& folder)>;

}  // namespace capstan
