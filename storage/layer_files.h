// One layer of one shard, opened to be read; and several of them merged. Inside storage/ only. What is read
// is checked against the layer's record: order, lengths, and per partition the counts and the digest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_format.h"

namespace rocksdb {
class Iterator;
class SstFileReader;
}  // namespace rocksdb

namespace capstan {

// Thread-safe. The record outlives it.
class LayerFiles {
 public:
  struct File {
    std::string path;
    std::unique_ptr<rocksdb::SstFileReader> reader;
    StoredKey first;  // key
  };
  // folder: of the checkpoint, to which the files' names are relative.
  LayerFiles(const StoredLayer& record, const std::string& folder);
  ~LayerFiles();

  const StoredLayer& record() const { return record_; }
  // Opens the files at the first call, all of them: at most one per 256 MiB.
  absl::StatusOr<const std::vector<File>*> Files() const;

 private:
  absl::Status OpenAll(std::vector<File>* files) const;

  const StoredLayer& record_;
  const std::string folder_;
  mutable std::mutex mutex_;
  mutable std::vector<File> files_;  // opened all or none
};

// (table, partition): where a range of partitions begins or ends. Above every table: {65536, 0}.
using RowPlace = std::pair<uint32_t, uint32_t>;
inline RowPlace PlaceOf(const StoredKey& key) { return {key.table, key.partition}; }
inline RowPlace PlaceOf(const LayerPartition& part) { return {part.table(), part.partition()}; }
inline RowPlace PlaceOf(const PartitionRows& rows) { return {rows.table(), rows.partition()}; }

// Walks one layer from a key on. One thread.
class LayerCursor {
 public:
  enum class For { kScan, kPoint };
  explicit LayerCursor(const LayerFiles& layer, For use = For::kScan);
  ~LayerCursor();
  LayerCursor(LayerCursor&&) noexcept;

  absl::Status Seek(const StoredKey& first);  // to the first record at or after it
  absl::Status Next();                        // valid() before
  bool valid() const { return valid_; }
  const StoredKey& key() const { return key_; }
  std::string_view value() const;                                    // empty: a deletion. Until the next call
  const std::string& path() const { return (*files_)[file_].path; }  // of the file the record is in
  const LayerFiles& layer() const { return layer_; }

 private:
  absl::Status OpenFile(size_t file);
  absl::Status Arrive();  // at whatever record the iterator has, of this file or a later one

  const LayerFiles& layer_;
  const For use_;
  const std::vector<LayerFiles::File>* files_ = nullptr;
  size_t file_ = 0;
  std::unique_ptr<rocksdb::Iterator> iterator_;
  bool valid_ = false;
  bool ordered_ = false;  // key_ is that of the record before
  StoredKey key_;
};

// The live rows of partitions `begin` to before `end` in key order, the newest layer deciding. One thread.
class MergedRows {
 public:
  // Oldest first. partitions: of the job; 0: not known, keys are not checked against it.
  MergedRows(const std::vector<const LayerFiles*>& layers, uint32_t partitions);
  ~MergedRows();

  absl::Status Seek(RowPlace begin, RowPlace end);
  // False: there are no more, and all that was read was as the records say. key() and value() hold until the
  // next call.
  absl::StatusOr<bool> Next();
  const StoredKey& key() const { return key_; }
  std::string_view value() const { return value_; }

 private:
  struct Input;
  absl::Status Account(Input* input) const;

  const uint32_t partitions_;
  std::vector<Input> inputs_;
  RowPlace end_;
  StoredKey key_;
  std::string_view value_;
};

}  // namespace capstan
