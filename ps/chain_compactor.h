// Merges long chains of layers in the background, so that an increment does not get slower to read each time: the next
// one of the same shard builds on the merged layer instead of the chain. Works in ROOT/.compact-shard-NNNN on hard
// links, so checkpoints may be renamed and removed meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "common/status.h"
#include "proto/checkpoint.pb.h"

namespace capstan {

// One thread (and one of its own). Nothing but Cancel and the destructor waits.
class ChainCompactor {
 public:
  explicit ChainCompactor(bool sync) : sync_(sync) {}
  ~ChainCompactor() { Cancel(); }
  ChainCompactor(const ChainCompactor&) = delete;
  ChainCompactor& operator=(const ChainCompactor&) = delete;

  // Where it works from now on; what a writer that was killed left there is removed, if it carries our marker.
  void UseFolder(const std::string& root, uint32_t shard);
  // Begins with the layers of a record whose files lie in `folder`, if they are not merged already. Failures are logged:
  // the chain then only gets longer.
  void Start(const ShardRecord& record, const std::string& folder, uint64_t reserve_bytes);
  // Ends what is under way and forgets what was merged, files included.
  void Cancel();
  // For another thread when the process ends: asks the merge to stop.
  void AskToStop() { cancel_ = true; }

  struct Merged {
    StoredLayer layer;    // in place of the first `layers` of the chain
    int layers = 0;
    std::string folder;   // that holds its files
  };
  // If it is ready and the chain begins with what was merged. A chain that has the merged layer already needs our
  // files no longer: they are removed.
  std::optional<Merged> TakeFor(const ShardRecord& parent);

 private:
  absl::Status Prepare(const ShardRecord& record, const std::string& folder, uint64_t reserve_bytes);
  void Merge();
  std::string source() const { return folder_ + "/in"; }
  std::string target() const { return folder_ + "/out"; }

  const bool sync_;
  std::string folder_;
  uint32_t shard_ = 0;
  ShardRecord chain_;         // the layers that are merged
  StoredLayer merged_;        // by the thread, before done_
  std::thread thread_;
  std::atomic<bool> cancel_ = false;
  std::atomic<bool> done_ = false;  // merged_ is good
};

}  // namespace capstan
