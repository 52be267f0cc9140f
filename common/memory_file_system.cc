// The in-memory twin: real code (the simulator's disk), so it cannot rot.
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include <fmt/core.h>

#include "common/file_system.h"

namespace capstan {
namespace {

using Contents = std::shared_ptr<std::string>;

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(Contents contents, std::mutex& mutex) : contents_(std::move(contents)), mutex_(mutex) {}
  absl::Status Append(const void* data, size_t size) override {
    std::lock_guard lock(mutex_);
    contents_->append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }
  absl::Status Sync() override { return absl::OkStatus(); }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  Contents contents_;
  std::mutex& mutex_;
};

class MemoryRandomAccessFile final : public RandomAccessFile {
 public:
  MemoryRandomAccessFile(std::string path, std::string contents)
      : path_(std::move(path)), contents_(std::move(contents)) {}
  uint64_t size() const override { return contents_.size(); }
  absl::Status Read(uint64_t offset, void* out, size_t size) const override {
    if (offset > contents_.size() || size > contents_.size() - offset) {
      return DataLoss(fmt::format("reading '{}': it ends at byte {}", path_, contents_.size()));
    }
    if (size > 0) std::memcpy(out, contents_.data() + offset, size);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const std::string contents_;
};

class Memory final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    std::lock_guard lock(mutex_);
    if (folders_.count(path) > 0) return Refused("creating", path, "Is a directory");
    Contents contents = std::make_shared<std::string>();
    files_[path] = contents;
    return std::make_unique<MemoryWritableFile>(std::move(contents), mutex_);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) override {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(path);
    if (found == files_.end() && folders_.count(path) > 0) {
      return InvalidArgument(fmt::format("opening '{}': not an ordinary file", path));
    }
    if (found == files_.end()) return Missing("opening", path);
    return std::make_unique<MemoryRandomAccessFile>(path, *found->second);
  }

  absl::StatusOr<bool> Exists(const std::string& path) override {
    std::lock_guard lock(mutex_);
    return files_.count(path) > 0 || folders_.count(path) > 0;
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    std::lock_guard lock(mutex_);
    const std::set<std::string> names = NamesIn(folder);
    if (names.empty() && folders_.count(folder) == 0) return Missing("listing", folder);
    return std::vector<std::string>(names.begin(), names.end());
  }

  absl::Status MakeFolders(const std::string& path) override {
    std::lock_guard lock(mutex_);
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (files_.count(part) > 0) return Refused("making the folder", part, "File exists");
      folders_.insert(part);
      if (end == std::string::npos) return absl::OkStatus();
    }
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    std::lock_guard lock(mutex_);
    const auto found = files_.find(from);
    if (found == files_.end()) return Missing("renaming", from);
    Contents contents = found->second;
    files_.erase(found);
    files_[to] = std::move(contents);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    std::lock_guard lock(mutex_);
    if (!NamesIn(path).empty()) return Refused("removing", path, "Directory not empty");
    if (files_.erase(path) + folders_.erase(path) == 0) return Missing("removing", path);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string&) override { return absl::OkStatus(); }

 private:
  static absl::Status Missing(std::string_view doing, const std::string& path) {
    return NotFound(fmt::format("{} '{}': No such file or directory", doing, path));
  }
  static absl::Status Refused(std::string_view doing, const std::string& path, std::string_view why) {
    return Unavailable(fmt::format("{} '{}': {}", doing, path, why));
  }

  std::set<std::string> NamesIn(const std::string& folder) const {
    const std::string prefix = folder + "/";
    std::set<std::string> names;
    const auto add = [&](const std::string& path) {
      if (path.size() > prefix.size() && path.compare(0, prefix.size(), prefix) == 0) {
        names.insert(path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size()));
      }
    };
    for (const auto& [path, contents] : files_) add(path);
    for (const std::string& path : folders_) add(path);
    return names;
  }

  std::mutex mutex_;
  std::map<std::string, Contents> files_;
  std::set<std::string> folders_;
};

}  // namespace

std::unique_ptr<FileSystem> NewMemoryFileSystem() { return std::make_unique<Memory>(); }

}  // namespace capstan
