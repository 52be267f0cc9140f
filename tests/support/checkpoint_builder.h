// Complete checkpoints for tests, made of maps: tables, layers, shards in, a folder out.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/types.h"
#include "proto/checkpoint.pb.h"

namespace capstan::testing {

// A folder of its own under the system's temporary one; gone with everything in it at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct BuiltRow {
  std::vector<float> values;  // weights, then slots
  uint32_t last_step = 0;
  uint32_t updates = 0;
  bool operator==(const BuiltRow&) const = default;
};
using BuiltRows = std::map<Key, BuiltRow>;

struct BuiltTable {
  TableId id = 0;
  std::string name;
  uint32_t width = 1;
  uint32_t slots = 0;  // floats of a row after the weights: 0 sgd, width adagrad, 2 × width adam
};

struct BuiltLayer {
  std::map<TableId, BuiltRows> puts;
  std::map<TableId, std::set<Key>> deletes;  // not in the first layer
};

struct CheckpointSpec {
  std::vector<BuiltTable> tables = {{0, "wide", 1, 1}, {1, "deep", 4, 8}};
  std::vector<BuiltLayer> layers;  // oldest first, at least one; ids first_id, first_id + 1, …
  uint64_t first_id = 1;
  uint32_t partitions = 16;
  uint32_t shards = 2;
  uint64_t max_file_bytes = uint64_t{256} << 20;
  bool model_sha256 = false;
  // Change what is written, before the record is hashed (may be empty).
  std::function<void(uint32_t shard, ShardRecord*)> edit_shard;
  std::function<void(CheckpointManifest*)> edit_manifest;
};

// Two tables, `layers` layers with deletions, `rows` rows a table in the first: the same for the same
// arguments.
CheckpointSpec SomeCheckpoint(int layers, int rows, uint32_t shards);

// Makes `root`/C000003 (the id of the last layer) with all its files and returns its path. Fails the test on
// errors.
std::string BuildCheckpoint(const CheckpointSpec& spec, const std::string& root);

// What a reader must find: the layers applied in order.
std::map<TableId, BuiltRows> LiveRows(const CheckpointSpec& spec);

// Without any sync: a file that replaces another one by truncation would wait for the disk.
void OverwriteFile(const std::string& path, const std::string& contents);

// Writes a serialized record to `folder`/`name`, framed, and gives its entry for the manifest.
StoredFile WriteRecordFile(const std::string& folder, const std::string& name, const std::string& serialized);

}  // namespace capstan::testing
