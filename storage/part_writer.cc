#include <cstring>
#include <set>
#include <utility>

#include <glog/logging.h>

#include "storage/model_store.h"
#include "storage/part_format.h"

namespace capstan {
namespace {

constexpr size_t kWriteChunkBytes = size_t{1} << 16;

}  // namespace

struct PartWriter::Impl {
  std::unique_ptr<WritableFile> file;
  Sha256 hash;
  Sha256Digest digest = {};
  uint64_t bytes = 0;
  uint64_t rows = 0;
  bool finished = false;
  std::vector<PartitionSum> sums;
  std::set<std::pair<TableId, PartitionId>> seen;
  std::string chunk;

  absl::Status Write(const void* data, size_t size) {
    hash.Update(data, size);
    bytes += size;
    return file->Append(data, size);
  }

  // Hands the records gathered so far to the file and to the partition's hash.
  absl::Status FlushRecords(Sha256* partition_hash) {
    partition_hash->Update(chunk.data(), chunk.size());
    const absl::Status status = Write(chunk.data(), chunk.size());
    chunk.clear();
    return status;
  }
};

PartWriter::PartWriter() : impl_(std::make_unique<Impl>()) {}
PartWriter::~PartWriter() = default;

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(FileSystem& fs, const std::string& path) {
  std::unique_ptr<PartWriter> writer(new PartWriter);
  CAPSTAN_ASSIGN_OR_RETURN(writer->impl_->file, fs.Create(path));
  const PartHeader header;
  CAPSTAN_RETURN_IF_ERROR(writer->impl_->Write(&header, sizeof(header)));
  return writer;
}

absl::Status PartWriter::Add(TableId table, PartitionId partition, uint32_t floats, std::span<const Key> keys,
                             const std::function<const float*(size_t i)>& row) {
  if (keys.empty()) return absl::OkStatus();
  Impl& impl = *impl_;
  CHECK(!impl.finished) << "Add after Finish";
  CHECK(floats >= 1 && floats <= kMaxRecordFloats) << floats;
  CHECK(impl.seen.emplace(table, partition).second)
      << "table " << table << ", partition " << partition << " twice";

  const PartBlock block = {kBlockMagic, table, partition, floats, keys.size()};
  CAPSTAN_RETURN_IF_ERROR(impl.Write(&block, sizeof(block)));
  Sha256 hash;
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(i == 0 || keys[i - 1] < keys[i]) << "keys of table " << table << " are not increasing at " << i;
    impl.chunk.append(reinterpret_cast<const char*>(&keys[i]), sizeof(Key));
    impl.chunk.append(reinterpret_cast<const char*>(row(i)), size_t{floats} * sizeof(float));
    if (impl.chunk.size() >= kWriteChunkBytes) CAPSTAN_RETURN_IF_ERROR(impl.FlushRecords(&hash));
  }
  CAPSTAN_RETURN_IF_ERROR(impl.FlushRecords(&hash));
  impl.sums.push_back({table, partition, keys.size(), hash.Finish()});
  impl.rows += keys.size();
  return absl::OkStatus();
}

absl::Status PartWriter::Finish() {
  Impl& impl = *impl_;
  CHECK(!impl.finished) << "Finish twice";
  impl.finished = true;
  const PartBlock end = PartEnd(impl.sums.size(), impl.rows);
  CAPSTAN_RETURN_IF_ERROR(impl.Write(&end, sizeof(end)));
  CAPSTAN_RETURN_IF_ERROR(impl.file->Sync());
  CAPSTAN_RETURN_IF_ERROR(impl.file->Close());
  impl.digest = impl.hash.Finish();
  return absl::OkStatus();
}

const std::vector<PartitionSum>& PartWriter::sums() const { return impl_->sums; }
uint64_t PartWriter::bytes() const { return impl_->bytes; }
Sha256Digest PartWriter::file_sha256() const { return impl_->digest; }

}  // namespace capstan
