// Whole-file gzip decompression (RFC 1952), several members in a row included.
#pragma once

#include <cstdint>
#include <string>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

// Replaces *out by the decompressed contents of `file`; `path` is for messages only. Zero bytes after the
// last member are padding and accepted. kDataLoss: truncated, corrupt, or something else after the last
// member. kResourceExhausted: more than max_bytes would come out.
absl::Status UnpackGzip(const RandomAccessFile& file, const std::string& path, uint64_t max_bytes,
                        std::string* out);

}  // namespace capstan
