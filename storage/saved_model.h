// The weights of a checkpoint in memory, to look rows up by key. Immutable after Load, so thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/file_system.h"
#include "common/status.h"
#include "common/types.h"

namespace capstan {

class CheckpointManifest;

class SavedModel {
 public:
  enum class Keep { kWeights, kWeightsAndSlots };
  // folder: of one checkpoint. Every row, count and digest is checked while it is read. Errors as CheckpointReader's.
  // Memory: 8 bytes per row and 4 per float kept.
  static absl::StatusOr<std::unique_ptr<SavedModel>> Load(FileSystem& fs, const std::string& folder,
                                                          Keep keep = Keep::kWeights);
  ~SavedModel();
  const std::string& folder() const;
  const CheckpointManifest& manifest() const;
  uint32_t width(TableId table) const;  // weights per row
  // Weights of a row, or nullptr where the table has no such row (the caller then uses the initial values).
  const float* Find(TableId table, Key key) const;
  uint64_t rows(TableId table) const;
  // Visits the rows of a table in (partition, key) order with the floats kept: weights, and slots after them
  // if they were asked for.
  void ForEach(TableId table, const std::function<void(Key, std::span<const float>)>& visit) const;

 private:
  SavedModel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace capstan
