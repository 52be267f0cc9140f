#include "storage/table_file_floor.h"

#include <fcntl.h>
#include <unistd.h>

#include <rocksdb/env.h>
#include <rocksdb/sst_file_writer.h>

#include "storage/checkpoint_format.h"
#include "storage/rocksdb_options.h"

namespace capstan {

absl::Status WriteTableFile(const std::string& path, std::span<const std::byte> rows, size_t count, size_t value_bytes,
                            bool sync) {
  const rocksdb::Options options = TableFileOptions();
  rocksdb::SstFileWriter writer(rocksdb::EnvOptions(options), options);
  if (const rocksdb::Status status = writer.Open(path); !status.ok()) return FromRocksDb("creating", path, status);
  const char* at = reinterpret_cast<const char*>(rows.data());
  for (size_t i = 0; i < count; ++i, at += kStoredKeyBytes + value_bytes) {
    const rocksdb::Status status =
        writer.Put(rocksdb::Slice(at, kStoredKeyBytes), rocksdb::Slice(at + kStoredKeyBytes, value_bytes));
    if (!status.ok()) return FromRocksDb("writing", path, status);
  }
  if (const rocksdb::Status status = writer.Finish(); !status.ok()) return FromRocksDb("writing", path, status);
  if (!sync) return absl::OkStatus();
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = file >= 0 && fsync(file) == 0;
  if (file >= 0) close(file);
  return synced ? absl::OkStatus() : Unavailable("'" + path + "' cannot be synced");
}

}  // namespace capstan
