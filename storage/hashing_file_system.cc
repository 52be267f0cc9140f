#include "storage/hashing_file_system.h"

#include <utility>

namespace capstan {
namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

class HashedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  HashedFile(std::unique_ptr<rocksdb::FSWritableFile> file,
             std::shared_ptr<HashingFileSystem::FileState> state, bool sync)
      : FSWritableFileOwnerWrapper(std::move(file)), state_(std::move(state)), sync_(sync) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    return Told(data, FSWritableFileOwnerWrapper::Append(data, options, debug));
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& verification, IODebugContext* debug) override {
    return Told(data, FSWritableFileOwnerWrapper::Append(data, options, verification, debug));
  }
  // Bytes that did not come in order would not be hashed in order.
  IOStatus PositionedAppend(const Slice&, uint64_t, const IOOptions&, IODebugContext*) override {
    return IOStatus::NotSupported("PositionedAppend");
  }
  IOStatus PositionedAppend(const Slice&, uint64_t, const IOOptions&, const rocksdb::DataVerificationInfo&,
                            IODebugContext*) override {
    return IOStatus::NotSupported("PositionedAppend");
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return sync_ ? FSWritableFileOwnerWrapper::Sync(options, debug) : IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return sync_ ? FSWritableFileOwnerWrapper::Fsync(options, debug) : IOStatus::OK();
  }

 private:
  IOStatus Told(const Slice& data, IOStatus status) {
    state_->hash.Update(data.data(), data.size());
    if (!status.ok()) state_->failed = true;
    return status;
  }

  const std::shared_ptr<HashingFileSystem::FileState> state_;
  const bool sync_;
};

}  // namespace

IOStatus HashingFileSystem::NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                            std::unique_ptr<rocksdb::FSWritableFile>* file,
                                            IODebugContext* debug) {
  std::unique_ptr<rocksdb::FSWritableFile> real;
  IOStatus status = FileSystemWrapper::NewWritableFile(path, options, &real, debug);
  if (!status.ok()) return status;
  file_ = std::make_shared<FileState>();
  *file = std::make_unique<HashedFile>(std::move(real), file_, sync_);
  return status;
}

}  // namespace capstan
