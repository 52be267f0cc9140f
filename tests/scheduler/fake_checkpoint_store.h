// A folder of checkpoints that only remembers what was asked of it.
#pragma once

#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "scheduler/checkpoint_director.h"

namespace capstan::testing {

class FakeCheckpointStore final : public CheckpointStore {
 public:
  absl::StatusOr<uint64_t> Begin() override {
    if (!fail_begin.ok()) return fail_begin;
    return ++newest_id;
  }
  std::string WorkingFolder(uint64_t id) const override { return "root/C" + std::to_string(id) + ".tmp"; }
  std::string Folder(uint64_t id) const override { return "root/C" + std::to_string(id); }
  const std::string& root() const override { return root_; }
  const std::string& token() const override { return token_; }
  absl::StatusOr<CheckpointEntry> Commit(uint64_t id, const CheckpointManifest& head,
                                         const std::vector<ShardPart>& parts) override {
    if (!fail_commit.ok()) return fail_commit;
    heads.push_back(head);
    part_counts.push_back(parts.size());
    CheckpointEntry entry;
    entry.id = id;
    entry.folder = Folder(id);
    entry.full = head.kind() == CheckpointManifest::FULL;
    entry.model_sha256 = "sha";
    return entry;
  }
  void Abandon(uint64_t id) override { abandoned.push_back(id); }

  uint64_t newest_id = 0;
  absl::Status fail_begin, fail_commit;
  std::vector<CheckpointManifest> heads;  // of what was committed
  std::vector<size_t> part_counts;
  std::vector<uint64_t> abandoned;

 private:
  const std::string root_ = "root", token_ = "token";
};

}  // namespace capstan::testing
