#include "storage/layer_writer.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/file_system.h"
#include "tests/support/checkpoint_builder.h"

namespace capstan {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::vector<std::byte> ValueOf(uint32_t floats, uint8_t fill) {
  return std::vector<std::byte>(StoredValueBytes(floats), std::byte{fill});
}

std::unique_ptr<LayerWriter> WriterIn(const std::string& folder,
                                      uint64_t max_file_bytes = uint64_t{256} << 20) {
  auto writer = LayerWriter::Create({folder, "shard-0000/", 7, max_file_bytes, false});
  EXPECT_TRUE(writer.ok()) << writer.status();
  return *std::move(writer);
}

TEST(LayerWriter, SaysWhatIsInTheFiles) {
  const TemporaryFolder folder;
  const auto writer = WriterIn(folder.path());
  ASSERT_TRUE(writer->Put({1, 2, 3}, ValueOf(4, 1)).ok());
  ASSERT_TRUE(writer->Delete({1, 2, 4}).ok());
  ASSERT_TRUE(writer->Put({1, 3, 0}, ValueOf(4, 2)).ok());
  ASSERT_TRUE(writer->Delete({2, 0, 0}).ok());
  EXPECT_EQ(writer->rows(), 2u);
  const auto layer = writer->Finish();
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->checkpoint(), 7u);
  ASSERT_EQ(layer->file_size(), 1);
  EXPECT_EQ(layer->file(0).name(), "shard-0000/C000007-0000.sst");
  const std::string path = folder / "C000007-0000.sst";
  EXPECT_EQ(layer->file(0).bytes(), std::filesystem::file_size(path));
  EXPECT_EQ(layer->file(0).xxh3(), HashFile(PosixFileSystem(), path).value_or(""));
  EXPECT_EQ(layer->file(0).xxh3().size(), 16u);
  ASSERT_EQ(layer->part_size(), 3);
  EXPECT_EQ(layer->part(0).puts(), 1u);
  EXPECT_EQ(layer->part(0).deletes(), 1u);
  EXPECT_EQ(layer->part(0).floats(), 4u);
  EXPECT_EQ(layer->part(2).puts(), 0u);
  EXPECT_EQ(layer->part(2).floats(), 0u);
  ContentDigest digest;
  const auto value = ValueOf(4, 1);
  digest.AddRow(1, 3, value.data(), value.size());
  EXPECT_EQ((ContentDigest{layer->part(0).digest_low(), layer->part(0).digest_high()}), digest);
}

TEST(LayerWriter, ALayerWithoutARecordHasNoFile) {
  const TemporaryFolder folder;
  const auto layer = WriterIn(folder.path())->Finish();
  ASSERT_TRUE(layer.ok());
  EXPECT_EQ(layer->file_size(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(LayerWriter, FilesStayBelowTheLimit) {
  const TemporaryFolder folder;
  constexpr uint64_t kLimit = 200'000;
  const auto writer = WriterIn(folder.path(), kLimit);
  constexpr uint64_t kRows = 20'000;
  for (Key key = 0; key < kRows; ++key) ASSERT_TRUE(writer->Put({0, 0, key}, ValueOf(8, 1)).ok());
  const auto layer = writer->Finish();
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_GT(layer->file_size(), 4);
  for (const StoredFile& file : layer->file()) {
    EXPECT_LE(file.bytes(), kLimit) << file.name();
  }
  for (int i = 0; i + 1 < layer->file_size(); ++i) EXPECT_GE(layer->file(i).bytes(), kLimit / 2);
  ASSERT_EQ(layer->part_size(), 1);
  EXPECT_EQ(layer->part(0).puts(), kRows);
}

TEST(LayerWriter, RefusesWhatIsOutOfOrderOrOfAnotherLength) {
  const TemporaryFolder folder;
  const auto writer = WriterIn(folder.path());
  ASSERT_TRUE(writer->Put({1, 2, 3}, ValueOf(4, 1)).ok());
  const auto code = [](const absl::Status& status) { return status.code(); };
  EXPECT_EQ(code(writer->Put({1, 2, 3}, ValueOf(4, 1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(writer->Delete({1, 2, 2})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(writer->Put({0, 9, 9}, ValueOf(4, 1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(writer->Put({1, 2, 4}, ValueOf(5, 1))), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(writer->Put({1, 2, 4}, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(writer->Put({1, 2, 4}, ValueOf(0, 1))), absl::StatusCode::kInvalidArgument);
  std::vector<std::byte> odd = ValueOf(4, 1);
  odd.resize(odd.size() + 1);
  EXPECT_EQ(code(writer->Put({1, 2, 4}, odd)), absl::StatusCode::kInvalidArgument);
  // Another table may have other rows, and nothing of what was refused is in the layer.
  EXPECT_TRUE(writer->Put({2, 0, 0}, ValueOf(5, 1)).ok());
  const auto layer = writer->Finish();
  ASSERT_TRUE(layer.ok()) << layer.status();
  EXPECT_EQ(layer->part_size(), 2);
  EXPECT_EQ(layer->part(0).puts(), 1u);
}

TEST(LayerWriter, AFolderThatIsNotThereIsNamed) {
  const absl::Status status = LayerWriter::Create({"/nonexistent/shard-0000", "", 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/shard-0000"));
}

// A disk that is full for our process alone: no file may grow above a limit.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST(LayerWriter, ADiskThatIsFullAtTheEndIsAnErrorOfFinish) {
  const TemporaryFolder folder;
  const SmallDisk disk(30'000);
  const auto writer = WriterIn(folder.path());
  for (Key key = 0; key < 2'000; ++key) ASSERT_TRUE(writer->Put({0, 0, key}, ValueOf(8, 1)).ok());
  const absl::Status status = writer->Finish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("C000007-0000.sst"));
}

TEST(LayerWriter, AFullDiskIsAnErrorWithThePath) {
  const TemporaryFolder folder;
  absl::Status status;
  {
    const SmallDisk disk(300'000);
    const auto writer = WriterIn(folder.path());
    for (Key key = 0; key < 200'000 && status.ok(); ++key) status = writer->Put({0, 0, key}, ValueOf(8, 1));
    EXPECT_LT(writer->rows(), 100'000u);  // told soon, not at the end
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("C000007-0000.sst"));
}

}  // namespace
}  // namespace capstan
