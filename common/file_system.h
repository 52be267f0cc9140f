// The disk as the rest of Capstan sees it: few calls, each with a Status, and an in-memory twin that tests
// and the simulator use. Paths are ordinary strings with '/'.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace capstan {

// Appends only. Owned by one thread. Destroying an unclosed file may drop what was not synced. After an error
// every later call fails: bytes are missing, and a repeated sync proves nothing.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(const void* data, size_t size) = 0;
  virtual absl::Status Sync() = 0;   // data reaches the disk before OK
  virtual absl::Status Close() = 0;  // flushes; nothing may be called after it
};

// Reads at any place. Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual uint64_t size() const = 0;
  // Fills exactly `size` bytes or fails: kDataLoss past the end, kUnavailable when the disk fails.
  virtual absl::Status Read(uint64_t offset, void* out, size_t size) const = 0;
};

// Thread-safe. Errors carry the path and errno's text. kNotFound: no such file; kInvalidArgument: Open of
// what is not an ordinary file (a folder, a pipe); kUnavailable: all else.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;  // truncates
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) = 0;
  virtual absl::StatusOr<bool> Exists(const std::string& path) = 0;
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& folder) = 0;  // names, sorted
  virtual absl::Status MakeFolders(const std::string& path) = 0;                    // with parents; may exist
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;  // replaces a file
  virtual absl::Status Remove(const std::string& path) = 0;  // one file or empty folder
  virtual absl::Status SyncFolder(const std::string& path) = 0;
};

FileSystem& PosixFileSystem();
// Outlives its files. Creates a file without asking for its folder first; everything else as the real one.
std::unique_ptr<FileSystem> NewMemoryFileSystem();

absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path, uint64_t max_bytes);
// Writes `path`.tmp, syncs it, renames it, syncs the folder: after a crash at any time `path` is the old file
// or the new one, whole. On an error the old file stays and `path`.tmp is removed.
absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path, std::string_view contents);

}  // namespace capstan
