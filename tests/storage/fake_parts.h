// Checkpoints that are right at record level: their table files hold a few bytes of text. For tests of roots,
// on any file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/file_system.h"
#include "proto/checkpoint.pb.h"
#include "storage/checkpoint_root.h"

namespace capstan::testing {

inline constexpr uint32_t kFakeShards = 2;

CheckpointManifest FakeHead(uint64_t version);
// What the shards' writers do in a working folder: a new layer each, and hard links to those of `parent`
// (empty: none). Files are synced, names are not: Commit sees to that.
absl::StatusOr<std::vector<ShardPart>> WriteFakeParts(FileSystem& fs, const std::string& working, uint64_t id,
                                                      const std::string& parent);
// Begin, write, commit: incremental upon the newest good one where there is one.
absl::StatusOr<CheckpointEntry> CommitFake(FileSystem& fs, CheckpointRoot& root,
                                           const CheckpointManifest& head);
// Empty if every file that the manifest lists is there with the bytes that WriteFakeParts gave it.
std::string WhatIsNotAsWritten(FileSystem& fs, const std::string& folder);
// Flips one bit of the byte in the middle of a file.
void FlipBit(FileSystem& fs, const std::string& path);
// Writes a file whole, synced.
void PutFile(FileSystem& fs, const std::string& path, const std::string& contents);
std::string GetFile(FileSystem& fs, const std::string& path);

}  // namespace capstan::testing
