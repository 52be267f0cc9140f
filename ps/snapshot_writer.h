// What a checkpoint writer does with a shard's cut: gathers and sorts the partitions, writes a layer, puts the parent's
// layers below it, and writes the shard's record. One thread. For the writer's process: RocksDB may abort.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/sha256.h"
#include "common/status.h"
#include "ps/chain_compactor.h"
#include "ps/partition_buffer.h"
#include "ps/snapshot_ring.h"
#include "ps/snapshot_sink.h"
#include "storage/layer_writer.h"

namespace capstan {

struct SnapshotWriterOptions {
  bool sync = true;
  uint64_t reserve_bytes = uint64_t{64} << 20;  // stay free besides what the checkpoint needs
  uint32_t compact_layers = 8;                  // 0: never
};

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const SnapshotWriterOptions& options) : options_(options), compactor_(options.sync) {}

  // Makes order.folder; the folder it lies in must exist (it is removed when the checkpoint is given up).
  // kUnavailable: too little space, in numbers; nothing was written.
  absl::Status Begin(const SnapshotOrder& order);
  // `read` copies the next bytes of the chunk's payload: the rows, then the deleted keys.
  absl::Status Add(const RingChunk& chunk, const std::function<void(void* out, size_t bytes)>& read);
  // The record without layers and hashes. The result is OK's: id, size and hash of shard.pb.
  absl::StatusOr<SnapshotResult> Finish(ShardRecord record);
  // After an error of the above, or to give the snapshot up: removes its folder.
  void Drop();
  void AskToStop() { compactor_.AskToStop(); }
  void CancelCompaction() { compactor_.Cancel(); }

 private:
  using Place = std::pair<TableId, PartitionId>;
  struct Expected {
    uint64_t rows = 0;
    ContentDigest digest;
    Sha256Digest sha256 = {};
  };

  absl::Status Enter(const RingChunk& chunk);
  absl::Status WritePartition(const RingChunk& chunk);
  void Yield();
  absl::Status CheckSpace();
  absl::Status CheckLayer(const StoredLayer& layer) const;
  absl::Status AddParentLayers(ShardRecord* record);
  absl::Status LinkFiles(const StoredLayer& layer, const std::string& folder, ShardRecord* record);
  absl::Status AddHashes(ShardRecord* record) const;
  absl::StatusOr<SnapshotResult> WriteRecord(const ShardRecord& record);

  const SnapshotWriterOptions options_;
  ChainCompactor compactor_;
  SnapshotOrder order_;
  bool folder_made_ = false;
  std::unique_ptr<LayerWriter> layer_;
  PartitionBuffer buffer_;
  bool in_partition_ = false;
  Place place_ = {0, 0};
  bool any_place_ = false;
  std::map<Place, Expected> expected_;  // what the shard said, by partition with rows
  const SteadyClock clock_;
  uint64_t since_yield_ = 0;            // rows
  Time next_yield_{};                   // not before
  uint64_t written_ = 0;                // bytes of rows
  uint64_t checked_at_ = 0;             // written_ when the space was last looked at
};

}  // namespace capstan
