// A CheckpointStore whose disk may be slow: every call that touches it goes through a DiskWait.
#pragma once

#include <string>
#include <vector>

#include "scheduler/checkpoint_director.h"
#include "scheduler/disk_wait.h"

namespace capstan {

class PatientStore final : public CheckpointStore {
 public:
  // Both outlive it.
  PatientStore(CheckpointStore& store, DiskWait& wait) : store_(store), wait_(wait) {}

  absl::StatusOr<uint64_t> Begin() override {
    absl::StatusOr<uint64_t> id = absl::UnknownError("not done");
    wait_.Run([&] { id = store_.Begin(); });
    return id;
  }
  std::string WorkingFolder(uint64_t id) const override { return store_.WorkingFolder(id); }
  std::string Folder(uint64_t id) const override { return store_.Folder(id); }
  const std::string& root() const override { return store_.root(); }
  const std::string& token() const override { return store_.token(); }
  absl::StatusOr<CheckpointEntry> Commit(uint64_t id, const CheckpointManifest& head,
                                         const std::vector<ShardPart>& parts) override {
    absl::StatusOr<CheckpointEntry> entry = absl::UnknownError("not done");
    wait_.Run([&] { entry = store_.Commit(id, head, parts); });
    return entry;
  }
  void Abandon(uint64_t id) override {
    wait_.Run([&] { store_.Abandon(id); });
  }

 private:
  CheckpointStore& store_;
  DiskWait& wait_;
};

}  // namespace capstan
