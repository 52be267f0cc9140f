// A disk that fails when told to: forwards every call to another file system, and one of them fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "common/file_system.h"

namespace capstan {

enum class DiskCall {
  kCreate, kAppend, kSync, kClose, kOpen, kRead, kExists, kStat, kFreeBytes, kList, kMakeFolders, kRename, kLink,
  kRemove, kSyncFolder,
};

struct DiskFault {
  uint64_t at = 0;            // the at-th call that counts, from 1; 0: none fails
  std::set<DiskCall> calls;   // those that count; empty: all
  absl::Status status = Unavailable("no space left on this device");
  bool takes_effect = false;  // the call does its work and still says that it failed
  bool half_appended = false; // a failing Append writes the first half of its bytes
  bool for_ever = false;      // and so do all calls after it, as when the process had died
};

// Thread-safe. Outlives its files.
class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& real) : real_(real) {}

  void Arm(DiskFault fault);  // counts from here
  bool fired() const;
  uint64_t calls() const;     // that counted, since Arm

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) override;
  absl::StatusOr<bool> Exists(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override;
  absl::Status MakeFolders(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::Status HardLink(const std::string& from, const std::string& to) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override;

 private:
  friend class FaultyWritableFile;
  friend class FaultyRandomAccessFile;
  // What the call should answer in place of its own result; OK: its own.
  absl::Status Turn(DiskCall call, const std::string& path);
  absl::Status Do(DiskCall call, const std::string& path, const std::function<absl::Status()>& work);

  FileSystem& real_;
  mutable std::mutex mutex_;
  DiskFault fault_;
  uint64_t calls_ = 0;
};

}  // namespace capstan
