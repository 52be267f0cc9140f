// A checkpoint as a list of named tensors, read row by row while they are written: memory does not grow with
// the tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "storage/checkpoint_reader.h"

namespace capstan {

enum class TensorType { kF32, kU32, kU64 };

struct TensorSource {
  using Write = std::function<absl::Status(const void* data, size_t bytes)>;
  std::string name;  // PlainName
  TensorType type = TensorType::kF32;
  std::vector<uint64_t> shape;
  std::function<absl::Status(const Write& write)> stream;  // all its bytes, little-endian, row by row

  uint64_t bytes() const;
};
size_t SizeOf(TensorType type);
// A table's name as part of a path in an archive: letters, digits, '-', '_' and '.', in folders none of which
// is empty,
// "." or ".."; what is anything else becomes '_'. "deep/0/bias" stays as it is.
std::string PlainName(const std::string& table);

// Sparse tables: NAME.keys u64 [rows], NAME.weights f32 [rows, width]; with slots NAME.slots f32 [rows,
// slots], NAME.updates u32 [rows] and NAME.last_step u32 [rows]. Rows of all of them in one order. Dense
// tables: NAME f32 [elements], blocks that were never updated at their initial values. The reader and the
// specs outlive the result.
std::vector<TensorSource> TensorsOf(const CheckpointReader& reader,
                                    const std::vector<const TableSpec*>& tables, bool slots);

// Each writes PATH whole or not at all (under another name, then a rename). kUnavailable: the disk, with the
// path.
absl::Status WriteNpz(const std::vector<TensorSource>& tensors, const std::string& path);
// What the header of a safetensors file calls its metadata; no tensor can have that name.
inline constexpr char kSafetensorsMetadata[] = "__metadata__";
// metadata: name, value; goes into the header.
absl::Status WriteSafetensors(const std::vector<TensorSource>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata,
                              const std::string& path);
// One table as CSV: key, w0, w1 …; with slots also s0 … (if it has any), updates, last_step. Dense tables: element,
// value.
absl::Status WriteCsv(const CheckpointReader& reader, const TableSpec& table, bool slots,
                      const std::string& path);
// The same, appended to what the caller has opened.
absl::Status AppendCsv(const CheckpointReader& reader, const TableSpec& table, bool slots, WritableFile& file);

}  // namespace capstan
