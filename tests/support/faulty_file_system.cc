#include "tests/support/faulty_file_system.h"

#include <utility>

#include <fmt/core.h>

namespace capstan {

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(FaultyFileSystem& disk, std::string path, std::unique_ptr<WritableFile> real)
      : disk_(disk), path_(std::move(path)), real_(std::move(real)) {}
  // As the real ones: after an error every later call fails.
  absl::Status Append(const void* data, size_t size) override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    failure_ = disk_.Turn(DiskCall::kAppend, path_);
    if (failure_.ok()) return failure_ = real_->Append(data, size);
    if (disk_.fault_.half_appended) real_->Append(data, size / 2).IgnoreError();
    return failure_;
  }
  absl::Status Sync() override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    return failure_ = disk_.Do(DiskCall::kSync, path_, [&] { return real_->Sync(); });
  }
  absl::Status Close() override {
    CAPSTAN_RETURN_IF_ERROR(failure_);
    return failure_ = disk_.Do(DiskCall::kClose, path_, [&] { return real_->Close(); });
  }

 private:
  FaultyFileSystem& disk_;
  const std::string path_;
  const std::unique_ptr<WritableFile> real_;
  absl::Status failure_;
};

class FaultyRandomAccessFile final : public RandomAccessFile {
 public:
  FaultyRandomAccessFile(FaultyFileSystem& disk, std::string path, std::unique_ptr<RandomAccessFile> real)
      : disk_(disk), path_(std::move(path)), real_(std::move(real)) {}
  uint64_t size() const override { return real_->size(); }
  absl::Status Read(uint64_t offset, void* out, size_t size) const override {
    CAPSTAN_RETURN_IF_ERROR(disk_.Turn(DiskCall::kRead, path_));
    return real_->Read(offset, out, size);
  }

 private:
  FaultyFileSystem& disk_;
  const std::string path_;
  const std::unique_ptr<RandomAccessFile> real_;
};

void FaultyFileSystem::Arm(DiskFault fault) {
  std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
  calls_ = 0;
}

bool FaultyFileSystem::fired() const {
  std::lock_guard lock(mutex_);
  return fault_.at > 0 && calls_ >= fault_.at;
}

uint64_t FaultyFileSystem::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

absl::Status FaultyFileSystem::Turn(DiskCall call, const std::string& path) {
  std::lock_guard lock(mutex_);
  if (!fault_.calls.empty() && fault_.calls.count(call) == 0) return absl::OkStatus();
  ++calls_;
  const bool fails = fault_.at > 0 && (fault_.for_ever ? calls_ >= fault_.at : calls_ == fault_.at);
  return fails ? While(fmt::format("'{}'", path), fault_.status) : absl::OkStatus();
}

absl::Status FaultyFileSystem::Do(DiskCall call, const std::string& path, const std::function<absl::Status()>& work) {
  absl::Status failure = Turn(call, path);
  if (failure.ok()) return work();
  if (fault_.takes_effect) work().IgnoreError();
  return failure;
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultyFileSystem::Create(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kCreate, path));
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, real_.Create(path));
  return std::make_unique<FaultyWritableFile>(*this, path, std::move(file));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FaultyFileSystem::Open(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kOpen, path));
  CAPSTAN_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, real_.Open(path));
  return std::make_unique<FaultyRandomAccessFile>(*this, path, std::move(file));
}

absl::StatusOr<bool> FaultyFileSystem::Exists(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kExists, path));
  return real_.Exists(path);
}

absl::StatusOr<std::vector<std::string>> FaultyFileSystem::List(const std::string& folder) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kList, folder));
  return real_.List(folder);
}

absl::StatusOr<FileInfo> FaultyFileSystem::Stat(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kStat, path));
  return real_.Stat(path);
}

absl::StatusOr<uint64_t> FaultyFileSystem::FreeBytes(const std::string& path) {
  CAPSTAN_RETURN_IF_ERROR(Turn(DiskCall::kFreeBytes, path));
  return real_.FreeBytes(path);
}

absl::Status FaultyFileSystem::MakeFolders(const std::string& path) {
  return Do(DiskCall::kMakeFolders, path, [&] { return real_.MakeFolders(path); });
}

absl::Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  return Do(DiskCall::kRename, from, [&] { return real_.Rename(from, to); });
}

absl::Status FaultyFileSystem::Remove(const std::string& path) {
  return Do(DiskCall::kRemove, path, [&] { return real_.Remove(path); });
}

absl::Status FaultyFileSystem::SyncFolder(const std::string& path) {
  return Do(DiskCall::kSyncFolder, path, [&] { return real_.SyncFolder(path); });
}

absl::Status FaultyFileSystem::HardLink(const std::string& from, const std::string& to) {
  return Do(DiskCall::kLink, from, [&] { return real_.HardLink(from, to); });
}

}  // namespace capstan
