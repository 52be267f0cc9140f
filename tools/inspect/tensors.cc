#include "tools/inspect/tensors.h"

#include <algorithm>

#include "tools/inspect/opened.h"

namespace capstan {
namespace {

using Write = TensorSource::Write;

// Gathers small pieces: a call a row would be slow.
class Batched {
 public:
  explicit Batched(const Write& write) : write_(write) {}
  absl::Status Add(const void* data, size_t bytes) {
    constexpr size_t kBatch = 1 << 18;
    const char* const begin = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), begin, begin + bytes);
    return buffer_.size() < kBatch ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    const absl::Status status = write_(buffer_.data(), buffer_.size());
    buffer_.clear();
    return status;
  }

 private:
  const Write& write_;
  std::vector<char> buffer_;
};

using Part = std::function<std::pair<const void*, size_t>(const StoredRow& row)>;

TensorSource SparseTensor(const CheckpointReader& reader, const TableSpec& table, const std::string& part,
                          TensorType type, uint64_t columns, bool matrix, Part bytes_of) {
  TensorSource tensor;
  const auto id = static_cast<TableId>(table.id());
  tensor.name = PlainName(table.name()) + "." + part;
  tensor.type = type;
  tensor.shape = {reader.rows(id)};
  if (matrix) tensor.shape.push_back(columns);
  tensor.stream = [&reader, id, of = std::move(bytes_of)](const Write& write) -> absl::Status {
    Batched batched(write);
    CAPSTAN_RETURN_IF_ERROR(reader.ForEach(id, 0, reader.partitions(), [&](const StoredRow& row) {
      const auto piece = of(row);
      return batched.Add(piece.first, piece.second);
    }));
    return batched.Flush();
  };
  return tensor;
}

void AddSparse(const CheckpointReader& reader, const TableSpec& table, bool slots,
               std::vector<TensorSource>* tensors) {
  const uint32_t width = table.width();
  const uint32_t floats = std::max(reader.floats(static_cast<TableId>(table.id())), width);
  const auto add = [&](const char* part, TensorType type, uint64_t columns, bool matrix, Part of) {
    tensors->push_back(SparseTensor(reader, table, part, type, columns, matrix, std::move(of)));
  };
  add("keys", TensorType::kU64, 1, false,
      [](const StoredRow& row) { return std::pair<const void*, size_t>(&row.key, 8); });
  add("weights", TensorType::kF32, width, true, [width](const StoredRow& row) {
    return std::pair<const void*, size_t>(row.values, width * sizeof(float));
  });
  if (!slots) return;
  add("slots", TensorType::kF32, floats - width, true, [width, floats](const StoredRow& row) {
    return std::pair<const void*, size_t>(row.values + width, (floats - width) * sizeof(float));
  });
  add("updates", TensorType::kU32, 1, false,
      [](const StoredRow& row) { return std::pair<const void*, size_t>(&row.updates, 4); });
  add("last_step", TensorType::kU32, 1, false,
      [](const StoredRow& row) { return std::pair<const void*, size_t>(&row.last_step, 4); });
}

void AddDense(const CheckpointReader& reader, const TableSpec& table, std::vector<TensorSource>* tensors) {
  TensorSource tensor;
  tensor.name = PlainName(table.name());
  tensor.shape = {table.elements()};
  tensor.stream = [&reader, &table](const Write& write) -> absl::Status {
    const uint64_t width = table.width();
    for (Key block = 0; block * width < table.elements(); ++block) {
      std::vector<float> values = InitialRow(reader.manifest(), table, block);
      CAPSTAN_RETURN_IF_ERROR(reader
                                  .Get(static_cast<TableId>(table.id()), block,
                                       [&](const StoredRow& row) {
                                         std::copy(row.values,
                                                   row.values + std::min<uint64_t>(width, row.floats),
                                                   values.begin());
                                       })
                                  .status());
      const uint64_t inside = std::min(width, table.elements() - block * width);
      CAPSTAN_RETURN_IF_ERROR(write(values.data(), inside * sizeof(float)));
    }
    return absl::OkStatus();
  };
  tensors->push_back(std::move(tensor));
}

}  // namespace

std::string PlainName(const std::string& table) {
  std::string plain, folder;
  const auto close = [&] {
    plain += folder.empty() || folder == "." || folder == ".." ? "_" : folder;
    folder.clear();
  };
  for (const char c : table) {
    const bool kept =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (c == '/') {
      close();
      plain += '/';
    } else {
      folder += kept ? c : '_';
    }
  }
  close();
  return plain;
}

size_t SizeOf(TensorType type) { return type == TensorType::kU64 ? 8 : 4; }

uint64_t TensorSource::bytes() const {
  uint64_t size = SizeOf(type);
  for (const uint64_t n : shape) size *= n;
  return size;
}

std::vector<TensorSource> TensorsOf(const CheckpointReader& reader,
                                    const std::vector<const TableSpec*>& tables, bool slots) {
  std::vector<TensorSource> tensors;
  for (const TableSpec* table : tables) {
    if (table->kind() == TableSpec::DENSE) {
      AddDense(reader, *table, &tensors);
    } else {
      AddSparse(reader, *table, slots, &tensors);
    }
  }
  return tensors;
}

}  // namespace capstan
