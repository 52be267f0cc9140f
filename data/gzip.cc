#include "data/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include <fmt/core.h>

namespace capstan {
namespace {

constexpr size_t kPackedChunk = size_t{1} << 18;
constexpr size_t kUnpackedChunk = size_t{1} << 20;

class Inflater {
 public:
  Inflater() { ok_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }  // 15: any window; 16: gzip, not zlib
  ~Inflater() {
    if (ok_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  bool ok() const { return ok_; }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_ = {};
  bool ok_ = false;
};

// Decompresses one chunk of packed bytes. `between` is true while no member is open.
class GzipUnpacker {
 public:
  GzipUnpacker(const std::string& path, uint64_t max_bytes, std::string* out)
      : path_(path), max_bytes_(max_bytes), out_(out) {}

  absl::Status Feed(unsigned char* data, size_t size, uint64_t offset) {
    if (!inflater_.ok()) return ResourceExhausted(fmt::format("unpacking '{}': no memory for zlib", path_));
    z_stream& z = inflater_.stream();
    z.next_in = data;
    z.avail_in = static_cast<uInt>(size);
    while (z.avail_in > 0) {
      const uint64_t at = offset + (size - z.avail_in);
      if (between_) {
        if (members_ > 0 && *z.next_in == 0) {
          padding_ = true;
          ++z.next_in;
          --z.avail_in;
          continue;
        }
        if (members_ > 0 && (padding_ || *z.next_in != 0x1f)) {
          return DataLoss(
              fmt::format("unpacking '{}': byte {} after the end of the gzip data is not gzip; the file "
                          "was damaged or joined with something else",
                          path_, at));
        }
        between_ = false;
      }
      CAPSTAN_RETURN_IF_ERROR(Step(z, at));
    }
    return absl::OkStatus();
  }

  absl::Status Finish(uint64_t size) {
    out_->resize(used_);
    if (between_ && members_ > 0) return absl::OkStatus();
    return DataLoss(
        fmt::format("unpacking '{}': the gzip data ends too early, at byte {}, after {} unpacked bytes; "
                    "copy the file again",
                    path_, size, used_));
  }

 private:
  absl::Status Step(z_stream& z, uint64_t at) {
    if (used_ == out_->size()) {
      if (used_ >= max_bytes_) {
        return ResourceExhausted(
            fmt::format("unpacking '{}': more than {} bytes come out, and gzip files are kept in "
                        "memory; unpack it on disk (gzip -dk) or cut it into several files",
                        path_, max_bytes_));
      }
      // One byte past the limit, so that exactly max_bytes still ends well.
      out_->resize(std::min<uint64_t>(max_bytes_ + 1, used_ + std::max<uint64_t>(kUnpackedChunk, used_ / 2)));
    }
    const size_t room = std::min<size_t>(out_->size() - used_, size_t{1} << 30);
    z.next_out = reinterpret_cast<unsigned char*>(out_->data() + used_);
    z.avail_out = static_cast<uInt>(room);
    const int answer = inflate(&z, Z_NO_FLUSH);
    used_ += room - z.avail_out;
    if (used_ > max_bytes_) {
      used_ = out_->size();
      return Step(z, at);
    }
    if (answer == Z_STREAM_END) {
      between_ = true;
      ++members_;
      inflateReset(&z);
      return absl::OkStatus();
    }
    if (answer == Z_OK || answer == Z_BUF_ERROR) return absl::OkStatus();
    return DataLoss(fmt::format("unpacking '{}': damaged gzip data near byte {} ({}); copy the file again",
                                path_, at, z.msg != nullptr ? z.msg : "zlib error"));
  }

  const std::string& path_;
  const uint64_t max_bytes_;
  std::string* out_;
  Inflater inflater_;
  uint64_t used_ = 0;
  uint64_t members_ = 0;
  bool between_ = true;
  bool padding_ = false;
};

}  // namespace

absl::Status UnpackGzip(const RandomAccessFile& file, const std::string& path, uint64_t max_bytes,
                        std::string* out) {
  out->clear();
  GzipUnpacker unpacker(path, max_bytes, out);
  std::vector<unsigned char> packed(std::min<uint64_t>(kPackedChunk, file.size()));
  for (uint64_t offset = 0; offset < file.size();) {
    const size_t size = std::min<uint64_t>(packed.size(), file.size() - offset);
    CAPSTAN_RETURN_IF_ERROR(file.Read(offset, packed.data(), size));
    CAPSTAN_RETURN_IF_ERROR(unpacker.Feed(packed.data(), size, offset));
    offset += size;
  }
  return unpacker.Finish(file.size());
}

}  // namespace capstan
