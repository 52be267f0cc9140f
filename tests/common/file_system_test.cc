// One suite over the real disk and its in-memory twin: what a caller may rely on is the same.
#include "common/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_file_system.h"

namespace capstan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileSystemTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "Memory") {
      memory_ = NewMemoryFileSystem();
      fs_ = memory_.get();
      root_ = "/test";
    } else {
      fs_ = &PosixFileSystem();
      std::string pattern = ::testing::TempDir() + "capstan_fs_XXXXXX";
      ASSERT_NE(mkdtemp(pattern.data()), nullptr);
      root_ = pattern;
    }
    ASSERT_TRUE(fs_->MakeFolders(root_).ok());
  }
  void TearDown() override {
    if (memory_ == nullptr) std::filesystem::remove_all(root_);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  absl::Status Write(const std::string& path, const std::string& contents) {
    CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs_->Create(path));
    CAPSTAN_RETURN_IF_ERROR(file->Append(contents.data(), contents.size()));
    return file->Close();
  }
  std::string Read(const std::string& path) {
    const absl::StatusOr<std::string> contents = ReadWholeFile(*fs_, path, 1u << 30);
    return contents.ok() ? *contents : "<" + std::string(contents.status().message()) + ">";
  }

  FileSystem* fs_ = nullptr;
  std::unique_ptr<FileSystem> memory_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(Both, FileSystemTest, ::testing::Values("Posix", "Memory"),
                         [](const auto& row) { return std::string(row.param); });

TEST_P(FileSystemTest, ReadsBackWhatWasAppended) {
  // Around the write buffer of the real one (256 KiB): below, at, and above it, and across it in pieces.
  for (const size_t size :
       {size_t{0}, size_t{1}, (size_t{1} << 18) - 1, size_t{1} << 18, (size_t{1} << 18) + 1}) {
    std::string wanted(size, '\0');
    for (size_t i = 0; i < size; ++i) wanted[i] = static_cast<char>(i * 31);
    ASSERT_TRUE(Write(Path("whole"), wanted).ok());
    EXPECT_EQ(Read(Path("whole")), wanted) << size;

    absl::StatusOr<std::unique_ptr<WritableFile>> file = fs_->Create(Path("pieces"));
    ASSERT_TRUE(file.ok()) << file.status();
    for (size_t at = 0; at < size; at += 10007) {
      ASSERT_TRUE((*file)->Append(wanted.data() + at, std::min<size_t>(10007, size - at)).ok());
    }
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
    EXPECT_EQ(Read(Path("pieces")), wanted) << size;
  }
}

TEST_P(FileSystemTest, CreateTruncatesAndSyncMakesBytesVisible) {
  ASSERT_TRUE(Write(Path("a"), "a long text").ok());
  absl::StatusOr<std::unique_ptr<WritableFile>> file = fs_->Create(Path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("new", 3).ok());
  ASSERT_TRUE((*file)->Sync().ok());
  EXPECT_EQ(Read(Path("a")), "new");
  ASSERT_TRUE((*file)->Close().ok());
}

struct RangeCase {
  uint64_t offset;
  size_t size;
  absl::StatusCode code;
};

TEST_P(FileSystemTest, ReadsExactlyTheRangeOrFails) {
  ASSERT_TRUE(Write(Path("ten"), "0123456789").ok());
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = fs_->Open(Path("ten"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->size(), 10u);
  const RangeCase kCases[] = {
      {0, 10, absl::StatusCode::kOk},
      {3, 4, absl::StatusCode::kOk},
      {10, 0, absl::StatusCode::kOk},
      {0, 11, absl::StatusCode::kDataLoss},
      {9, 2, absl::StatusCode::kDataLoss},
      {10, 1, absl::StatusCode::kDataLoss},
      {11, 0, absl::StatusCode::kDataLoss},
      {uint64_t{1} << 63, 1, absl::StatusCode::kDataLoss},
      {std::numeric_limits<uint64_t>::max(), 2, absl::StatusCode::kDataLoss},
  };
  for (const RangeCase& c : kCases) {
    std::string out(16, '-');
    const absl::Status status = (*file)->Read(c.offset, out.data(), c.size);
    EXPECT_EQ(status.code(), c.code) << c.offset << "+" << c.size << ": " << status;
    if (status.ok()) {
      EXPECT_EQ(out.substr(0, c.size), std::string("0123456789").substr(c.offset, c.size));
      EXPECT_EQ(out[c.size], '-');
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr("ten': it ends at byte 10"));
    }
  }
}

TEST_P(FileSystemTest, MissingFilesAreNotFoundAndNamed) {
  const std::string gone = Path("gone");
  const std::function<absl::Status()> kCalls[] = {
      [&] { return fs_->Open(gone).status(); },
      [&] { return fs_->List(gone).status(); },
      [&] { return fs_->Rename(gone, Path("x")); },
      [&] { return fs_->Remove(gone); },
      [&] { return ReadWholeFile(*fs_, gone, 10).status(); },
  };
  for (const auto& call : kCalls) {
    const absl::Status status = call();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(gone));
  }
  EXPECT_FALSE(*fs_->Exists(gone));
}

TEST_P(FileSystemTest, FoldersAreMadeListedAndRemoved) {
  ASSERT_TRUE(fs_->MakeFolders(Path("a/b/c")).ok());
  ASSERT_TRUE(fs_->MakeFolders(Path("a/b/c")).ok()) << "it may exist";
  EXPECT_TRUE(*fs_->Exists(Path("a/b")));
  ASSERT_TRUE(Write(Path("a/z"), "1").ok());
  ASSERT_TRUE(Write(Path("a/b/y"), "2").ok());
  EXPECT_THAT(*fs_->List(Path("a")), ElementsAre("b", "z"));
  EXPECT_THAT(*fs_->List(Path("a/b")), ElementsAre("c", "y"));
  EXPECT_THAT(*fs_->List(Path("a/b/c")), IsEmpty());
  EXPECT_TRUE(fs_->SyncFolder(Path("a")).ok());

  EXPECT_EQ(fs_->Remove(Path("a/b")).code(), absl::StatusCode::kUnavailable) << "it is not empty";
  EXPECT_TRUE(fs_->Remove(Path("a/b/c")).ok());
  EXPECT_TRUE(fs_->Remove(Path("a/b/y")).ok());
  EXPECT_TRUE(fs_->Remove(Path("a/b")).ok());
  EXPECT_FALSE(*fs_->Exists(Path("a/b")));
  EXPECT_THAT(*fs_->List(Path("a")), ElementsAre("z"));
}

TEST_P(FileSystemTest, AFileWhereAFolderIsWantedIsRefused) {
  ASSERT_TRUE(Write(Path("file"), "x").ok());
  EXPECT_EQ(fs_->MakeFolders(Path("file")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fs_->MakeFolders(Path("file/under")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Read(Path("file")), "x");
}

TEST_P(FileSystemTest, AFolderIsNoFile) {
  ASSERT_TRUE(fs_->MakeFolders(Path("folder")).ok());
  EXPECT_EQ(fs_->Open(Path("folder")).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(fs_->Create(Path("folder")).status().code(), absl::StatusCode::kUnavailable);
}

TEST_P(FileSystemTest, RenameReplaces) {
  ASSERT_TRUE(Write(Path("from"), "new").ok());
  ASSERT_TRUE(Write(Path("to"), "old").ok());
  ASSERT_TRUE(fs_->Rename(Path("from"), Path("to")).ok());
  EXPECT_EQ(Read(Path("to")), "new");
  EXPECT_FALSE(*fs_->Exists(Path("from")));
}

TEST_P(FileSystemTest, WholeFilesHaveALimit) {
  ASSERT_TRUE(Write(Path("ten"), "0123456789").ok());
  EXPECT_TRUE(ReadWholeFile(*fs_, Path("ten"), 10).ok());
  const absl::Status status = ReadWholeFile(*fs_, Path("ten"), 9).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 10 bytes, at most 9"));
}

TEST_P(FileSystemTest, AtomicWritesReplaceAndLeaveNothing) {
  ASSERT_TRUE(WriteFileAtomically(*fs_, Path("state"), "one").ok());
  ASSERT_TRUE(WriteFileAtomically(*fs_, Path("state"), "two").ok());
  EXPECT_EQ(Read(Path("state")), "two");
  EXPECT_THAT(*fs_->List(root_), ElementsAre("state"));
}

TEST_P(FileSystemTest, AtomicWritesAreWholeWhicheverCallFails) {
  for (uint64_t n = 1;; ++n) {
    ASSERT_TRUE(WriteFileAtomically(*fs_, Path("state"), "old").ok());
    FaultyFileSystem faulty(*fs_);
    DiskFault fault;
    fault.at = n;
    fault.calls = {DiskCall::kCreate, DiskCall::kAppend, DiskCall::kSync,
                   DiskCall::kClose,  DiskCall::kRename, DiskCall::kSyncFolder};
    faulty.Arm(fault);
    const absl::Status status = WriteFileAtomically(faulty, Path("state"), "new");
    EXPECT_EQ(status.ok(), !faulty.fired()) << "call " << n;
    const std::string seen = Read(Path("state"));
    EXPECT_TRUE(seen == "new" || (!status.ok() && seen == "old")) << "call " << n << ": " << seen;
    EXPECT_THAT(*fs_->List(root_), ElementsAre("state")) << "call " << n << " left something behind";
    if (!faulty.fired()) {
      EXPECT_EQ(n, 7u) << "create, append, sync, close, rename, sync the folder: six calls can fail";
      break;
    }
  }
}

TEST_P(FileSystemTest, StatTellsFilesFromFolders) {
  ASSERT_TRUE(Write(Path("ten"), "0123456789").ok());
  ASSERT_TRUE(fs_->MakeFolders(Path("folder")).ok());
  EXPECT_EQ(fs_->Stat(Path("ten"))->kind, FileInfo::Kind::kFile);
  EXPECT_EQ(fs_->Stat(Path("ten"))->bytes, 10u);
  EXPECT_EQ(fs_->Stat(Path("folder"))->kind, FileInfo::Kind::kFolder);
  EXPECT_EQ(fs_->Stat(Path("gone")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_GT(*fs_->FreeBytes(root_), 0u);
  EXPECT_EQ(fs_->FreeBytes(Path("gone")).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(FileSystemTest, AHardLinkOutlivesTheFirstName) {
  ASSERT_TRUE(Write(Path("first"), "rows").ok());
  ASSERT_TRUE(fs_->HardLink(Path("first"), Path("second")).ok());
  EXPECT_EQ(fs_->HardLink(Path("first"), Path("second")).code(), absl::StatusCode::kUnavailable) << "it exists";
  EXPECT_EQ(fs_->HardLink(Path("gone"), Path("third")).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(fs_->Remove(Path("first")).ok());
  EXPECT_EQ(Read(Path("second")), "rows");
}

TEST_P(FileSystemTest, FoldersAreRenamedWithWhatTheyHold) {
  ASSERT_TRUE(fs_->MakeFolders(Path("a/b")).ok());
  ASSERT_TRUE(Write(Path("a/b/x"), "1").ok());
  ASSERT_TRUE(fs_->Rename(Path("a"), Path("c")).ok());
  EXPECT_EQ(Read(Path("c/b/x")), "1");
  EXPECT_FALSE(*fs_->Exists(Path("a")));
  ASSERT_TRUE(fs_->MakeFolders(Path("full/of")).ok());
  EXPECT_EQ(fs_->Rename(Path("c"), Path("full")).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Write(Path("file"), "2").ok());
  EXPECT_EQ(fs_->Rename(Path("c"), Path("file")).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(fs_->Rename(Path("file"), Path("c")).code(), absl::StatusCode::kUnavailable);
}

TEST_P(FileSystemTest, ATreeIsRemovedWhole) {
  ASSERT_TRUE(fs_->MakeFolders(Path("tree/a/b")).ok());
  ASSERT_TRUE(Write(Path("tree/a/b/x"), "1").ok());
  ASSERT_TRUE(Write(Path("tree/y"), "2").ok());
  ASSERT_TRUE(Write(Path("beside"), "3").ok());
  ASSERT_TRUE(RemoveTree(*fs_, Path("tree")).ok());
  EXPECT_THAT(*fs_->List(root_), ElementsAre("beside"));
  EXPECT_TRUE(RemoveTree(*fs_, Path("tree")).ok()) << "nothing there is fine";
}

struct ParentCase {
  const char* path;
  const char* parent;
};

TEST(ParentFolder, FollowsTheTable) {
  for (const ParentCase& c : {ParentCase{"a/b", "a"}, ParentCase{"a", "."}, ParentCase{"/a", "/"},
                              ParentCase{"/a/b/c", "/a/b"}}) {
    EXPECT_EQ(ParentFolder(c.path), c.parent);
  }
}

// Only the real disk has these.
TEST(PosixFileSystem, AFullDiskIsAnErrorThatStays) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  absl::StatusOr<std::unique_ptr<WritableFile>> file = PosixFileSystem().Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("abc", 3).ok()) << "it is only kept in memory";
  const absl::Status status = (*file)->Sync();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dev/full': No space left"));
  EXPECT_EQ((*file)->Append("d", 1), status);
  EXPECT_EQ((*file)->Sync(), status);
  EXPECT_EQ((*file)->Close(), status);
}

TEST(PosixFileSystem, RemovingATreeDoesNotFollowLinks) {
  std::string folder = ::testing::TempDir() + "capstan_link_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  FileSystem& fs = PosixFileSystem();
  ASSERT_TRUE(fs.MakeFolders(folder + "/precious").ok());
  ASSERT_TRUE(WriteFileAtomically(fs, folder + "/precious/file", "x").ok());
  ASSERT_TRUE(fs.MakeFolders(folder + "/tree").ok());
  ASSERT_EQ(symlink((folder + "/precious").c_str(), (folder + "/tree/link").c_str()), 0);
  ASSERT_EQ(symlink("/nowhere/at/all", (folder + "/tree/dangling").c_str()), 0);
  EXPECT_EQ(fs.Stat(folder + "/tree/link")->kind, FileInfo::Kind::kLink);
  EXPECT_EQ(fs.Stat("/dev/null")->kind, FileInfo::Kind::kOther);
  EXPECT_TRUE(RemoveTree(fs, folder + "/tree").ok());
  EXPECT_THAT(*fs.List(folder), ElementsAre("precious"));
  EXPECT_THAT(*fs.List(folder + "/precious"), ElementsAre("file"));
  std::filesystem::remove_all(folder);
}

TEST(PosixFileSystem, APipeIsRefusedAndNotWaitedFor) {
  std::string folder = ::testing::TempDir() + "capstan_pipe_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(PosixFileSystem().Open(pipe).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove_all(folder);
}

TEST(PosixFileSystem, CreateInAMissingFolderNamesThePath) {
  const absl::Status status = PosixFileSystem().Create("/nowhere/at/all").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/at/all"));
}

}  // namespace
}  // namespace capstan
