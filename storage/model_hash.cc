#include "storage/model_hash.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <glog/logging.h>

namespace capstan {
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
