// One input file as bytes that can be read at any place, whether it is plain or gzip on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/file_system.h"
#include "common/status.h"

namespace capstan {

// Thread-safe: any number of threads may read at once. Plain files stay on disk; a gzip file is decompressed
// once, at Open, and kept in memory for as long as this object lives.
class InputFile {
 public:
  static constexpr uint64_t kMaxUnpackedBytes = uint64_t{8} << 30;

  // Fails with kNotFound (no such file), kInvalidArgument (a format we cannot read, told by the first bytes),
  // kDataLoss (broken gzip: file and byte are named), kResourceExhausted (more than `max_unpacked` bytes).
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(FileSystem& fs, const std::string& path,
                                                         uint64_t max_unpacked = kMaxUnpackedBytes);

  const std::string& path() const { return path_; }
  uint64_t size() const { return in_memory_ ? unpacked_.size() : disk_bytes_; }  // bytes of text
  uint64_t disk_bytes() const { return disk_bytes_; }
  // XXH3 over the file's size on disk and its first and last 64 KiB: cheap, and enough to notice that a file
  // was replaced or appended to, which is all it is for.
  uint64_t fingerprint() const { return fingerprint_; }
  bool in_memory() const { return in_memory_; }
  uint64_t first_byte() const { return first_byte_; }  // 3 after a UTF-8 byte order mark, else 0

  // The bytes [offset, offset + size), cut off at the end of the file: a view of memory that this object
  // owns, or of *scratch, which is then overwritten. Valid until either changes.
  absl::StatusOr<std::string_view> Read(uint64_t offset, uint64_t size, std::string* scratch) const;

 private:
  InputFile() = default;

  absl::Status Fingerprint();
  absl::Status CheckFirstBytes();

  std::string path_;
  std::unique_ptr<RandomAccessFile> file_;
  uint64_t disk_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  uint64_t first_byte_ = 0;
  bool in_memory_ = false;
  std::string unpacked_;
};

}  // namespace capstan
