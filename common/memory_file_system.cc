// The in-memory twin: real code (the simulator's disk), so it cannot rot.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "common/file_system.h"
#include "common/random.h"

namespace capstan {
namespace {

struct MemoryNode;
using NodePtr = std::shared_ptr<MemoryNode>;
// What one call did to a folder's names: each got this node, or none any more. A rename within one folder is one
// change, as on a disk with a journal.
using FolderChange = std::vector<std::pair<std::string, NodePtr>>;

struct MemoryNode {
  explicit MemoryNode(bool is_folder) : folder(is_folder) {}
  const bool folder;
  std::string data;
  std::string synced_data;
  std::map<std::string, NodePtr> entries;
  std::map<std::string, NodePtr> synced_entries;
  std::vector<FolderChange> changes;  // since the last sync

  void Apply(const FolderChange& change) {
    for (const auto& [name, node] : change) {
      if (node == nullptr) {
        entries.erase(name);
      } else {
        entries[name] = node;
      }
    }
  }
  void Change(FolderChange change) {
    Apply(change);
    changes.push_back(std::move(change));
  }
  void SyncEntries() {
    synced_entries = entries;
    changes.clear();
  }
};

struct MemoryState {
  std::mutex mutex;
  NodePtr root = std::make_shared<MemoryNode>(true);
  uint64_t power_cuts = 0;
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(std::string path, NodePtr node, MemoryState& state)
      : path_(std::move(path)), node_(std::move(node)), state_(state), opened_at_(state.power_cuts) {}
  absl::Status Append(const void* data, size_t size) override {
    std::lock_guard lock(state_.mutex);
    CAPSTAN_RETURN_IF_ERROR(Powered());
    node_->data.append(static_cast<const char*>(data), size);
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    std::lock_guard lock(state_.mutex);
    CAPSTAN_RETURN_IF_ERROR(Powered());
    node_->synced_data = node_->data;
    return absl::OkStatus();
  }
  absl::Status Close() override {
    std::lock_guard lock(state_.mutex);
    return Powered();
  }

 private:
  absl::Status Powered() const {
    if (opened_at_ == state_.power_cuts) return absl::OkStatus();
    return Unavailable(fmt::format("writing '{}': the power was cut", path_));
  }
  const std::string path_;
  const NodePtr node_;
  MemoryState& state_;
  const uint64_t opened_at_;
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

// Decides what of the unsynced survives a power cut.
class PowerCutDraw {
 public:
  explicit PowerCutDraw(SeededRandom* random) : random_(random) {}

  void Settle(const NodePtr& node) {
    if (!seen_.insert(node.get()).second) return;
    if (!node->folder) {
      node->data = node->synced_data = Tail(*node);
      return;
    }
    std::vector<FolderChange> changes = std::move(node->changes);
    node->entries = node->synced_entries;
    for (const FolderChange& change : changes) {
      if (random_ != nullptr && random_->Below(2) == 0) node->Apply(change);
    }
    node->SyncEntries();
    for (const auto& [name, child] : node->entries) Settle(child);
  }

 private:
  std::string Tail(const MemoryNode& file) {
    if (random_ == nullptr || file.data == file.synced_data) return file.synced_data;
    const std::string& old = file.synced_data;
    const bool appended = file.data.compare(0, old.size(), old) == 0;
    if (!appended && random_->Below(2) == 0) return old;
    const size_t from = appended ? old.size() : 0;
    std::string result = file.data.substr(0, from + random_->Below(file.data.size() - from + 1));
    // The length may reach the disk before the bytes do.
    if (random_->Below(3) == 0) std::fill(result.begin() + static_cast<ptrdiff_t>(from), result.end(), '\0');
    return result;
  }

  SeededRandom* const random_;  // null: nothing unsynced survives
  std::set<const MemoryNode*> seen_;
};

class Memory final : public MemoryFileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    if (!MakeParents(path)) return Refused("creating", path, "Not a directory");
    const auto [parent, name] = ParentOf(path);
    NodePtr node = Find(path);
    if (node != nullptr && node->folder) return Refused("creating", path, "Is a directory");
    if (node == nullptr) {
      node = std::make_shared<MemoryNode>(false);
      parent->Change({{name, node}});
    }
    node->data.clear();
    return std::make_unique<MemoryWritableFile>(path, std::move(node), state_);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(path);
    if (node == nullptr) return Missing("opening", path);
    if (node->folder) return InvalidArgument(fmt::format("opening '{}': not an ordinary file", path));
    return std::make_unique<MemoryRandomAccessFile>(path, node->data);
  }

  absl::StatusOr<bool> Exists(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    return Find(path) != nullptr;
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& folder) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(folder);
    if (node == nullptr) return Missing("listing", folder);
    if (!node->folder) return Refused("listing", folder, "Not a directory");
    std::vector<std::string> names;
    for (const auto& [name, child] : node->entries) names.push_back(name);
    return names;
  }

  absl::Status MakeFolders(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    NodePtr at = state_.root;
    for (const std::string& part : Parts(path)) {
      const auto found = at->entries.find(part);
      NodePtr next = found == at->entries.end() ? nullptr : found->second;
      if (next == nullptr) {
        next = std::make_shared<MemoryNode>(true);
        at->Change({{part, next}});
      }
      if (!next->folder) return Refused("making the folder", path, "File exists");
      at = std::move(next);
    }
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(from);
    const auto [from_parent, from_name] = ParentOf(from);
    const auto [to_parent, to_name] = ParentOf(to);
    if (node == nullptr || to_parent == nullptr) return Missing("renaming to " + to, from);
    const NodePtr there = Find(to);
    if (there == node) return absl::OkStatus();
    if (there != nullptr && there->folder && !node->folder) {
      return Refused("renaming to " + to, from, "Is a directory");
    }
    if (there != nullptr && !there->folder && node->folder) {
      return Refused("renaming to " + to, from, "Not a directory");
    }
    if (there != nullptr && !there->entries.empty()) {
      return Refused("renaming to " + to, from, "Directory not empty");
    }
    if (from_parent == to_parent) {
      from_parent->Change({{from_name, nullptr}, {to_name, node}});
    } else {
      to_parent->Change({{to_name, node}});
      from_parent->Change({{from_name, nullptr}});
    }
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(path);
    const auto [parent, name] = ParentOf(path);
    if (node == nullptr || parent == nullptr) return Missing("removing", path);
    if (!node->entries.empty()) return Refused("removing", path, "Directory not empty");
    parent->Change({{name, nullptr}});
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(path);
    if (node == nullptr) return Missing("syncing the folder", path);
    if (!node->folder) return Refused("syncing the folder", path, "Not a directory");
    node->SyncEntries();
    return absl::OkStatus();
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(path);
    if (node == nullptr) return Missing("looking at", path);
    FileInfo info;
    info.kind = node->folder ? FileInfo::Kind::kFolder : FileInfo::Kind::kFile;
    info.bytes = node->data.size();
    return info;
  }

  absl::Status HardLink(const std::string& from, const std::string& to) override {
    std::lock_guard lock(state_.mutex);
    const NodePtr node = Find(from);
    const auto [parent, name] = ParentOf(to);
    if (node == nullptr || parent == nullptr) return Missing("linking to " + to, from);
    if (node->folder) return Refused("linking to " + to, from, "Operation not permitted");
    if (parent->entries.count(name) > 0) return Refused("linking to " + to, from, "File exists");
    parent->Change({{name, node}});
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override {
    std::lock_guard lock(state_.mutex);
    if (Find(path) == nullptr) return Missing("asking for the free space of", path);
    return uint64_t{1} << 62;
  }

  void PowerCut(Keep keep, uint64_t seed) override {
    std::lock_guard lock(state_.mutex);
    ++state_.power_cuts;
    if (keep == Keep::kEverything) {
      SettleAll(state_.root);
      return;
    }
    SeededRandom random(seed);
    PowerCutDraw(keep == Keep::kSomething ? &random : nullptr).Settle(state_.root);
  }

 private:
  static absl::Status Missing(std::string_view doing, const std::string& path) {
    return NotFound(fmt::format("{} '{}': No such file or directory", doing, path));
  }
  static absl::Status Refused(std::string_view doing, const std::string& path, std::string_view why) {
    return Unavailable(fmt::format("{} '{}': {}", doing, path, why));
  }

  static std::vector<std::string> Parts(const std::string& path) {
    std::vector<std::string> parts;
    for (size_t from = 0; from < path.size();) {
      const size_t end = std::min(path.find('/', from), path.size());
      const std::string part = path.substr(from, end - from);
      if (!part.empty() && part != ".") parts.push_back(part);
      from = end + 1;
    }
    return parts;
  }

  NodePtr Find(const std::string& path) const {
    NodePtr at = state_.root;
    for (const std::string& part : Parts(path)) {
      const auto found = at->entries.find(part);
      if (found == at->entries.end()) return nullptr;
      at = found->second;
    }
    return at;
  }

  // The folder that holds the path's last name, or null.
  std::pair<NodePtr, std::string> ParentOf(const std::string& path) const {
    std::vector<std::string> parts = Parts(path);
    if (parts.empty()) return {nullptr, ""};
    NodePtr at = state_.root;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = at->entries.find(parts[i]);
      if (found == at->entries.end() || !found->second->folder) return {nullptr, ""};
      at = found->second;
    }
    return {at, parts.back()};
  }

  // Folders that nobody asked for are there as if they had always been, power cuts included.
  bool MakeParents(const std::string& path) {
    const std::vector<std::string> parts = Parts(path);
    NodePtr at = state_.root;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      NodePtr& next = at->entries[parts[i]];
      if (next == nullptr) {
        next = std::make_shared<MemoryNode>(true);
        at->synced_entries[parts[i]] = next;
      }
      if (!next->folder) return false;
      at = next;
    }
    return !parts.empty();
  }

  static void SettleAll(const NodePtr& node) {
    node->synced_data = node->data;
    node->SyncEntries();
    for (const auto& [name, child] : node->entries) SettleAll(child);
  }

  MemoryState state_;
};

}  // namespace

std::unique_ptr<MemoryFileSystem> NewMemoryFileSystem() { return std::make_unique<Memory>(); }

}  // namespace capstan
