// The three formats of an export. npz: a zip (stored, 64-bit sizes) of npy 1.0 arrays. safetensors: u64
// length of a JSON header, the header, the tensors one after another.
#include <fcntl.h>
#include <minizip/zip.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include <fmt/core.h>

#include "tools/inspect/opened.h"
#include "tools/inspect/tensors.h"
#include "tools/inspect/unfinished_output.h"

namespace capstan {
namespace {

absl::Status CheckLength(const TensorSource& tensor, uint64_t written) {
  if (written == tensor.bytes()) return absl::OkStatus();
  return DataLoss(
      fmt::format("tensor {} has {} bytes, its shape wants {}", tensor.name, written, tensor.bytes()));
}

// Makes PATH by `write` of a file beside it and a rename, else nothing is left. The name is this process's
// own: two exports may run at once, and PATH.tmp may be somebody's file.
absl::Status Replace(const std::string& path,
                     const std::function<absl::Status(const std::string& tmp)>& write) {
  FileSystem& fs = PosixFileSystem();
  const std::string tmp = fmt::format("{}.{}.tmp", path, getpid());
  const std::vector<std::string> above = MissingAbove(path);
  const auto undo = [&fs, tmp, above] {
    fs.Remove(tmp).IgnoreError();  // it may not be there at all
    for (const std::string& folder : above) fs.Remove(folder).IgnoreError();
  };
  const UnfinishedOutput unfinished(undo);
  absl::Status status = MakeFoldersDurably(fs, ParentFolder(path));
  if (status.ok()) status = write(tmp);
  if (status.ok()) status = fs.Rename(tmp, path);
  if (status.ok()) return fs.SyncFolder(ParentFolder(path));
  undo();
  return status;
}

std::string NpyHeader(const TensorSource& tensor) {
  const char* type = tensor.type == TensorType::kF32   ? "<f4"
                     : tensor.type == TensorType::kU32 ? "<u4"
                                                       : "<u8";
  std::string shape;
  for (const uint64_t n : tensor.shape) shape += fmt::format("{}, ", n);
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, shape);
  constexpr size_t kPrefix = 10, kAlign = 64;
  while ((kPrefix + dict.size() + 1) % kAlign != 0) dict += ' ';
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

// minizip tells only that it failed; errno still says why.
absl::Status ZipFailure(const std::string& path) {
  return Unavailable(
      fmt::format("writing '{}': {}", path, errno != 0 ? std::strerror(errno) : "minizip cannot go on"));
}

absl::Status ZipOne(zipFile zip, const TensorSource& tensor, const std::string& path) {
  const auto failed = [&path] { return ZipFailure(path); };
  const zip_fileinfo info = {};
  if (zipOpenNewFileInZip4_64(
          zip, (tensor.name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0, nullptr, /*method=*/0,
          /*level=*/0, /*raw=*/0, -MAX_WBITS, DEF_MEM_LEVEL, Z_DEFAULT_STRATEGY, nullptr, 0, 0, 0,
          /*zip64=*/1) != ZIP_OK) {
    return failed();
  }
  uint64_t written = 0;
  const auto write = [&](const void* data, size_t bytes) -> absl::Status {
    if (bytes > std::numeric_limits<unsigned>::max()) return Internal("a piece of a tensor is too large");
    written += bytes;
    return bytes == 0 || zipWriteInFileInZip(zip, data, static_cast<unsigned>(bytes)) == ZIP_OK
               ? absl::OkStatus()
               : failed();
  };
  const std::string header = NpyHeader(tensor);
  CAPSTAN_RETURN_IF_ERROR(write(header.data(), header.size()));
  written = 0;
  CAPSTAN_RETURN_IF_ERROR(tensor.stream(write));
  CAPSTAN_RETURN_IF_ERROR(CheckLength(tensor, written));
  return zipCloseFileInZip(zip) == ZIP_OK ? absl::OkStatus() : failed();
}

// Some disks tell only now that they are full. minizip has closed the file; any descriptor of it syncs it.
absl::Status SyncFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && fdatasync(fd) == 0;
  const absl::Status status = synced ? absl::OkStatus() : ZipFailure(path);
  if (fd >= 0) close(fd);
  return status;
}

absl::Status ZipAll(const std::vector<TensorSource>& tensors, const std::string& path) {
  errno = 0;
  zipFile zip = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  if (zip == nullptr) return ZipFailure(path);
  absl::Status status;
  for (const TensorSource& tensor : tensors) {
    status = ZipOne(zip, tensor, path);
    if (!status.ok()) break;
  }
  if (zipClose(zip, nullptr) != ZIP_OK && status.ok()) status = ZipFailure(path);
  return status.ok() ? SyncFile(path) : status;
}

std::string SafetensorsHeader(const std::vector<TensorSource>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  Json header;
  Json about;
  for (const auto& [name, value] : metadata) about[name] = value;
  header[kSafetensorsMetadata] = about;
  uint64_t at = 0;
  for (const TensorSource& tensor : tensors) {
    Json entry;
    entry["dtype"] = tensor.type == TensorType::kF32   ? "F32"
                     : tensor.type == TensorType::kU32 ? "U32"
                                                       : "U64";
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {at, at + tensor.bytes()};
    at += tensor.bytes();
    header[tensor.name] = entry;
  }
  // Names come out of a manifest and may be no UTF-8.
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  while (text.size() % 8 != 0) text += ' ';  // tensors begin aligned
  return text;
}

void AppendFloats(const float* values, uint32_t n, std::string* line) {
  for (uint32_t i = 0; i < n; ++i) *line += fmt::format(",{:.9g}", values[i]);
}

std::string CsvHeader(const TableSpec& table, bool with_slots, uint32_t slots) {
  std::string header = "key";
  for (uint32_t i = 0; i < table.width(); ++i) header += fmt::format(",w{}", i);
  for (uint32_t i = 0; i < slots; ++i) header += fmt::format(",s{}", i);
  return header + (with_slots ? ",updates,last_step\n" : "\n");
}

absl::Status CsvOfSparse(const CheckpointReader& reader, const TableSpec& table, bool with_slots,
                         WritableFile& file) {
  const auto id = static_cast<TableId>(table.id());
  const uint32_t floats = std::max(reader.floats(id), table.width());
  const uint32_t slots = with_slots ? floats - table.width() : 0;
  std::string text = CsvHeader(table, with_slots, slots);
  const absl::Status read =
      reader.ForEach(id, 0, reader.partitions(), [&](const StoredRow& row) -> absl::Status {
        constexpr size_t kBatch = 1 << 18;
        text += fmt::format("{}", row.key);
        AppendFloats(row.values, table.width() + slots, &text);
        if (with_slots) text += fmt::format(",{},{}", row.updates, row.last_step);
        text += '\n';
        if (text.size() < kBatch) return absl::OkStatus();
        const absl::Status status = file.Append(text.data(), text.size());
        text.clear();
        return status;
      });
  CAPSTAN_RETURN_IF_ERROR(read);
  return file.Append(text.data(), text.size());
}

absl::Status CsvOfDense(const TensorSource& tensor, WritableFile& file) {
  constexpr std::string_view kHeader = "element,value\n";
  CAPSTAN_RETURN_IF_ERROR(file.Append(kHeader.data(), kHeader.size()));
  uint64_t element = 0;
  return tensor.stream([&](const void* data, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes / sizeof(float); ++i) {
      text += fmt::format("{},{:.9g}\n", element++, static_cast<const float*>(data)[i]);
    }
    return file.Append(text.data(), text.size());
  });
}

}  // namespace

absl::Status WriteNpz(const std::vector<TensorSource>& tensors, const std::string& path) {
  return Replace(path, [&](const std::string& tmp) { return ZipAll(tensors, tmp); });
}

absl::Status WriteSafetensors(const std::vector<TensorSource>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata,
                              const std::string& path) {
  return Replace(path, [&](const std::string& tmp) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, PosixFileSystem().Create(tmp));
    const std::string header = SafetensorsHeader(tensors, metadata);
    const uint64_t length = header.size();
    CAPSTAN_RETURN_IF_ERROR(file->Append(&length, sizeof(length)));
    CAPSTAN_RETURN_IF_ERROR(file->Append(header.data(), header.size()));
    for (const TensorSource& tensor : tensors) {
      uint64_t written = 0;
      CAPSTAN_RETURN_IF_ERROR(tensor.stream([&](const void* data, size_t bytes) {
        written += bytes;
        return file->Append(data, bytes);
      }));
      CAPSTAN_RETURN_IF_ERROR(CheckLength(tensor, written));
    }
    CAPSTAN_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  });
}

absl::Status AppendCsv(const CheckpointReader& reader, const TableSpec& table, bool slots, WritableFile& file) {
  return table.kind() == TableSpec::DENSE ? CsvOfDense(TensorsOf(reader, {&table}, false)[0], file)
                                          : CsvOfSparse(reader, table, slots, file);
}

absl::Status WriteCsv(const CheckpointReader& reader, const TableSpec& table, bool slots,
                      const std::string& path) {
  return Replace(path, [&](const std::string& tmp) -> absl::Status {
    CAPSTAN_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, PosixFileSystem().Create(tmp));
    CAPSTAN_RETURN_IF_ERROR(AppendCsv(reader, table, slots, *file));
    CAPSTAN_RETURN_IF_ERROR(file->Sync());
    return file->Close();
  });
}

}  // namespace capstan
