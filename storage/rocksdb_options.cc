#include "storage/rocksdb_options.h"

#include <memory>

#include <fmt/core.h>
#include <rocksdb/cache.h>
#include <rocksdb/table.h>

namespace capstan {
namespace {

// Of all files that this process reads: Get alone fills it.
constexpr size_t kBlockCacheBytes = size_t{16} << 20;
// The disk begins to write while a file grows, so that the sync at its end is short.
constexpr uint64_t kWriteBehindBytes = uint64_t{1} << 20;

}  // namespace

rocksdb::Options TableFileOptions() {
  static const auto* cache = new std::shared_ptr<rocksdb::Cache>(rocksdb::NewLRUCache(kBlockCacheBytes));
  rocksdb::BlockBasedTableOptions table;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  table.block_size = kTableBlockBytes;
  table.block_cache = *cache;
  table.filter_policy = nullptr;
  rocksdb::Options options;
  options.compression = rocksdb::kNoCompression;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.bytes_per_sync = kWriteBehindBytes;
  options.db_host_id = "";  // a checkpoint does not tell the machine's name
  return options;
}

absl::Status FromRocksDb(std::string_view doing, const std::string& path, const rocksdb::Status& status) {
  const std::string text = fmt::format("{} '{}': {}", doing, path, status.ToString());
  if (status.IsCorruption() || status.IsInvalidArgument() || status.IsNotSupported() || status.IsNotFound() ||
      status.IsPathNotFound()) {
    return DataLoss(text);
  }
  return Unavailable(text);
}

}  // namespace capstan
