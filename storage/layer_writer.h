// Writes one layer of one shard: RocksDB table files and what our records say about them. One thread.
// For the checkpoint writer's process and for tools; never inside a server (Debian's RocksDB has live asserts).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/status.h"
#include "storage/checkpoint_format.h"
#include "storage/checkpoint_records.h"

namespace capstan {

struct LayerWriterOptions {
  std::string folder;                              // exists; ROOT/C000007.tmp/shard-0003
  std::string name_prefix;                         // of StoredFile::name: "shard-0003/"
  uint64_t checkpoint = 0;                         // files are named C000007-0000.sst, …
  uint64_t max_file_bytes = uint64_t{256} << 20;
  bool sync = true;                                // files and folder reach the disk before Finish returns
};

// After an error the files are of no use; the caller removes the folder.
class LayerWriter {
 public:
  static absl::StatusOr<std::unique_ptr<LayerWriter>> Create(const LayerWriterOptions& options);
  ~LayerWriter();

  // Keys strictly increasing over all calls, else kInvalidArgument. value: as stored, StoredValueBytes(floats).
  // A full disk or another failure: kUnavailable with the path.
  absl::Status Put(const StoredKey& key, std::span<const std::byte> value);
  // The same, quicker, of a record: the key (u64) and behind it the value.
  absl::Status PutRecord(TableId table, PartitionId partition, std::span<const std::byte> record);
  absl::Status Delete(const StoredKey& key);
  // Closes and syncs the files, which were hashed as they were written. A layer without a record has no file. Once.
  absl::StatusOr<StoredLayer> Finish();
  uint64_t rows() const;   // puts so far

 private:
  LayerWriter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
