#include "tools/train/checkpoint_io.h"

#include <utility>

#include <fmt/core.h>

#include "proto/checkpoint.pb.h"
#include "ps/writer_process.h"
#include "storage/checkpoint_reader.h"
#include "tools/train/programs.h"

namespace capstan {
namespace {

class CheckpointSource final : public RowSource {
 public:
  explicit CheckpointSource(std::unique_ptr<CheckpointReader> reader) : reader_(std::move(reader)) {}
  std::vector<const ShardRecord*> records() const override {
    std::vector<const ShardRecord*> records;
    for (size_t i = 0; i < reader_->shards(); ++i) records.push_back(&reader_->shard(i));
    return records;
  }
  absl::Status ForEach(TableId table, PartitionId first, PartitionId last,
                       const std::function<absl::Status(const StoredRow& row)>& visit) const override {
    return reader_->ForEach(table, first, last, visit);
  }

 private:
  const std::unique_ptr<CheckpointReader> reader_;
};

// In place of a writer that could not be started: every checkpoint fails with the reason.
class BrokenSink final : public SnapshotSink {
 public:
  explicit BrokenSink(const absl::Status& why) : why_(why) {}
  void Begin(const SnapshotOrder& order) override { failed_ = SnapshotResult{order.id, why_, 0, ""}; }
  bool Offer(const SnapshotChunk&) override { return false; }
  bool Finish(const ShardRecord&) override { return false; }
  void Abort() override { failed_.reset(); }
  std::optional<SnapshotResult> Poll() override { return std::exchange(failed_, std::nullopt); }

 private:
  const absl::Status why_;
  std::optional<SnapshotResult> failed_;
};

// Every row is checked on its way (counts and digests), so the files need no pass of their own before.
absl::StatusOr<std::unique_ptr<RowSource>> OpenSource(const std::string& folder) {
  CAPSTAN_ASSIGN_OR_RETURN(
      std::unique_ptr<CheckpointReader> reader,
      CheckpointReader::Open(PosixFileSystem(), folder, CheckpointReader::Verify::kRecords));
  return std::unique_ptr<RowSource>(std::make_unique<CheckpointSource>(std::move(reader)));
}

}  // namespace

void AddCheckpoints(ServerOptions* options) {
  options->file_system = &PosixFileSystem();
  options->open_source = OpenSource;
  options->make_sink = [log = options->log](const std::string& shard) -> std::unique_ptr<SnapshotSink> {
    absl::StatusOr<std::unique_ptr<WriterProcess>> writer =
        WriterProcess::Start(FolderOfThisProgram() + "/capstan-checkpoint-writer");
    if (writer.ok()) return *std::move(writer);
    log(fmt::format("{}: there will be no checkpoints: {}", shard, std::string(writer.status().message())));
    return std::make_unique<BrokenSink>(writer.status());
  };
}

}  // namespace capstan
