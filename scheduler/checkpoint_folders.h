// CheckpointStore on the run's folder of checkpoints: numbers, commits, removes what the policy does not keep.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "scheduler/checkpoint_director.h"

namespace capstan {

class CheckpointFolders final : public CheckpointStore {
 public:
  // Makes or opens the folder and removes what an earlier run left unfinished. log: lines for a person.
  static absl::StatusOr<std::unique_ptr<CheckpointFolders>> Open(FileSystem& fs, const std::string& path,
                                                                 const RetentionPolicy& policy,
                                                                 std::function<void(const std::string& line)> log);

  absl::StatusOr<uint64_t> Begin() override;
  std::string WorkingFolder(uint64_t id) const override { return root_->WorkingFolderOf(id); }
  std::string Folder(uint64_t id) const override { return root_->FolderOf(id); }
  const std::string& root() const override { return root_->path(); }
  const std::string& token() const override { return root_->token(); }
  absl::StatusOr<CheckpointEntry> Commit(uint64_t id, const CheckpointManifest& head,
                                         const std::vector<ShardPart>& parts) override;
  void Abandon(uint64_t id) override;

 private:
  CheckpointFolders(std::unique_ptr<CheckpointRoot> root, const RetentionPolicy& policy,
                    std::function<void(const std::string& line)> log)
      : root_(std::move(root)), policy_(policy), log_(std::move(log)) {}

  const std::unique_ptr<CheckpointRoot> root_;
  const RetentionPolicy policy_;
  const std::function<void(const std::string& line)> log_;
  std::set<std::string> said_;  // after commits: what cannot be removed is told once
};

}  // namespace capstan
