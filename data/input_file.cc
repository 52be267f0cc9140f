#include "data/input_file.h"

#include <algorithm>
#include <vector>

#include <fmt/core.h>

#include "common/hash.h"
#include "data/gzip.h"

namespace capstan {
namespace {

constexpr uint64_t kFingerprintBytes = 64 << 10;

struct Magic {
  std::string_view bytes;
  const char* advice;
};
// First bytes of files that people hand over by mistake, and what to do about each.
constexpr Magic kUnreadable[] = {
    {"\x28\xb5\x2f\xfd", "is zstd data; unpack it (zstd -d) or use gzip"},
    {"PK\x03\x04", "is a zip archive or a spreadsheet; unpack it, or export it as CSV"},
    {"BZh", "is bzip2 data; unpack it (bunzip2) or use gzip"},
    {"\xfd"
     "7zXZ",
     "is xz data; unpack it (unxz) or use gzip"},
    {"PAR1", "is a Parquet file; export it as CSV"},
    {"\xff\xfe", "is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", "is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"},
};
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(FileSystem& fs, const std::string& path,
                                                           uint64_t max_unpacked) {
  std::unique_ptr<InputFile> input(new InputFile);
  input->path_ = path;
  CAPSTAN_ASSIGN_OR_RETURN(input->file_, fs.Open(path));
  input->disk_bytes_ = input->file_->size();
  CAPSTAN_RETURN_IF_ERROR(input->Fingerprint());
  std::string scratch;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string_view head, input->Read(0, kGzipMagic.size(), &scratch));
  const bool is_gzip = head == kGzipMagic;
  if (!is_gzip && path.ends_with(".gz") && input->disk_bytes_ > 0) {
    return DataLoss(
        fmt::format("'{}' ends in .gz but is not gzip data (byte 0); rename it or copy it again", path));
  }
  if (is_gzip) {
    CAPSTAN_RETURN_IF_ERROR(UnpackGzip(*input->file_, path, max_unpacked, &input->unpacked_));
    input->in_memory_ = true;
    input->file_.reset();
  }
  CAPSTAN_RETURN_IF_ERROR(input->CheckFirstBytes());
  return input;
}

absl::Status InputFile::Fingerprint() {
  const uint64_t part = std::min(kFingerprintBytes, disk_bytes_);
  std::string bytes(2 * part, '\0');
  CAPSTAN_RETURN_IF_ERROR(file_->Read(0, bytes.data(), part));
  CAPSTAN_RETURN_IF_ERROR(file_->Read(disk_bytes_ - part, bytes.data() + part, part));
  fingerprint_ = HashBytes(bytes, Mix64(disk_bytes_));
  return absl::OkStatus();
}

absl::Status InputFile::CheckFirstBytes() {
  std::string scratch;
  CAPSTAN_ASSIGN_OR_RETURN(const std::string_view head, Read(0, 8, &scratch));
  for (const Magic& magic : kUnreadable) {
    if (head.starts_with(magic.bytes)) return InvalidArgument(fmt::format("'{}' {}", path_, magic.advice));
  }
  if (head.starts_with(kByteOrderMark)) first_byte_ = kByteOrderMark.size();
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> InputFile::Read(uint64_t offset, uint64_t size, std::string* scratch) const {
  offset = std::min(offset, this->size());
  size = std::min(size, this->size() - offset);
  if (in_memory_) return std::string_view(unpacked_).substr(offset, size);
  scratch->resize(size);
  CAPSTAN_RETURN_IF_ERROR(file_->Read(offset, scratch->data(), size));
  return std::string_view(*scratch);
}

}  // namespace capstan
