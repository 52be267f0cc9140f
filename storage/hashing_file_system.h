// The real disk as RocksDB sees it while it writes a table file, which is hashed on the way: reading it back
// would cost a fifth more, and make the page cache hold what is not wanted again. Inside storage/ only.
#pragma once

#include <memory>
#include <string>

#include <rocksdb/file_system.h>

#include "common/hash.h"

namespace capstan {

class HashingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  // sync: false makes syncs of files do nothing.
  explicit HashingFileSystem(bool sync) : FileSystemWrapper(rocksdb::FileSystem::Default()), sync_(sync) {}
  const char* Name() const override { return "CapstanHashingFileSystem"; }
  rocksdb::IOStatus NewWritableFile(const std::string& path, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  // Of the file made last: all that was appended to it.
  const StreamHash128& hash() const { return file_->hash; }
  // An append to it has failed, which SstFileWriter tells only at the end.
  bool failed() const { return file_ != nullptr && file_->failed; }

  struct FileState {
    StreamHash128 hash;
    bool failed = false;
  };

 private:
  const bool sync_;
  std::shared_ptr<FileState> file_;  // the file's as well, which may go before us or after
};

}  // namespace capstan
