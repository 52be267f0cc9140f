// Damaged checkpoints: whatever happens to the bytes of one, a reader gives exactly the right rows or an
// error.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "storage/checkpoint_reader.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using testing::BuiltRow;
using testing::BuiltRows;
using testing::CheckpointSpec;
using ::testing::HasSubstr;
using testing::OverwriteFile;
using testing::TemporaryFolder;
using AllRows = std::map<TableId, BuiltRows>;

constexpr int kMutations = 1500;
constexpr uint64_t kAnySize = uint64_t{1} << 30;

struct Files {
  std::map<std::string, std::string> contents;  // by path
  std::vector<std::string> paths;
};

Files ReadFiles(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = entry.path().string();
    files.contents[path] = *ReadWholeFile(PosixFileSystem(), path, kAnySize);
  }
  for (const auto& file : files.contents) files.paths.push_back(file.first);
  return files;
}

// Everything in the checkpoint; the error if there is one. What was visited before an error does not count.
absl::StatusOr<AllRows> ReadEverything(const std::string& folder, CheckpointReader::Verify verify) {
  CAPSTAN_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(PosixFileSystem(), folder, verify));
  AllRows all;
  for (const TableSpec& table : reader->manifest().job().table()) {
    BuiltRows& rows = all[static_cast<TableId>(table.id())];
    CAPSTAN_RETURN_IF_ERROR(
        reader->ForEach(static_cast<TableId>(table.id()), 0, reader->partitions(), [&](const StoredRow& row) {
          rows[row.key] = {{row.values, row.values + row.floats}, row.last_step, row.updates};
          return absl::OkStatus();
        }));
  }
  return all;
}

// Damages one file, or exchanges two; says how.
class Mutator {
 public:
  Mutator(const Files& files, uint64_t seed) : files_(files), random_(seed) {}

  // The files touched, so that they can be put back.
  std::vector<std::string> Mutate(std::string* how) {
    const std::string path = Any();
    std::string bytes = files_.contents.at(path);
    const size_t at = bytes.empty() ? 0 : random_() % bytes.size();
    switch (random_() % 8) {
      case 0:
      case 1:
        *how = "a bit flipped";
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random_() % 8));
        break;
      case 2: {
        *how = "bytes replaced";
        const size_t end = std::min(bytes.size(), at + 1 + random_() % 64);
        for (size_t i = at; i < end; ++i) bytes[i] = static_cast<char>(random_());
        break;
      }
      case 3: {
        *how = "a range zeroed";
        const size_t end = std::min(bytes.size(), at + 1 + random_() % 4096);
        std::fill(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(end),
                  '\0');
        break;
      }
      case 4:
        *how = "truncated";
        bytes.resize(at);
        break;
      case 5:
        *how = "extended";
        bytes.append(1 + random_() % 100, static_cast<char>(random_()));
        break;
      case 6:
        *how = "deleted";
        std::filesystem::remove(path);
        *how += " '" + path + "'";
        return {path};
      default:
        return Exchange(path, how);
    }
    *how += " at " + std::to_string(at) + " of '" + path + "'";
    OverwriteFile(path, bytes);
    return {path};
  }

 private:
  std::string Any() { return files_.paths[random_() % files_.paths.size()]; }

  std::vector<std::string> Exchange(const std::string& path, std::string* how) {
    const std::string other = Any();
    *how = "exchanged '" + path + "' and '" + other + "'";
    OverwriteFile(path, files_.contents.at(other));
    OverwriteFile(other, files_.contents.at(path));
    return {path, other};
  }

  const Files& files_;
  std::mt19937_64 random_;
};

CheckpointSpec SmallCheckpoint() {
  CheckpointSpec spec = testing::SomeCheckpoint(3, 300, 2);
  spec.model_sha256 = true;
  return spec;
}

class CheckpointMutation : public ::testing::TestWithParam<CheckpointReader::Verify> {};

TEST_P(CheckpointMutation, NoneGivesWrongRows) {
  const TemporaryFolder root;
  const CheckpointSpec spec = SmallCheckpoint();
  const std::string folder = testing::BuildCheckpoint(spec, root.path());
  const AllRows wanted = testing::LiveRows(spec);
  const Files files = ReadFiles(folder);
  ASSERT_EQ(files.paths.size(), 9u);  // a manifest, two records, three layers of two shards
  ASSERT_TRUE(ReadEverything(folder, GetParam()).ok());
  Mutator mutator(files, 20261);
  int errors = 0;
  for (int i = 0; i < kMutations; ++i) {
    std::string how;
    const std::vector<std::string> touched = mutator.Mutate(&how);
    SCOPED_TRACE(how);
    const auto rows = ReadEverything(folder, GetParam());
    if (rows.ok()) {
      ASSERT_TRUE(*rows == wanted);
    } else {
      ++errors;
      ASSERT_THAT(std::string(rows.status().message()), HasSubstr(root.path()));
      // A shard's record in the place of the manifest begins like one of another format.
      ASSERT_TRUE(absl::IsDataLoss(rows.status()) || absl::IsNotFound(rows.status()) ||
                  (absl::IsInvalidArgument(rows.status()) && touched.size() == 2))
          << rows.status();
    }
    for (const std::string& path : touched) OverwriteFile(path, files.contents.at(path));
  }
  // What was not found changed nothing: exchanged with itself, or (files not hashed) bytes of a table's file
  // that no row depends on.
  EXPECT_GT(errors, kMutations * (GetParam() == CheckpointReader::Verify::kFiles ? 95 : 60) / 100);
  const auto again = ReadEverything(folder, GetParam());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == wanted);
}

INSTANTIATE_TEST_SUITE_P(Verify, CheckpointMutation,
                         ::testing::Values(CheckpointReader::Verify::kFiles,
                                           CheckpointReader::Verify::kRecords));

// Records whose bytes are changed, under checksums that were made to fit: the rows may then be any that the
// files have, but nothing crashes, and no number in a record makes us reserve memory for it.
TEST(CheckpointsForged, NoneIsACrash) {
  const TemporaryFolder root;
  CheckpointSpec spec = testing::SomeCheckpoint(2, 100, 1);
  const std::string folder = testing::BuildCheckpoint(spec, root.path());
  const CheckpointRecords good = *CheckpointRecords::Load(PosixFileSystem(), folder);
  const std::string record_name = ShardFolderName(0) + "/" + kShardRecordFile;
  const google::protobuf::LogSilencer quiet;  // of names that are no UTF-8
  std::mt19937_64 random(7);
  int opened = 0;
  for (int i = 0; i < kMutations; ++i) {
    const bool of_shard = i % 2 == 0;
    CheckpointManifest manifest = good.manifest;
    std::string shard = good.shards[0].SerializeAsString();
    std::string head;
    if (of_shard) {
      shard[random() % shard.size()] = static_cast<char>(random());
      const auto file = std::find_if(manifest.mutable_file()->begin(), manifest.mutable_file()->end(),
                                     [&](const StoredFile& f) { return f.name() == record_name; });
      *file = testing::WriteRecordFile(folder, record_name, shard);
    }
    head = manifest.SerializeAsString();
    if (!of_shard) {
      head[random() % head.size()] = static_cast<char>(random());
      testing::WriteRecordFile(folder, record_name, shard);
    }
    testing::WriteRecordFile(folder, kManifestFile, head);
    const auto rows = ReadEverything(folder, CheckpointReader::Verify::kFiles);
    if (rows.ok()) ++opened;  // a version, a name, an optimizer …
  }
  EXPECT_GT(opened, 0);
  EXPECT_LT(opened, kMutations);
}

// Files exchanged for those of another checkpoint of the same shape: good files, in the wrong place.
TEST(CheckpointsMixed, FilesOfAnotherCheckpointAreFound) {
  const TemporaryFolder root;
  const CheckpointSpec spec = SmallCheckpoint();
  CheckpointSpec other = spec;
  for (auto& [table, rows] : other.layers[0].puts) {
    for (auto& [key, row] : rows) row.values[0] += 1;
  }
  const std::string folder = testing::BuildCheckpoint(spec, root / "one");
  const std::string other_folder = testing::BuildCheckpoint(other, root / "two");
  for (const auto& [path, good] : ReadFiles(folder).contents) {
    const std::string name = path.substr(folder.size());
    const std::string strange = *ReadWholeFile(PosixFileSystem(), other_folder + name, kAnySize);
    if (strange == good || name == std::string("/") + kManifestFile) continue;
    OverwriteFile(path, strange);
    for (const auto verify : {CheckpointReader::Verify::kFiles, CheckpointReader::Verify::kRecords}) {
      const auto rows = ReadEverything(folder, verify);
      EXPECT_EQ(rows.ok(), rows.ok() && *rows == testing::LiveRows(spec)) << name;
      if (verify == CheckpointReader::Verify::kFiles) {
        EXPECT_TRUE(absl::IsDataLoss(rows.status())) << name;
      }
    }
    OverwriteFile(path, good);
  }
}

}  // namespace
}  // namespace capstan
