// How Capstan uses RocksDB's table files; inside storage/ only. Pinned, so that a file's form does not change
// with the defaults of a later RocksDB.
#pragma once

#include <string>
#include <string_view>

#include <rocksdb/options.h>
#include <rocksdb/status.h>

#include "common/status.h"

namespace capstan {

inline constexpr size_t kTableBlockBytes = size_t{32} << 10;

rocksdb::Options TableFileOptions();
// kDataLoss for what the bytes are to blame for, kUnavailable for the disk.
absl::Status FromRocksDb(std::string_view doing, const std::string& path, const rocksdb::Status& status);

}  // namespace capstan
