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

struct FileInfo {
  enum class Kind { kFile, kFolder, kLink, kOther };
  Kind kind = Kind::kFile;
  uint64_t bytes = 0;  // of a file
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
  virtual absl::Status Remove(const std::string& path) = 0;  // one file, link or empty folder
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // Of what bears this very name: a symbolic link is not followed (Exists, Open and List do).
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  // A second name for the file `from`, on the same disk. `to` must not exist.
  virtual absl::Status HardLink(const std::string& from, const std::string& to) = 0;
  // What an ordinary user may still write on the disk that holds `path`, which exists.
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& path) = 0;
};

FileSystem& PosixFileSystem();

// Knows what a power cut would leave: the bytes of files up to their last Sync, and the names in a folder as they were
// at its last SyncFolder. Has no links but hard ones, and no end of space.
class MemoryFileSystem : public FileSystem {
 public:
  enum class Keep {
    kSynced,      // only what was synced
    kEverything,  // all, as when the disk had just caught up
    kSomething,   // of the rest whatever `seed` says: any subset of the changes to a folder, any part of a file's tail,
                  // zeros in its place included
  };
  // Files open for writing fail from now on.
  virtual void PowerCut(Keep keep, uint64_t seed) = 0;
};
// Outlives its files. Creates a file without asking for its folder first; everything else as the real one.
std::unique_ptr<MemoryFileSystem> NewMemoryFileSystem();

absl::StatusOr<std::string> ReadWholeFile(FileSystem& fs, const std::string& path, uint64_t max_bytes);
// Writes `path`.tmp, syncs it, renames it, syncs the folder: after a crash at any time `path` is the old file
// or the new one, whole. On an error the old file stays and `path`.tmp is removed.
absl::Status WriteFileAtomically(FileSystem& fs, const std::string& path, std::string_view contents);
// Makes the folder and its parents so that a power cut does not take them away again.
absl::Status MakeFoldersDurably(FileSystem& fs, const std::string& path);
// Removes a folder and everything in it; links are removed, not followed. Nothing there: fine.
absl::Status RemoveTree(FileSystem& fs, const std::string& path);
std::string ParentFolder(const std::string& path);  // "a/b" → "a", "a" → ".", "/a" → "/"

}  // namespace capstan
