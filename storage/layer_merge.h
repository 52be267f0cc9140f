// Makes one layer of several: what a chain of incremental checkpoints amounts to.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "storage/layer_writer.h"

namespace capstan {

class PartitionRows;

// Merges layers (oldest first; files below `source_folder`, by StoredFile::name) into one without deletions, written
// as options say. Streaming. kCancelled soon after *cancel (may be null) becomes true.
// `rows`, if not null, receives the live rows per (table, partition).
absl::StatusOr<StoredLayer> MergeLayers(std::span<const StoredLayer* const> layers, const std::string& source_folder,
                                  const LayerWriterOptions& options, const std::atomic<bool>* cancel,
                                  std::vector<PartitionRows>* rows);

}  // namespace capstan
