#include "common/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace capstan {
namespace {

absl::Status FromErrno(std::string_view doing, const std::string& path, int error) {
  const std::string text = fmt::format("{} '{}': {}", doing, path, std::strerror(error));
  return error == ENOENT ? NotFound(text) : Unavailable(text);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {
    buffer_.reserve(kBufferBytes);
  }
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(const void* data, size_t size) override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    if (buffer_.size() + size > kBufferBytes) CAPSTAN_RETURN_IF_ERROR(Flush());
    if (size >= kBufferBytes) return WriteAll(static_cast<const char*>(data), size);
    buffer_.append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    CAPSTAN_RETURN_IF_ERROR(Flush());
    // Never tried again after a failure: the kernel may have dropped the dirty pages.
    if (fdatasync(fd_) != 0) failure_ = FromErrno("syncing", path_, errno);
    return failure_;
  }

  absl::Status Close() override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    CAPSTAN_RETURN_IF_ERROR(Flush());
    if (close(std::exchange(fd_, -1)) != 0) failure_ = FromErrno("closing", path_, errno);
    return failure_;
  }

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 18;

  absl::Status Flush() {
    const absl::Status status = WriteAll(buffer_.data(), buffer_.size());
    buffer_.clear();
    return status;
  }

  absl::Status WriteAll(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t written = write(fd_, data, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failure_ = FromErrno("writing", path_, errno);
      data += written;
      size -= static_cast<size_t>(written);
    }
    return absl::OkStatus();
  }

  std::string path_;
  int fd_;
  std::string buffer_;
  absl::Status failure_;  // the first one
};

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, int fd, uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  ~PosixRandomAccessFile() override { close(fd_); }
  uint64_t size() const override { return size_; }

  absl::Status Read(uint64_t offset, void* out, size_t size) const override {
    if (offset > size_ || size > size_ - offset) {
      return DataLoss(fmt::format("reading '{}': it ends at byte {}", path_, size_));
    }
    char* to = static_cast<char*>(out);
    while (size > 0) {
      const ssize_t got = pread(fd_, to, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FromErrno("reading", path_, errno);
      if (got == 0) return DataLoss(fmt::format("reading '{}': it ends at byte {}", path_, offset));
      to += got;
      offset += static_cast<uint64_t>(got);
      size -= static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

 private:
  std::string path_;
  int fd_;
  uint64_t size_;
};

class Posix final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return FromErrno("creating", path, errno);
    return std::make_unique<PosixWritableFile>(path, fd);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // or a pipe would make it wait
    if (fd < 0) return FromErrno("opening", path, errno);
    struct stat info = {};
    const int error = fstat(fd, &info) != 0 ? errno : S_ISREG(info.st_mode) ? 0 : EISDIR;
    if (error != 0) {
      close(fd);
      return error == EISDIR ? InvalidArgument(fmt::format("opening '{}': not an ordinary file", path))
                             : FromErrno("opening", path, error);
    }
    return std::make_unique<PosixRandomAccessFile>(path, fd, static_cast<uint64_t>(info.st_size));
  }

  absl::StatusOr<bool> Exists(const std::string& path) override {
    struct stat info = {};
    if (stat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return FromErrno("looking for", path, errno);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    DIR* dir = opendir(folder.c_str());
    if (dir == nullptr) return FromErrno("listing", folder, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(dir)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;
    closedir(dir);
    if (error != 0) return FromErrno("listing", folder, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeFolders(const std::string& path) override {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (!part.empty() && mkdir(part.c_str(), 0755) != 0) {
        const int error = errno;
        struct stat info = {};
        const bool is_folder = error == EEXIST && stat(part.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
        if (!is_folder) return FromErrno("making the folder", part, error);
      }
      if (end == std::string::npos) return absl::OkStatus();
    }
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : FromErrno("renaming to " + to, from, errno);
  }

  absl::Status Remove(const std::string& path) override {
    return remove(path.c_str()) == 0 ? absl::OkStatus() : FromErrno("removing", path, errno);
  }

  absl::Status SyncFolder(const std::string& path) override {
    const int fd = open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FromErrno("opening the folder", path, errno);
    const int error = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return error == 0 ? absl::OkStatus() : FromErrno("syncing the folder", path, error);
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0) return FromErrno("looking at", path, errno);
    FileInfo result;
    result.kind = S_ISREG(info.st_mode)   ? FileInfo::Kind::kFile
                  : S_ISDIR(info.st_mode) ? FileInfo::Kind::kFolder
                  : S_ISLNK(info.st_mode) ? FileInfo::Kind::kLink
                                          : FileInfo::Kind::kOther;
    if (result.kind == FileInfo::Kind::kFile) result.bytes = static_cast<uint64_t>(info.st_size);
    return result;
  }

  absl::Status HardLink(const std::string& from, const std::string& to) override {
    return link(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : FromErrno("linking to " + to, from, errno);
  }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs info = {};
    if (statvfs(path.c_str(), &info) != 0) return FromErrno("asking for the free space of", path, errno);
    return uint64_t{info.f_bavail} * info.f_frsize;
  }
};

absl::Status WriteAndSync(FileSystem& fs, const std::string& path, std::string_view contents) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs.Create(path));
  CAPSTAN_RETURN_IF_ERROR(file->Append(contents.data(), contents.size()));
  CAPSTAN_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

// A folder inside a folder of ours, deeper than this, is not ours.
constexpr int kMaxTreeDepth = 64;

absl::Status RemoveTreeBelow(FileSystem& fs, const std::string& path, int depth) {
  const absl::StatusOr<FileInfo> info = fs.Stat(path);
  if (absl::IsNotFound(info.status())) return absl::OkStatus();
  CAPSTAN_RETURN_IF_ERROR(info.status());
  if (info->kind == FileInfo::Kind::kFolder) {
    if (depth > kMaxTreeDepth) {
      return Unavailable(fmt::format("removing '{}': folders nest more than {} deep", path, kMaxTreeDepth));
    }
    CAPSTAN_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(path));
    for (const std::string& name : names) {
      CAPSTAN_RETURN_IF_ERROR(RemoveTreeBelow(fs, path + "/" + name, depth + 1));
    }
  }
  const absl::Status status = fs.Remove(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix* instance = new Posix;
  return *instance;
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path, uint64_t max_bytes) {
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs.Open(path));
  if (file->size() > max_bytes) {
    return InvalidArgument(
        fmt::format("'{}' has {} bytes, at most {} are read", path, file->size(), max_bytes));
  }
  std::string contents(file->size(), '\0');
  CAPSTAN_RETURN_IF_ERROR(file->Read(0, contents.data(), contents.size()));
  return contents;
}

absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path, std::string_view contents) {
  const std::string temporary = path + ".tmp";
  absl::Status status = WriteAndSync(fs, temporary, contents);
  if (status.ok()) status = fs.Rename(temporary, path);
  if (!status.ok()) {
    fs.Remove(temporary)
        .IgnoreError();  // the first error is the one to tell; a leftover is written over next time
    return status;
  }
  return fs.SyncFolder(ParentFolder(path));
}

std::string ParentFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status MakeFoldersDurably(FileSystem& fs, const std::string& path) {
  // Even a folder that is there may be a moment old and made by somebody who did not sync, so all parents are synced;
  // above those made here only where we may (a parent can be closed to us).
  std::vector<std::string> made;
  std::vector<std::string> above;
  for (std::string folder = path;; folder = ParentFolder(folder)) {
    CAPSTAN_ASSIGN_OR_RETURN(const bool exists, fs.Exists(folder));
    (exists ? above : made).push_back(folder);
    if (folder == "/" || folder == ".") break;
  }
  CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(path));
  for (const std::string& folder : made) CAPSTAN_RETURN_IF_ERROR(fs.SyncFolder(folder));
  for (size_t i = 0; i < above.size(); ++i) {
    const absl::Status status = fs.SyncFolder(above[i]);
    const bool has_new_name = i == 0 && !made.empty();
    if (has_new_name) CAPSTAN_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status RemoveTree(FileSystem& fs, const std::string& path) { return RemoveTreeBelow(fs, path, 0); }

}  // namespace capstan
