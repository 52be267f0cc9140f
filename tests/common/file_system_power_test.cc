// What the in-memory disk keeps when the power is cut, and what the faulty one does to a call.
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Keep = MemoryFileSystem::Keep;

std::unique_ptr<WritableFile> NewFile(FileSystem& fs, const std::string& path, const std::string& contents) {
  absl::StatusOr<std::unique_ptr<WritableFile>> file = fs.Create(path);
  EXPECT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Append(contents.data(), contents.size()).ok());
  return *std::move(file);
}

std::string Contents(FileSystem& fs, const std::string& path) {
  const absl::StatusOr<std::string> contents = ReadWholeFile(fs, path, 1 << 20);
  return contents.ok() ? *contents : "<none>";
}

TEST(PowerCut, ForgetsBytesAndNamesThatWereNotSynced) {
  const auto fs = NewMemoryFileSystem();
  ASSERT_TRUE(MakeFoldersDurably(*fs, "/d").ok());
  const auto synced = NewFile(*fs, "/d/synced", "old");
  ASSERT_TRUE(synced->Sync().ok());
  const auto unsynced = NewFile(*fs, "/d/unsynced", "bytes");
  ASSERT_TRUE(fs->SyncFolder("/d").ok());
  ASSERT_TRUE(synced->Append("new", 3).ok());
  ASSERT_TRUE(NewFile(*fs, "/d/nameless", "x")->Sync().ok());
  ASSERT_TRUE(fs->MakeFolders("/d/folder").ok());
  fs->PowerCut(Keep::kSynced, 0);
  EXPECT_THAT(*fs->List("/d"), ElementsAre("synced", "unsynced")) << "a synced file without a synced name is gone";
  EXPECT_EQ(Contents(*fs, "/d/synced"), "old");
  EXPECT_EQ(Contents(*fs, "/d/unsynced"), "");
  EXPECT_EQ(synced->Append("more", 4).code(), absl::StatusCode::kUnavailable) << "its process is gone";
}

TEST(PowerCut, UndoesRenamesAndRemovalsThatWereNotSynced) {
  const auto fs = NewMemoryFileSystem();
  ASSERT_TRUE(MakeFoldersDurably(*fs, "/d/C1.tmp").ok());
  ASSERT_TRUE(WriteFileAtomically(*fs, "/d/C1.tmp/x", "1").ok());
  ASSERT_TRUE(WriteFileAtomically(*fs, "/d/y", "2").ok());
  ASSERT_TRUE(fs->Rename("/d/C1.tmp", "/d/C1").ok());
  ASSERT_TRUE(fs->Remove("/d/y").ok());
  fs->PowerCut(Keep::kSynced, 0);
  EXPECT_THAT(*fs->List("/d"), ElementsAre("C1.tmp", "y"));
  EXPECT_EQ(Contents(*fs, "/d/C1.tmp/x"), "1");
}

TEST(PowerCut, KeepsEverythingWhenAsked) {
  const auto fs = NewMemoryFileSystem();
  const auto file = NewFile(*fs, "/d/a", "bytes");
  ASSERT_TRUE(fs->Rename("/d/a", "/d/b").ok());
  fs->PowerCut(Keep::kEverything, 0);
  fs->PowerCut(Keep::kSynced, 0);
  EXPECT_EQ(Contents(*fs, "/d/b"), "bytes") << "the first cut made it durable";
}

TEST(PowerCut, SomethingIsAnySubsetAndARenameIsWhole) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto fs = NewMemoryFileSystem();
    ASSERT_TRUE(WriteFileAtomically(*fs, "/d/a", "old").ok());
    const auto file = NewFile(*fs, "/d/c", "ab");
    ASSERT_TRUE(fs->Rename("/d/a", "/d/b").ok());
    fs->PowerCut(Keep::kSomething, seed);
    const bool before = *fs->Exists("/d/a");
    ASSERT_NE(before, *fs->Exists("/d/b")) << "seed " << seed << ": both names or none";
    EXPECT_EQ(Contents(*fs, before ? "/d/a" : "/d/b"), "old");
    seen.insert((before ? "a " : "b ") + Contents(*fs, "/d/c"));
  }
  using std::string_literals::operator""s;
  for (const std::string& text : {"a <none>"s, "b <none>"s, "a "s, "b "s, "a a"s, "b ab"s, "a \0\0"s}) {
    EXPECT_EQ(seen.count(text), 1u) << text;
  }
}

TEST(PowerCut, HardLinksShareTheirBytes) {
  const auto fs = NewMemoryFileSystem();
  ASSERT_TRUE(WriteFileAtomically(*fs, "/d/a", "rows").ok());
  ASSERT_TRUE(fs->HardLink("/d/a", "/d/b").ok());
  ASSERT_TRUE(fs->SyncFolder("/d").ok());
  ASSERT_TRUE(fs->Remove("/d/a").ok());
  ASSERT_TRUE(fs->SyncFolder("/d").ok());
  fs->PowerCut(Keep::kSynced, 0);
  EXPECT_THAT(*fs->List("/d"), ElementsAre("b"));
  EXPECT_EQ(Contents(*fs, "/d/b"), "rows");
}

TEST(PowerCut, FoldersMadeDurablyStay) {
  for (uint64_t n = 1;; ++n) {
    const auto fs = NewMemoryFileSystem();
    FaultyFileSystem faulty(*fs);
    DiskFault fault;
    fault.at = n;
    fault.for_ever = true;
    faulty.Arm(fault);
    const bool made = MakeFoldersDurably(faulty, "/a/b/c").ok();
    fs->PowerCut(Keep::kSynced, 0);
    EXPECT_TRUE(!made || *fs->Exists("/a/b/c")) << n;
    if (!faulty.fired()) break;
    ASSERT_LT(n, 100u);
  }
}

TEST(PowerCut, AtomicWritesAreWholeWheneverItComes) {
  for (uint64_t n = 1;; ++n) {
    bool fired = false;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto fs = NewMemoryFileSystem();
      ASSERT_TRUE(WriteFileAtomically(*fs, "/d/state", "old").ok());
      FaultyFileSystem faulty(*fs);
      DiskFault fault;
      fault.at = n;
      fault.for_ever = true;
      faulty.Arm(fault);
      const bool written = WriteFileAtomically(faulty, "/d/state", "new").ok();
      fired = faulty.fired();
      fs->PowerCut(seed == 0 ? Keep::kSynced : seed == 1 ? Keep::kEverything : Keep::kSomething, seed);
      const std::string seen = Contents(*fs, "/d/state");
      EXPECT_TRUE(seen == "new" || (!written && seen == "old")) << n << " " << seed << ": " << seen;
    }
    if (!fired) break;
  }
}

TEST(FaultyFileSystem, FailsTheCallItWasToldTo) {
  const auto fs = NewMemoryFileSystem();
  FaultyFileSystem faulty(*fs);
  DiskFault fault;
  fault.at = 2;
  fault.calls = {DiskCall::kAppend};
  fault.half_appended = true;
  faulty.Arm(fault);
  auto file = faulty.Create("/a");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append("1234", 4).ok());
  EXPECT_FALSE(faulty.fired());
  const absl::Status status = (*file)->Append("5678", 4);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'/a': no space left"));
  EXPECT_TRUE(faulty.fired());
  EXPECT_EQ((*file)->Append("9", 1), status) << "a broken file stays broken";
  EXPECT_EQ(Contents(*fs, "/a"), "123456");

  fault = DiskFault();
  fault.at = 1;
  fault.takes_effect = true;
  faulty.Arm(fault);
  EXPECT_FALSE(faulty.Rename("/a", "/b").ok());
  EXPECT_EQ(Contents(faulty, "/b"), "123456") << "it was renamed all the same";

  fault.for_ever = true;
  fault.takes_effect = false;
  faulty.Arm(fault);
  EXPECT_FALSE(faulty.Exists("/b").ok());
  EXPECT_FALSE(faulty.List("/").ok());
  EXPECT_THAT(*fs->List("/"), ElementsAre("b"));
}

}  // namespace
}  // namespace capstan
