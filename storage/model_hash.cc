#include "storage/model_hash.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan {
namespace {

constexpr size_t kSumBytes = 48;

template <typename T>
void AppendSumField(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string PackSums(std::span<const PartitionSum> sums) {
  std::string packed;
  packed.reserve(sums.size() * kSumBytes);
  for (const PartitionSum& sum : sums) {
    AppendSumField(&packed, uint32_t{sum.table});
    AppendSumField(&packed, sum.partition);
    AppendSumField(&packed, sum.rows);
    AppendSumField(&packed, sum.sha256);
  }
  return packed;
}

absl::StatusOr<std::vector<PartitionSum>> UnpackSums(std::string_view packed) {
  if (packed.size() % kSumBytes != 0) {
    return InvalidArgument(
        fmt::format("{} bytes of partition sums are no multiple of {}", packed.size(), kSumBytes));
  }
  std::vector<PartitionSum> sums(packed.size() / kSumBytes);
  const char* from = packed.data();
  for (PartitionSum& sum : sums) {
    uint32_t table = 0;
    std::memcpy(&table, from, 4);
    std::memcpy(&sum.partition, from + 4, 4);
    std::memcpy(&sum.rows, from + 8, 8);
    std::memcpy(sum.sha256.data(), from + 16, sizeof(Sha256Digest));
    if (table > 0xFFFF)
      return InvalidArgument(fmt::format("a partition sum names table {}, above 65535", table));
    sum.table = static_cast<TableId>(table);
    from += kSumBytes;
  }
  return sums;
}

std::string ModelSha256(std::span<const std::string> table_names, std::vector<PartitionSum> sums) {
  for (const PartitionSum& sum : sums) CHECK_LT(sum.table, table_names.size()) << "a table without a name";
  std::sort(sums.begin(), sums.end(), [&](const PartitionSum& a, const PartitionSum& b) {
    return std::tie(table_names[a.table], a.partition) < std::tie(table_names[b.table], b.partition);
  });
  Sha256 hash;
  for (const PartitionSum& sum : sums) {
    if (sum.rows == 0) continue;
    const std::string& name = table_names[sum.table];
    const uint32_t length = static_cast<uint32_t>(name.size());
    hash.Update(&length, sizeof(length));
    hash.Update(name.data(), name.size());
    hash.Update(&sum.partition, sizeof(sum.partition));
    hash.Update(sum.sha256.data(), sum.sha256.size());
  }
  return ToHex(hash.Finish());
}

}  // namespace capstan
