#include "ps/chain_compactor.h"

#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include <fmt/core.h>
#include <glog/logging.h>

#include "common/file_system.h"
#include "storage/checkpoint_format.h"
#include "storage/layer_merge.h"

namespace capstan {
namespace {

constexpr char kCompactMarker[] = "capstan-compact";
constexpr int kCompactNice = 19;

std::string CompactFileName(const StoredFile& file) { return file.name().substr(file.name().rfind('/') + 1); }

bool SameLayer(const StoredLayer& a, const StoredLayer& b) { return a.SerializeAsString() == b.SerializeAsString(); }

bool BeginsWith(const ShardRecord& record, const ShardRecord& chain) {
  if (record.layer_size() < chain.layer_size()) return false;
  for (int i = 0; i < chain.layer_size(); ++i) {
    if (!SameLayer(record.layer(i), chain.layer(i))) return false;
  }
  return true;
}

}  // namespace

void ChainCompactor::UseFolder(const std::string& root, uint32_t shard) {
  const std::string folder = fmt::format("{}/.compact-{}", root, ShardFolderName(shard));
  if (folder == folder_) return;
  Cancel();
  folder_ = folder;
  shard_ = shard;
  FileSystem& fs = PosixFileSystem();
  if (const absl::StatusOr<bool> left = fs.Exists(folder_ + "/" + kCompactMarker); !left.ok() || !*left) return;
  if (absl::Status status = RemoveTree(fs, folder_); !status.ok()) LOG(WARNING) << status;
}

void ChainCompactor::Cancel() {
  cancel_ = true;
  if (thread_.joinable()) thread_.join();
  cancel_ = false;
  done_ = false;
  if (chain_.layer_size() == 0) return;
  chain_.Clear();
  merged_.Clear();
  if (absl::Status status = RemoveTree(PosixFileSystem(), folder_); !status.ok()) LOG(WARNING) << status;
}

absl::Status ChainCompactor::Prepare(const ShardRecord& record, const std::string& folder, uint64_t reserve_bytes) {
  FileSystem& fs = PosixFileSystem();
  CAPSTAN_ASSIGN_OR_RETURN(const bool taken, fs.Exists(folder_));
  if (taken) return InvalidArgument(fmt::format("'{}' is there and not ours; remove it", folder_));
  uint64_t bytes = 0;
  for (const StoredLayer& layer : record.layer()) {
    for (const StoredFile& file : layer.file()) bytes += file.bytes();
  }
  CAPSTAN_ASSIGN_OR_RETURN(const uint64_t free, fs.FreeBytes(folder));
  if (free < bytes + reserve_bytes) {
    return Unavailable(fmt::format("{} bytes free under '{}', {} wanted", free, folder, bytes + reserve_bytes));
  }
  *chain_.mutable_layer() = record.layer();  // from here on the folder is ours to remove
  CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(folder_));
  CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> marker, fs.Create(folder_ + "/" + kCompactMarker));
  CAPSTAN_RETURN_IF_ERROR(marker->Close());
  const std::string links = source() + "/" + ShardFolderName(shard_);
  CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(links));
  CAPSTAN_RETURN_IF_ERROR(fs.MakeFolders(target()));
  for (const StoredLayer& layer : record.layer()) {
    for (const StoredFile& file : layer.file()) {
      const std::string name = CompactFileName(file);
      CAPSTAN_RETURN_IF_ERROR(fs.HardLink(folder + "/" + name, links + "/" + name));
    }
  }
  return absl::OkStatus();
}

void ChainCompactor::Start(const ShardRecord& record, const std::string& folder, uint64_t reserve_bytes) {
  if (chain_.layer_size() > 0 && BeginsWith(record, chain_)) return;  // under way, or waiting to be used
  Cancel();
  if (absl::Status status = Prepare(record, folder, reserve_bytes); !status.ok()) {
    LOG(WARNING) << "the chain of " << record.layer_size() << " layers stays: " << status;
    return Cancel();
  }
  thread_ = std::thread([this] { Merge(); });
}

void ChainCompactor::Merge() {
  // Of this thread alone, in Linux.
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kCompactNice) != 0) PLOG(WARNING) << "nice";
  std::vector<const StoredLayer*> layers;
  for (const StoredLayer& layer : chain_.layer()) layers.push_back(&layer);
  LayerWriterOptions options;
  options.folder = target();
  options.name_prefix = ShardFolderName(shard_) + "/";
  options.checkpoint = layers.back()->checkpoint();
  options.sync = sync_;
  absl::StatusOr<StoredLayer> merged = MergeLayers(layers, source(), options, &cancel_, nullptr);
  if (!merged.ok()) {
    if (!cancel_) LOG(WARNING) << "the chain of " << layers.size() << " layers stays: " << merged.status();
    return;
  }
  merged_ = *std::move(merged);
  done_ = true;
}

std::optional<ChainCompactor::Merged> ChainCompactor::TakeFor(const ShardRecord& parent) {
  if (!done_) return std::nullopt;
  if (parent.layer_size() > 0 && SameLayer(parent.layer(0), merged_)) {
    Cancel();
    return std::nullopt;
  }
  if (!BeginsWith(parent, chain_)) return std::nullopt;
  return Merged{merged_, chain_.layer_size(), target()};
}

}  // namespace capstan
